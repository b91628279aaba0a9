//! A report as tables: throughput side by side with ratios to the yardstick, then sizes.

use pmindex_pibench::{Phase, Report, Run, Yardstick};

use crate::style;
use crate::table::{Table, digits, thousands};

/// The report.
pub(super) fn text(report: &Report) -> String {
    let records = report.runs.first().map_or(0, |run| run.records);
    let title = format!("{} records, million operations a second", thousands(records));
    let sizes_title = "Lines flushed and fences per operation, and what a record takes";
    format!(
        "\n{}\n\n{}\n{}\n\n{}",
        style::bold(&title),
        throughput(report).render(),
        style::bold(sizes_title),
        sizes(report).render()
    )
}

fn threads(run: &Run) -> String {
    match run.threads {
        1 => run.index.clone(),
        n => format!("{} x{n}", run.index),
    }
}

/// A row for each phase; for each index its rate and its ratio to the yardstick.
fn throughput(report: &Report) -> Table {
    let yardstick = report.runs.iter().find(|run| run.index == Yardstick::NAME);
    let mut heading = vec!["operation".to_owned()];
    for run in &report.runs {
        heading.push(threads(run));
        if has_ratio(run, yardstick) {
            heading.push("ratio".into());
        }
    }
    let mut table = Table::new(heading);
    for phase in phases(report) {
        let base = yardstick.and_then(|run| run.phase(phase)).map(|row| row.mops);
        let mut cells = vec![phase.name().to_owned()];
        for run in &report.runs {
            let mops = run.phase(phase).map(|row| row.mops);
            cells.push(mops.map_or("-".into(), |mops| {
                if phase == Phase::Scan { format!("{mops:.3}") } else { digits(mops) }
            }));
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

fn phases(report: &Report) -> Vec<Phase> {
    let all = Phase::ALL.into_iter();
    all.filter(|phase| report.runs.iter().any(|run| run.phase(*phase).is_some())).collect()
}

/// A row for each index: costs of writes, bytes of a record, recovery.
fn sizes(report: &Report) -> Table {
    let mut table = Table::new([
        "index",
        "durability",
        "insert",
        "update",
        "delete",
        "insert_many",
        "PM",
        "DRAM",
        "recovery",
    ]);
    for run in &report.runs {
        let cost = |phase| {
            let row = run.phase(phase)?;
            let (lines, fences) = (row.flushed_lines_per_op?, row.fences_per_op?);
            Some(format!("{} / {}", digits(lines), digits(fences)))
        };
        let cost = |phase| cost(phase).unwrap_or("-".into());
        let bytes = |b: Option<f64>| b.map_or("-".into(), |b| format!("{} B", digits(b)));
        table.row([
            run.index.clone(),
            run.durability.clone(),
            cost(Phase::Insert),
            cost(Phase::Update),
            cost(Phase::Delete),
            cost(Phase::InsertMany),
            bytes(run.pm_bytes_per_record),
            bytes(run.dram_bytes_per_record),
            run.recovery_ms.map_or("gone".into(), |ms| format!("{} ms", digits(ms))),
        ]);
    }
    table
}
