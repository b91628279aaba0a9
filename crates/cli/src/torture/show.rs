//! What a torture came to, for a person and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::style;
use crate::table::{Table, millis, thousands};

use super::Ordeal;
use super::faults::Outcome;

/// The whole story.
pub(super) fn text(ordeals: &[Ordeal], seed: u64) -> String {
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
    for ordeal in ordeals {
        let survived = &ordeal.survived;
        let openings = &survived.openings;
        let time = |at: usize| openings.get(at).map_or(String::new(), |time| millis(*time));
        let verdict = if ordeal.holds() { style::good("holds") } else { style::bad("BROKEN") };
        table.row([
            ordeal.kind.to_string(),
            thousands(survived.kills),
            thousands(survived.while_opening),
            thousands(survived.closed),
            thousands(survived.pools),
            thousands(survived.grown),
            thousands(survived.writes),
            thousands(survived.verified),
            time(openings.len() / 2),
            time(openings.len().saturating_sub(1)),
            verdict,
        ]);
    }
    let mut text = table.render();
    let _ = writeln!(
        text,
        "  kills (of them while opening), proper ends; acknowledged writes; records compared\n"
    );
    for ordeal in ordeals {
        for example in &ordeal.survived.examples {
            let _ = writeln!(text, "  {}: {}: {example}", ordeal.kind, style::bad("wrong"));
        }
        for (fault, outcome) in &ordeal.faults {
            let (verdict, what) = match outcome {
                Outcome::Held(what) => (style::good("holds"), what),
                Outcome::Skipped(why) => ("skipped".to_owned(), why),
                Outcome::Failed(how) => (style::bad("BROKEN"), how),
            };
            let _ = writeln!(text, "  {}: {fault}: {verdict}: {what}", ordeal.kind);
        }
    }
    let _ = writeln!(text, "\n  seed {seed}");
    text
}

/// The same as JSON.
pub(super) fn json(ordeals: &[Ordeal], seed: u64) -> Value {
    let row = |ordeal: &Ordeal| {
        let survived = &ordeal.survived;
        let openings = &survived.openings;
        let ms = |at: usize| openings.get(at).map(|time| time.as_secs_f64() * 1e3);
        let faults: Vec<Value> =
            ordeal.faults.iter().map(|(name, outcome)| fault(name, outcome)).collect();
        json!({
            "index": ordeal.kind.name(),
            "holds": ordeal.holds(),
            "kills": survived.kills,
            "kills_while_opening": survived.while_opening,
            "closed": survived.closed,
            "paused": survived.paused,
            "pools": survived.pools,
            "grown": survived.grown,
            "acknowledged": survived.writes,
            "verified": survived.verified,
            "in_flight": survived.in_flight,
            "in_flight_done": survived.in_flight_done,
            "bad": survived.bad,
            "examples": survived.examples,
            "opened_ms_median": ms(openings.len() / 2),
            "opened_ms_max": ms(openings.len().saturating_sub(1)),
            "faults": faults,
        })
    };
    json!({ "seed": seed, "indexes": ordeals.iter().map(row).collect::<Vec<_>>() })
}

fn fault(name: &str, outcome: &Outcome) -> Value {
    let (verdict, words) = match outcome {
        Outcome::Held(words) => ("holds", words),
        Outcome::Skipped(words) => ("skipped", words),
        Outcome::Failed(words) => ("broken", words),
    };
    json!({ "fault": name, "verdict": verdict, "words": words })
}
