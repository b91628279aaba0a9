//! Prints a report as tables: throughput with ratios to the yardstick, latencies, and sizes; one group of
//! tables for each series of runs.

use pmindex_pibench::{PhaseRow, Report, Run, Yardstick, series};

use crate::style;
use crate::table::{Table, digits, rate, thousands};

/// Returns the report as text.
pub(super) fn text(report: &Report) -> String {
    let mut text = String::new();
    for runs in series(&report.runs) {
        text += &group(runs);
    }
    text
}

fn group(runs: &[Run]) -> String {
    let Some(run) = runs.first() else { return String::new() };
    let skew = run.distribution.skew.map_or(String::new(), |skew| format!(" {skew}"));
    let records = thousands(run.records);
    let what = format!(
        "{records} records of {} and {} bytes, {}{skew}",
        run.key.bytes(),
        run.value.bytes(),
        run.distribution.name
    );
    let mut text = format!(
        "\n{}\n\n{}",
        style::bold(&format!("{what}: million operations a second")),
        throughput(runs).render()
    );
    text += "  records: when the operation began; rates: the median of the chunks (the least-the greatest)\n";
    if runs.iter().any(|run| run.durability == "process" && !run.peer) {
        text += "  mode process: no line is flushed while this is measured; --durability flush flushes them\n";
    }
    text += &short_chunks(runs).unwrap_or_default();
    if let Some(table) = latencies(runs) {
        let title = style::bold("Microseconds of a call: median, 99 %, 99.9 %");
        text = format!("{text}\n{title}\n\n{}", table.render());
    }
    if runs.iter().any(|run| run.background) {
        text += "\nx1+1: one thread more does the background work, until none is left.\n";
    }
    let title = "Lines flushed and fences per operation, and what a record takes";
    format!(
        "{text}\n{}\n\n{}  lines / fences: counted in a run of its own, as on persistent memory; recovery: until the \
         index is usable\n  again after a kill of the writing process, and clean opening: after a proper end, \
         both in a new process\n",
        style::bold(title),
        sizes(runs).render()
    )
}

fn name(run: &Run) -> String {
    match (run.threads, run.background) {
        (1, false) => run.index.clone(),
        (n, false) => format!("{} x{n}", run.index),
        (n, true) => format!("{} x{n}+1", run.index),
    }
}

/// Returns the names of all phases and mixes, in the order they ran.
fn rows(runs: &[Run]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in runs.iter().flat_map(|run| &run.phases) {
        if !names.contains(&row.op.as_str()) {
            names.push(&row.op);
        }
    }
    names
}

/// Returns the row of a phase if anything was measured.
fn measured<'r>(run: &'r Run, op: &str) -> Option<&'r PhaseRow> {
    run.row(op).filter(|row| row.ops > 0)
}

/// Returns the rate of a phase, and the least and the greatest rate of its chunks.
fn with_spread(row: &PhaseRow) -> String {
    let mops = |mops: f64| match mops {
        m if m < 0.01 => format!("{}/s", rate(1e6 * m)),
        m if m < 1.0 => format!("{m:.3}"),
        m => digits(m),
    };
    let spread = row.spread().filter(|_| row.chunks_mops.len() > 1);
    spread.map_or(mops(row.mops), |(least, most)| {
        format!("{} ({}-{})", mops(row.mops), mops(least), mops(most))
    })
}

/// The time of a chunk, in seconds, below which the clock and the system's interruptions show in its rate.
const SHORT: f64 = 0.01;

/// Returns a warning if chunks of a phase were too short.
fn short_chunks(runs: &[Run]) -> Option<String> {
    let rows = runs.iter().flat_map(|run| &run.phases);
    let short = rows.filter(|row| row.chunk_seconds().is_some_and(|seconds| seconds < SHORT));
    let mut names: Vec<&str> = Vec::new();
    for row in short {
        if !names.contains(&row.op.as_str()) {
            names.push(&row.op);
        }
    }
    (!names.is_empty()).then(|| {
        format!(
            "  Chunks of less than 10 ms, whose rates say little: {}. Load more records, or raise --chunk-ms or \
             --ops.\n",
            names.join(", ")
        )
    })
}

/// Returns a row for each phase, with the records that it met, the rate of each index and its ratio to the yardstick. A cell is
/// empty if nothing was measured: a file of keys may have run out.
fn throughput(runs: &[Run]) -> Table {
    let yardstick = runs.iter().find(|run| run.index == Yardstick::NAME);
    let mut heading = vec!["operation".to_owned(), "records".to_owned()];
    for run in runs {
        heading.push(name(run));
        if has_ratio(run, yardstick) {
            heading.push("ratio".into());
        }
    }
    let mut table = Table::new(heading);
    for op in rows(runs) {
        let mops_of = |run: &Run| measured(run, op).map(|row| row.mops);
        let base = yardstick.and_then(mops_of);
        // All indexes of a series meet the same records.
        let live = runs.iter().find_map(|run| run.row(op)?.live_records);
        let mut cells = vec![op.to_owned(), live.map_or("-".into(), thousands)];
        for run in runs {
            let mops = mops_of(run);
            cells.push(measured(run, op).map_or("-".into(), with_spread));
            if has_ratio(run, yardstick) {
                let ratio = mops.zip(base).map(|(mops, base)| mops / base);
                cells.push(ratio.map_or("-".into(), |ratio| format!("{ratio:.2}x")));
            }
        }
        table.row(cells);
    }
    table
}

fn has_ratio(run: &Run, yardstick: Option<&Run>) -> bool {
    yardstick.is_some_and(|base| base.index != run.index)
}

/// Returns a row for each phase whose calls were timed; `None` without such a phase.
fn latencies(runs: &[Run]) -> Option<Table> {
    let timed = |row: &&PhaseRow| row.latency_ns.is_some();
    runs.iter().flat_map(|run| &run.phases).find(timed)?;
    let heading = ["operation".to_owned()].into_iter().chain(runs.iter().map(name));
    let mut table = Table::new(heading);
    for op in rows(runs) {
        let cell = |run: &Run| {
            let latency = run.row(op)?.latency_ns.as_ref()?;
            let micros = |nanos: Option<u64>| {
                nanos.map_or("-".into(), |ns| {
                    digits(std::time::Duration::from_nanos(ns).as_secs_f64() * 1e6)
                })
            };
            let (p50, p99) = (micros(Some(latency.p50)), micros(latency.p99));
            Some(format!("{p50} {p99} {}", micros(latency.p99_9)))
        };
        let cells: Vec<Option<String>> = runs.iter().map(cell).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or("-".into()));
            table.row([op.to_owned()].into_iter().chain(cells));
        }
    }
    Some(table)
}

/// Returns a row for each index: costs of writes, bytes of a record, recovery.
fn sizes(runs: &[Run]) -> Table {
    let counted = |op: &&str| {
        let costs = runs.iter().filter_map(|run| run.row(op)?.fences_per_op);
        *op != "load" && costs.fold(0.0, f64::max) > 0.0
    };
    let ops: Vec<&str> = rows(runs).into_iter().filter(counted).collect();
    let fixed = ["PM", "DRAM", "recovery", "clean opening"];
    let heading = ["index", "durability"].into_iter().chain(ops.iter().copied()).chain(fixed);
    let mut table = Table::new(heading);
    for run in runs {
        let cost = |op: &&str| {
            let row = run.row(op)?;
            let (lines, fences) = (row.flushed_lines_per_op?, row.fences_per_op?);
            Some(format!("{} / {}", digits(lines), digits(fences)))
        };
        let bytes = |b: Option<f64>| b.map_or("-".into(), |b| format!("{} B", digits(b)));
        let mut cells = vec![run.index.clone(), run.durability.clone()];
        cells.extend(ops.iter().map(|op| cost(op).unwrap_or("-".into())));
        cells.push(bytes(run.pm_bytes_per_record));
        cells.push(bytes(run.dram_bytes_per_record));
        let millis = |ms: Option<f64>| ms.map_or("-".into(), |ms| format!("{} ms", digits(ms)));
        cells.extend([millis(run.recovery_ms), millis(run.clean_open_ms)]);
        table.row(cells);
    }
    table
}
