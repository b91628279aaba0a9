//! `cargo xtask which-index FILE`: writes the measured table of docs/book/src/which-index.md from a report.
//!
//! The report is the output of `pmindex bench --json`. No number of that page is typed by hand.

use std::fmt::Write;
use std::path::PathBuf;

use serde_json::Value;

use crate::shell::root;

const PAGE: &str = "docs/book/src/which-index.md";
/// The marks around the table.
const BEGIN: &str = "<!-- measured: begin -->\n";
const END: &str = "<!-- measured: end -->";
/// The supported version of the report.
const SCHEMA: u64 = 2;

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The output of `pmindex bench --json`, from an idle machine and a release build
    report: PathBuf,
}

/// Rewrites the table.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let path = args.report.display();
    let text = std::fs::read_to_string(&args.report).map_err(|e| format!("{path}: {e}"))?;
    let report: Value = serde_json::from_str(&text).map_err(|e| format!("{path}: {e}"))?;
    let table = table(&report).map_err(|e| format!("{path}: {e}"))?;
    let page = root().join(PAGE);
    let text = std::fs::read_to_string(&page).map_err(|e| format!("{PAGE}: {e}"))?;
    let text = replaced(&text, &table).ok_or(format!("{PAGE}: no {BEGIN}..{END}"))?;
    std::fs::write(page, text).map_err(|e| format!("{PAGE}: {e}"))
}

/// Replaces the table of the page.
fn replaced(page: &str, table: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

/// The columns: a heading, and the operation whose median rate it shows.
const RATES: &[(&str, &str)] = &[
    ("load", "load"),
    ("get", "get"),
    ("scan", "scan"),
    ("insert", "insert"),
    ("update", "update"),
    ("remove", "delete"),
    ("get_many", "get_many"),
    ("insert_many", "insert_many"),
];

fn table(report: &Value) -> Result<String, String> {
    if report["schema"] != SCHEMA {
        return Err(format!("not a report of version {SCHEMA}"));
    }
    let machine = &report["environment"];
    if machine["build"] == "debug" {
        return Err("a debug build measures nothing".into());
    }
    let runs = report["runs"].as_array().ok_or("no runs")?;
    let first = runs.first().ok_or("no runs")?;
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "?".into(),
        other => other.to_string(),
    };
    let mut table = format!(
        "\nMillion operations a second (of scans: million scans); then milliseconds until the index \
         is usable\nafter a kill, and bytes per record.\n\n| index | threads |{} opened in | PM | DRAM |\n\
         | --- |{}\n",
        RATES.iter().fold(String::new(), |all, (heading, _)| all + " " + heading + " |"),
        " --- |".repeat(RATES.len() + 4),
    );
    for run in runs {
        let _ = write!(table, "| {} | {} |", text(&run["index"]), text(&run["threads"]));
        for (_, operation) in RATES {
            let phases = run["phases"].as_array().map_or(&[][..], Vec::as_slice);
            let phase = phases.iter().find(|phase| phase["op"] == *operation);
            let _ = write!(table, " {} |", number(phase.map(|phase| &phase["mops"]), 2));
        }
        for (field, digits) in
            [("recovery_ms", 1), ("pm_bytes_per_record", 1), ("dram_bytes_per_record", 1)]
        {
            let _ = write!(table, " {} |", number(run.get(field), digits));
        }
        table.push('\n');
    }
    let _ = writeln!(
        table,
        "\n{} records; mode `{}`; {}, {} cores, {}; commit {}.\n\n{}\n",
        text(&first["records"]),
        text(&first["durability"]),
        text(&machine["cpu"]),
        text(&machine["cores"]),
        text(&machine["system"]),
        text(&machine["commit"]),
        text(&first["durability_words"]),
    );
    Ok(table)
}

/// A dash stands for a missing measurement.
fn number(value: Option<&Value>, digits: usize) -> String {
    value.and_then(Value::as_f64).map_or("–".into(), |number| format!("{number:.digits$}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_holds_what_the_report_says() {
        let report = json!({
            "schema": 2,
            "environment": { "cpu": "A processor", "cores": 2, "system": "Linux", "commit": "c0ffee",
                             "build": "release" },
            "runs": [{ "index": "fptree", "threads": 1, "records": 1000, "durability": "flush",
                       "durability_words": "emulated", "recovery_ms": 8.25,
                       "pm_bytes_per_record": 25.04, "dram_bytes_per_record": null,
                       "phases": [{ "op": "get", "mops": 3.456 }] }],
        });
        let table = table(&report).expect("a table");
        assert!(
            table.contains("| fptree | 1 | – | 3.46 | – | – | – | – | – | – | 8.2 | 25.0 | – |\n")
        );
        assert!(table.contains(
            "1000 records; mode `flush`; A processor, 2 cores, Linux; commit c0ffee.\n\nemulated\n"
        ));
        let columns = |line: &str| line.matches('|').count();
        let lines: Vec<usize> =
            table.lines().filter(|line| line.starts_with('|')).map(columns).collect();
        assert_eq!(lines, [14, 14, 14]);
        let page = format!("a\n{BEGIN}old\n{END}\nb\n");
        assert_eq!(replaced(&page, "new\n"), Some(format!("a\n{BEGIN}new\n{END}\nb\n")));
    }

    #[test]
    fn other_reports_are_refused() {
        assert!(table(&json!({ "schema": 3, "runs": [] })).is_err());
        let debug = json!({ "schema": 2, "environment": { "build": "debug" }, "runs": [{}] });
        assert!(table(&debug).is_err());
    }
}
