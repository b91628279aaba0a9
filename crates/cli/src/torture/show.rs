//! Prints the report of a torture as text and as JSON.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::output::path_in_json;
use crate::style;
use crate::table::{Table, counted, millis, thousands};

use super::KindReport;
use super::bank;
use super::campaign::Results;
use super::faults::Outcome;

/// Returns the report as text.
pub(super) fn text(reports: &[KindReport], bank: Option<&bank::Results>, seed: u64) -> String {
    let mut text = if reports.is_empty() { String::new() } else { kinds(reports) };
    if let Some(bank) = bank {
        text.push_str(&of_bank(bank));
    }
    let _ = writeln!(text, "\n  seed {seed}");
    text
}

fn of_bank(bank: &bank::Results) -> String {
    let (verdict, what) = match &bank.wrong {
        None => (style::good("holds"), "all money and every acknowledged transfer are there"),
        Some(wrong) => (style::bad("BROKEN"), wrong.as_str()),
    };
    format!(
        "  {}: {verdict}: {what}\n  {} ({} while opening), {}, {} transfers acknowledged, {} more were durable\n",
        bank::NAME,
        counted(bank.kills, "kill", "kills"),
        thousands(bank.while_opening),
        counted(bank.closed, "proper end", "proper ends"),
        thousands(bank.transfers),
        thousands(bank.in_flight),
    )
}

fn kinds(reports: &[KindReport]) -> String {
    let mut table = Table::new([
        "index",
        "kills",
        "opening",
        "closed",
        "pools",
        "grown",
        "writes",
        "verified",
        "opened in",
        "slowest",
        "verdict",
    ]);
    for report in reports {
        let Results { tally, pools, grown, .. } = &report.results;
        let (median, slowest) = tally.openings().unwrap_or_default();
        let verdict = if report.holds() { style::good("holds") } else { style::bad("BROKEN") };
        table.row([
            report.kind.to_string(),
            thousands(tally.kills),
            thousands(tally.while_opening),
            thousands(tally.closed),
            thousands(*pools),
            thousands(*grown),
            thousands(tally.writes),
            thousands(tally.verdict.records),
            millis(median),
            millis(slowest),
            verdict,
        ]);
    }
    let mut text = table.render();
    let _ = writeln!(
        text,
        "  opening: kills while the pool was being opened; closed: processes that ended properly;\n  \
         pools: created, one after the other; grown: times that one grew; writes: acknowledged; verified:\n  \
         records compared; opened in: the median of all openings, with recovery; slowest: the longest\n"
    );
    for report in reports {
        for example in &report.results.tally.verdict.examples {
            let _ = writeln!(text, "  {}: {}: {example}", report.kind, style::bad("wrong"));
        }
        for (fault, outcome) in &report.faults {
            let (verdict, what) = match outcome {
                Outcome::Held(what) => (style::good("holds"), what),
                Outcome::Skipped(why) => ("skipped".to_owned(), why),
                Outcome::Failed(how) => (style::bad("BROKEN"), how),
            };
            let _ = writeln!(text, "  {}: {fault}: {verdict}: {what}", report.kind);
        }
    }
    text
}

/// Returns the report as JSON.
pub(super) fn json(reports: &[KindReport], bank: Option<&bank::Results>, seed: u64) -> Value {
    let row = |report: &KindReport| {
        let Results { tally, pools, grown, kept } = &report.results;
        let verdict = &tally.verdict;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (median, slowest) = tally.openings().unzip();
        let faults: Vec<Value> =
            report.faults.iter().map(|(name, outcome)| fault(name, outcome)).collect();
        json!({
            "index": report.kind.name(),
            "holds": report.holds(),
            "kills": tally.kills,
            "kills_while_opening": tally.while_opening,
            "closed": tally.closed,
            "paused": tally.paused,
            "pools": pools,
            "grown": grown,
            "acknowledged": tally.writes,
            "verified": verdict.records,
            "in_flight": verdict.in_flight,
            "in_flight_done": verdict.in_flight_done,
            "bad": verdict.lost + verdict.ghosts + verdict.wrong,
            "examples": verdict.examples,
            "kept": kept.as_deref().map(path_in_json),
            "opened_ms_median": median.map(ms),
            "opened_ms_max": slowest.map(ms),
            "faults": faults,
        })
    };
    let bank = bank.map(|bank| {
        json!({
            "holds": bank.wrong.is_none(),
            "kills": bank.kills,
            "kills_while_opening": bank.while_opening,
            "closed": bank.closed,
            "acknowledged": bank.transfers,
            "in_flight_done": bank.in_flight,
            "wrong": bank.wrong,
            "kept": bank.kept.as_deref().map(path_in_json),
        })
    });
    let rows: Vec<_> = reports.iter().map(row).collect();
    json!({ "seed": seed, "indexes": rows, "store": bank })
}

fn fault(name: &str, outcome: &Outcome) -> Value {
    let (verdict, words) = match outcome {
        Outcome::Held(words) => ("holds", words),
        Outcome::Skipped(words) => ("skipped", words),
        Outcome::Failed(words) => ("broken", words),
    };
    json!({ "fault": name, "verdict": verdict, "words": words })
}
