//! Counts the cost of operations. A row is refused if its operations flush or fence differently from the
//! documented cost.

use std::collections::HashMap;

use pmindex_pibench::{Counts, Distribution, Records, Run, Sizes, Step, Ticks, Workload};

use crate::bench::bed::Counted;
use crate::bench::golden;
use crate::error::CliError;
use crate::registry::Entry;

/// Records that the counted index is loaded with.
const RECORDS: u64 = 50_000;
/// Operations of each phase that are counted.
const OPS: u64 = 10_000;

/// Counts every step on a small copy of the index and writes the means into its rows.
///
/// # Errors
/// [`CliError::Cost`] if the most frequent cost of an operation is not the golden one. Golden costs
/// are those of integers chosen uniformly.
pub(super) fn count<K, V>(
    entry: &Entry,
    counted: &Counted<K, V>,
    records: Box<dyn Records<K, V>>,
    steps: &[Step],
    sizes: Sizes,
    run: &mut Run,
) -> Result<(), CliError> {
    let small = Sizes { records: sizes.records.min(RECORDS), ops: OPS, ..sizes };
    let mut work = Workload::of(records, small);
    let plain = run.key.kind == "u64" && sizes.distribution == Distribution::Uniform;
    let golden = if plain { golden::of(entry.name) } else { Vec::new() };
    let can = |step: &&Step| step.shares().iter().all(|share| counted.subject.can(share.0));
    for step in steps.iter().filter(can) {
        let cost = cost(counted, &mut work, step)?;
        let golden = golden.iter().find(|golden| step.phase() == Some(golden.0));
        if let Some(&(phase, lines, fences)) = golden
            && cost.usual != (lines, fences)
        {
            let (index, found, golden) = (entry.name, cost.usual, (lines, fences));
            return Err(CliError::Cost { index, phase, found, golden });
        }
        if let Some(row) = run.phases.iter_mut().find(|row| row.op == step.name()) {
            row.set_counts(cost.total, cost.ops);
        }
    }
    Ok(())
}

/// Takes the costs from an earlier run of the same index with the same distribution; returns `false` if
/// there is none.
pub(super) fn copy(earlier: &[Run], run: &mut Run) -> bool {
    let same = |other: &&Run| other.index == run.index && other.distribution == run.distribution;
    let Some(other) = earlier.iter().find(same) else { return false };
    for row in &mut run.phases {
        if let Some(counted) = other.row(&row.op) {
            row.flushed_lines_per_op = counted.flushed_lines_per_op;
            row.fences_per_op = counted.fences_per_op;
            row.media_write_bytes_per_op = counted.media_write_bytes_per_op;
        }
    }
    true
}

/// What the operations of a step cost.
struct Cost {
    ops: u64,
    total: Counts,
    /// Lines and fences of a call, most frequent first.
    usual: (u64, u64),
}

fn cost<K, V>(
    counted: &Counted<K, V>,
    work: &mut Workload<K, V>,
    step: &Step,
) -> Result<Cost, CliError> {
    let mut seen: HashMap<(u64, u64), u64> = HashMap::new();
    (counted.drain)();
    let (first, mut ops) = ((counted.meter)(), 0);
    let mut before = first;
    for owned in work.jobs(step) {
        let Some(job) = owned.job() else { continue };
        for call in job.calls() {
            counted.subject.run(call, &mut Ticks::default())?;
            let after = (counted.meter)();
            let cost = (after.flushed_lines - before.flushed_lines, after.fences - before.fences);
            *seen.entry(cost).or_default() += 1;
            ops += call.len() as u64;
            before = after;
        }
    }
    (counted.drain)();
    let last = (counted.meter)();
    let total = Counts {
        flushed_lines: last.flushed_lines - first.flushed_lines,
        fences: last.fences - first.fences,
        media_bytes: last.media_bytes - first.media_bytes,
    };
    let usual = seen.into_iter().max_by_key(|&(cost, times)| (times, cost));
    Ok(Cost { ops, total, usual: usual.map(|(cost, _)| cost).unwrap_or_default() })
}
