//! A report as comma-separated values: a row for each phase of each run, with the conditions of the run.

use std::fmt::Write;

use crate::report::{PhaseRow, Report, Run};

/// The names of the columns, in order; new ones are added at the end.
pub const COLUMNS: [&str; 48] = [
    "index",
    "threads",
    "pinned",
    "background",
    "records",
    "durability",
    "write_latency_ns",
    "distribution",
    "skew",
    "key_kind",
    "key_min_bytes",
    "key_max_bytes",
    "value_kind",
    "value_min_bytes",
    "value_max_bytes",
    "scan_length",
    "batch",
    "seed",
    "op",
    "ops",
    "seconds",
    "mops",
    "window_stddev",
    "latency_samples",
    "latency_mean_ns",
    "latency_min_ns",
    "latency_p50_ns",
    "latency_p90_ns",
    "latency_p99_ns",
    "latency_p99_9_ns",
    "latency_p99_99_ns",
    "latency_p99_999_ns",
    "latency_max_ns",
    "flushed_lines_per_op",
    "fences_per_op",
    "media_write_bytes_per_op",
    "cycles",
    "instructions",
    "cache_misses",
    "pm_bytes_per_record",
    "dram_bytes_per_record",
    "recovery_ms",
    "clean_open_ms",
    "cpu",
    "commit",
    "live_records",
    "min_chunk_mops",
    "max_chunk_mops",
];

/// Returns the report as text.
#[must_use]
pub fn csv(report: &Report) -> String {
    let mut text = COLUMNS.join(",") + "\n";
    for run in &report.runs {
        for row in &run.phases {
            let cells = cells(report, run, row);
            let quoted: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
            let _ = writeln!(text, "{}", quoted.join(","));
        }
    }
    text
}

fn cells(report: &Report, run: &Run, row: &PhaseRow) -> Vec<String> {
    let some = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let latency = row.latency_ns.as_ref();
    let nanos = |of: fn(&crate::probe::Latency) -> Option<u64>| {
        latency.and_then(of).map(|nanos| nanos.to_string()).unwrap_or_default()
    };
    let count = |of: fn(&crate::counters::Counters) -> u64| {
        row.counters.as_ref().map(|counters| of(counters).to_string()).unwrap_or_default()
    };
    vec![
        run.index.clone(),
        run.threads.to_string(),
        run.pinned.to_string(),
        run.background.to_string(),
        run.records.to_string(),
        run.durability.clone(),
        run.write_latency_ns.to_string(),
        run.distribution.name.clone(),
        some(run.distribution.skew),
        run.key.kind.clone(),
        run.key.min_bytes.to_string(),
        run.key.max_bytes.to_string(),
        run.value.kind.clone(),
        run.value.min_bytes.to_string(),
        run.value.max_bytes.to_string(),
        run.scan_length.to_string(),
        run.batch.to_string(),
        run.seed.to_string(),
        row.op.clone(),
        row.ops.to_string(),
        row.seconds.to_string(),
        row.mops.to_string(),
        row.window_stddev.to_string(),
        nanos(|latency| Some(latency.samples)),
        some(latency.map(|latency| latency.mean)),
        nanos(|latency| Some(latency.min)),
        nanos(|latency| Some(latency.p50)),
        nanos(|latency| latency.p90),
        nanos(|latency| latency.p99),
        nanos(|latency| latency.p99_9),
        nanos(|latency| latency.p99_99),
        nanos(|latency| latency.p99_999),
        nanos(|latency| Some(latency.max)),
        some(row.flushed_lines_per_op),
        some(row.fences_per_op),
        some(row.media_write_bytes_per_op),
        count(|counters| counters.cycles),
        count(|counters| counters.instructions),
        count(|counters| counters.cache_misses),
        some(run.pm_bytes_per_record),
        some(run.dram_bytes_per_record),
        some(run.recovery_ms),
        some(run.clean_open_ms),
        report.environment.cpu.clone(),
        report.environment.commit.clone(),
        row.live_records.map(|count| count.to_string()).unwrap_or_default(),
        some(row.spread().map(|spread| spread.0)),
        some(row.spread().map(|spread| spread.1)),
    ]
}

/// Quotes a cell according to RFC 4180.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_every_column() {
        let row = PhaseRow { op: "get:50,update:50".into(), mops: 1.5, ..PhaseRow::default() };
        let run = Run { index: "fptree".into(), phases: vec![row], ..Run::default() };
        let report = Report { runs: vec![run], ..Report::default() };
        let text = csv(&report);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[1].contains("\"get:50,update:50\""), "{}", lines[1]);
        let cells = cells(&report, &report.runs[0], &report.runs[0].phases[0]);
        assert_eq!(cells.len(), COLUMNS.len());
        let at = COLUMNS.iter().position(|name| *name == "mops").expect("a column");
        assert_eq!(cells[at], "1.5");
    }

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a \"b\", c"), "\"a \"\"b\"\", c\"");
    }
}
