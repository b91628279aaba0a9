//! Prints the results of a quickstart as text and as JSON.

use std::fmt::Write;

use pmindex::RecoveryReport;
use serde_json::{Value, json};

use crate::output::path_in_json;
use crate::style;
use crate::table::{Table, bytes, counted, digits, millis, rate, thousands, wrapped};
use crate::temp_file::and_twin;
use crate::trial::round::{Round, Tally};

use super::Summary;
use super::exercise::{BothIndexes, Op, OpTotals};

/// Returns the report as text.
pub(crate) fn text(summary: &Summary, kept: bool) -> String {
    let mut text = String::new();
    let [words, integers] = summary.loaded;
    let loaded = format!(
        "{} words and {} integers in {} s ({} of PM)",
        thousands(words),
        thousands(integers),
        digits(summary.load_time.as_secs_f64()),
        bytes(summary.pool_bytes),
    );
    line(&mut text, "\nLoaded", &loaded);
    line(&mut text, "into", &summary.pool.display().to_string());
    let _ = writeln!(text, "\n{}", operations(&summary.speeds, &summary.costs));
    if summary.promise.mode == "process" {
        text += "  (rates: in mode process, which flushes nothing; --durability flush does)\n\n";
    }
    match summary.rounds.as_slice() {
        [round] => one(&mut text, round),
        _ => many(&mut text, &summary.tally),
    }
    verified(&mut text, summary);
    promise(&mut text, summary);
    if kept {
        let twin = and_twin(&summary.pool);
        let _ = writeln!(
            text,
            "\nThe pool{twin} is kept: look at it with `pmindex info` and `pmindex scan`. (`info` does not know the mode.)"
        );
    }
    text
}

/// Appends a titled line, padded to the longest title.
fn line(text: &mut String, title: &str, what: &str) {
    let (gap, title) = title.strip_prefix('\n').map_or(("", title), |title| ("\n", title));
    let _ = writeln!(text, "{gap}{}  {what}", style::bold(&format!("{title:<9}")));
}

/// Returns a table with a row for each operation: rates on both indexes, flushed lines and fences.
fn operations(speeds: &BothIndexes, costs: &BothIndexes) -> String {
    let heading = ["operation", "words/s", "lines", "fences", "integers/s", "lines", "fences"];
    let mut table = Table::new(heading);
    let per_op =
        |totals: &OpTotals| [digits(totals.lines_per_op()), digits(totals.fences_per_op())];
    for (row, (op, _)) in speeds[0].iter().enumerate() {
        let mut cells = vec![op.name().to_owned()];
        for side in 0..2 {
            cells.push(rate(speeds[side][row].1.rate()));
            cells.extend(per_op(&costs[side][row].1));
        }
        table.row(cells);
    }
    format!(
        "{}  lines flushed and fences: per operation, counted in a run of its own as on persistent memory\n",
        table.render()
    )
}

fn one(text: &mut String, round: &Round) {
    let acknowledged = &round.acknowledged;
    let killed = format!(
        "a child process with {} by SIGKILL after {}, {} acknowledged",
        counted(acknowledged.steps.len() as u64, "thread", "threads"),
        millis(acknowledged.writing),
        counted(acknowledged.total(), "write", "writes"),
    );
    line(text, "Killed", &killed);
    let total = |part: fn(&RecoveryReport) -> u64| round.opened.reports.iter().map(part).sum();
    let recovered = format!(
        "in {}: {} read, {} rolled forward or back",
        millis(round.opened.time),
        counted(total(|report| report.leaves), "leaf", "leaves"),
        counted(total(|report| report.repaired), "operation", "operations"),
    );
    line(text, "Recovered", &recovered);
}

fn many(text: &mut String, tally: &Tally) {
    let killed = format!(
        "{} times, {} acknowledged; {} before the first write",
        thousands(tally.kills),
        counted(tally.writes, "write", "writes"),
        counted(tally.while_opening, "kill came", "kills came"),
    );
    line(text, "Killed", &killed);
    if let Some((median, slowest)) = tally.openings() {
        let recovered =
            format!("each time: median {}, slowest {}", millis(median), millis(slowest));
        line(text, "Recovered", &recovered);
    }
}

/// Appends the verdict of the last round. (A round that fails is the last one.)
fn verified(text: &mut String, summary: &Summary) {
    let Some(Round { verdict, .. }) = summary.rounds.last() else { return };
    if verdict.holds() {
        let good = style::good("every acknowledged write is there, and nothing else");
        line(text, "Verified", &format!("{} records: {good}", thousands(verdict.records)));
        let in_flight = format!(
            "{} in flight at the kill: {} done, the others not, none in part",
            counted(verdict.in_flight, "change was", "changes were"),
            verdict.in_flight_done
        );
        line(text, "", &in_flight);
        return;
    }
    let failed = format!(
        "{}: {} lost, {} that should not be there, {} with a wrong value",
        style::bad("FAILED"),
        verdict.lost,
        verdict.ghosts,
        verdict.wrong
    );
    line(text, "Verified", &failed);
    for example in &verdict.examples {
        line(text, "", example);
    }
}

fn promise(text: &mut String, summary: &Summary) {
    let promise = &summary.promise;
    line(text, "\nDurability", &promise.title());
    let _ = write!(text, "{}\n{}", wrapped(&promise.words), promise.lines());
}

/// Returns the results as JSON.
pub(crate) fn json(summary: &Summary) -> Value {
    let operations: Vec<Value> = ["words", "integers"]
        .into_iter()
        .zip(summary.speeds.iter().zip(&summary.costs))
        .flat_map(|(index, (speeds, costs))| {
            speeds
                .iter()
                .zip(costs)
                .map(move |((op, speed), (_, cost))| row(index, *op, speed, cost))
        })
        .collect();
    json!({
        "holds": summary.tally.holds(),
        "seed": summary.seed,
        "pool": path_in_json(&summary.pool),
        "pool_bytes": summary.pool_bytes,
        "durability": summary.promise,
        "words": summary.loaded[0],
        "integers": summary.loaded[1],
        "load_seconds": summary.load_time.as_secs_f64(),
        "operations": operations,
        "rounds": summary.rounds.iter().map(round).collect::<Vec<_>>(),
    })
}

fn row(index: &str, op: Op, speed: &OpTotals, cost: &OpTotals) -> Value {
    json!({
        "index": index,
        "op": op,
        "ops": speed.ops,
        "seconds": speed.time.as_secs_f64(),
        "mops": speed.rate() / 1e6,
        "flushed_lines_per_op": cost.lines_per_op(),
        "fences_per_op": cost.fences_per_op(),
    })
}

fn round(round: &Round) -> Value {
    let mut row = json!(round.verdict);
    row["acknowledged"] = json!(round.acknowledged.total());
    row["writing_seconds"] = json!(round.acknowledged.writing.as_secs_f64());
    row["recovery_ms"] = json!(round.opened.time.as_secs_f64() * 1e3);
    row
}
