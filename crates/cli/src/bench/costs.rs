//! What operations cost, counted: no row is printed for an index whose operations flush or fence
//! otherwise than its documentation says.

use std::collections::HashMap;

use pmindex_pibench::{Counts, Phase, Run, Workload};

use crate::error::CliError;
use crate::registry::{Counted, Entry};

/// Records that the counted index is loaded with.
const RECORDS: u64 = 50_000;
/// Operations of each phase that are counted.
const OPS: u64 = 10_000;

/// Counts every phase of `run` on a small copy of the index and writes the means into its rows.
///
/// # Errors
/// [`CliError::Cost`] if the most frequent cost of an operation is not the golden one.
pub(super) fn count(entry: &Entry, run: &mut Run, seed: u64) -> Result<(), CliError> {
    let Some(make) = entry.make_counting else { return Ok(()) };
    let counted = make()?;
    let mut work = Workload::new(RECORDS, OPS, seed);
    let golden = entry.golden();
    for phase in Phase::ALL {
        let cost = cost(&counted, &mut work, phase)?;
        let golden = golden.iter().find(|golden| golden.0 == phase);
        if let Some(&(_, lines, fences)) = golden
            && cost.usual != (lines, fences)
        {
            return Err(CliError::Cost {
                index: entry.name,
                phase,
                found: cost.usual,
                golden: (lines, fences),
            });
        }
        if let Some(row) = run.phases.iter_mut().find(|row| row.op == phase) {
            row.set_counts(cost.total, cost.ops);
        }
    }
    Ok(())
}

/// What the operations of a phase cost.
struct Cost {
    ops: u64,
    total: Counts,
    /// Lines and fences of a call, most frequent first.
    usual: (u64, u64),
}

fn cost(counted: &Counted, work: &mut Workload, phase: Phase) -> Result<Cost, CliError> {
    let mut seen: HashMap<(u64, u64), u64> = HashMap::new();
    let (first, mut ops) = ((counted.meter)(), 0);
    for job in work.jobs(phase) {
        for call in job.job().calls() {
            let before = (counted.meter)();
            counted.subject.run(call)?;
            let after = (counted.meter)();
            *seen.entry((after.0 - before.0, after.1 - before.1)).or_default() += 1;
            ops += call.len() as u64;
        }
    }
    let last = (counted.meter)();
    let total = Counts { flushed_lines: last.0 - first.0, fences: last.1 - first.1 };
    let usual = seen.into_iter().max_by_key(|&(cost, times)| (times, cost));
    Ok(Cost { ops, total, usual: usual.map(|(cost, _)| cost).unwrap_or_default() })
}
