//! Writes the page of a paper: its claims by table and figure, and our measurements.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use super::figures::{Column, Figure, Paper, Show};

/// Writes the page of a paper from the measurements in a folder.
pub(super) fn write(paper: &Paper, measured: &Path, out: &Path) -> Result<(), String> {
    let mut text = format!("# {}\n\n{}\n", paper.title, INTRODUCTION);
    let mut described = false;
    for figure in paper.figures {
        let Some(report) = read(measured, figure.from)? else {
            let _ = write!(text, "\n## {}\n\n{}\n\nNot measured yet.\n", figure.name, figure.claim);
            continue;
        };
        if !described {
            text += &environment(&report);
            described = true;
        }
        let _ = write!(text, "\n## {}\n\n*The paper:* {}\n", figure.name, figure.claim);
        text += &table(figure, &report, measured)?;
        let _ = write!(text, "\n{}\n", figure.word);
    }
    if !paper.left_out.is_empty() {
        let _ = write!(text, "\n## Left out\n\n{}\n", paper.left_out);
    }
    std::fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    let file = out.join(format!("{}.md", paper.name));
    std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))
}

const INTRODUCTION: &str = "\
Written by `cargo xtask evidence`; `cargo xtask paper` writes it again. Tables are measured here, on
tmpfs with every flush and fence executed: the instructions are real, the medium is DRAM. Absolute
numbers of the papers are those of their machines and are not compared; what is compared is who is
faster, by what factor, and why. Rates are in million operations a second. A dash means that an index
has no such operation or was not measured.";

pub(super) fn environment(report: &Value) -> String {
    let here = &report["environment"];
    let text = |name: &str| here[name].as_str().unwrap_or("unknown").to_owned();
    let build = match text("build").as_str() {
        "release" => String::new(),
        other => format!("\n\n**A {other} build: the figures below measure nothing.**"),
    };
    format!(
        "\n{}, {} cores, {}; huge pages on tmpfs: {}; commit {}.{build}\n",
        text("cpu"),
        here["cores"],
        text("system"),
        text("tmpfs_huge_pages"),
        text("commit")
    )
}

/// Reads a measurement; returns `None` if it was not made.
pub(super) fn read(folder: &Path, name: &str) -> Result<Option<Value>, String> {
    let file = folder.join(format!("{name}.json"));
    let Ok(text) = std::fs::read_to_string(&file) else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|e| format!("{}: {e}", file.display()))
}

fn table(figure: &Figure, report: &Value, folder: &Path) -> Result<String, String> {
    let heads: Vec<&str> = figure.columns.iter().map(|column| column.head).collect();
    let mut text = format!("\n| | {} |\n| --- |", heads.join(" | "));
    text += &" --- |".repeat(heads.len());
    text.push('\n');
    for index in figure.rows {
        let cells: Result<Vec<String>, String> = figure
            .columns
            .iter()
            .map(|column| cell(figure, column, report, index, folder))
            .collect();
        let _ = writeln!(text, "| {index} | {} |", cells?.join(" | "));
    }
    Ok(text)
}

fn cell(
    figure: &Figure,
    column: &Column,
    report: &Value,
    index: &str,
    folder: &Path,
) -> Result<String, String> {
    let other;
    let report = match column.from {
        None => report,
        Some(name) => {
            let Some(found) = read(folder, name)? else { return Ok("-".into()) };
            other = found;
            &other
        }
    };
    let (threads, distribution) = (column.threads, figure.distribution);
    let run = find(report, index, threads, distribution);
    let mops = |run: Option<&Value>, op: &str| row(run?, op)?["mops"].as_f64();
    let value = |op: &str, field: &str| row(run?, op)?[field].as_f64();
    let found = match column.show {
        Show::Rate(op) => mops(run, op),
        Show::Over(op, base) => {
            let base = mops(find(report, base, threads, distribution), op);
            mops(run, op).zip(base).map(|(own, base)| own / base)
        }
        Show::Scaling(op) => {
            let single = mops(find(report, index, 1, distribution), op);
            mops(run, op).zip(single).map(|(many, single)| many / single)
        }
        Show::Lines(op) => {
            let lines = value(op, "flushed_lines_per_op").map(three);
            let fences = value(op, "fences_per_op").map(three);
            let both = lines.zip(fences).map(|(lines, fences)| format!("{lines} / {fences}"));
            return Ok(both.unwrap_or("-".into()));
        }
        Show::Media(op) => value(op, "media_write_bytes_per_op"),
        Show::Micros(op, percentile) => {
            let nanos = run.and_then(|run| row(run, op)?["latency_ns"][percentile].as_f64());
            nanos.map(|nanos| nanos / 1000.0)
        }
        Show::Field(field) => run.and_then(|run| run[field].as_f64()),
    };
    let unit = match column.show {
        Show::Over(..) | Show::Scaling(_) => "x",
        _ => "",
    };
    Ok(found.map_or("-".into(), |value| format!("{}{unit}", three(value))))
}

/// Returns the run of an index with this number of threads, or the only run of a single-threaded index.
pub(super) fn find<'r>(
    report: &'r Value,
    index: &str,
    threads: u64,
    distribution: &str,
) -> Option<&'r Value> {
    report["runs"].as_array()?.iter().find(|run| {
        run["index"] == index
            && run["threads"] == threads
            && (distribution.is_empty() || run["distribution"]["name"] == distribution)
    })
}

/// Returns the measured row of an operation.
pub(super) fn row<'r>(run: &'r Value, op: &str) -> Option<&'r Value> {
    run["phases"].as_array()?.iter().find(|row| row["op"] == op)
}

/// A number with three digits.
fn three(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.0995 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::figures::PAPERS;
    use super::super::plan::PLAN;
    use super::*;

    #[test]
    fn figures_refer_to_measurements_that_are_made() {
        for figure in PAPERS.iter().flat_map(|paper| paper.figures) {
            let others = figure.columns.iter().filter_map(|column| column.from);
            for name in others.chain([figure.from]) {
                let plan = PLAN.iter().find(|m| m.name == name);
                let plan = plan.unwrap_or_else(|| panic!("{}: no {name}", figure.name));
                for index in figure.rows {
                    let known = plan.index.split(',').any(|other| other == *index);
                    assert!(known || name != figure.from, "{}: {index}", figure.name);
                }
            }
        }
    }

    #[test]
    fn cells_are_the_figures_of_their_runs() {
        let run = |index: &str, threads: u64, mops: f64| {
            json!({
                "index": index, "threads": threads, "distribution": { "name": "uniform" },
                "pm_bytes_per_record": 26.5,
                "phases": [{
                    "op": "get", "mops": mops, "flushed_lines_per_op": 2.0, "fences_per_op": 1.5,
                    "latency_ns": { "p99": 1500 },
                }],
            })
        };
        let runs = [run("a", 1, 2.0), run("a", 2, 3.0), run("b", 1, 8.0)];
        let report = json!({ "runs": runs });
        let show = |show: Show, threads: u64, index: &str| {
            let column = Column { head: "", show, threads, from: None };
            let figure = Figure {
                name: "",
                claim: "",
                word: "",
                from: "x",
                distribution: "uniform",
                rows: &[],
                columns: &[],
            };
            cell(&figure, &column, &report, index, Path::new("none")).expect("a cell")
        };
        assert_eq!(show(Show::Rate("get"), 1, "a"), "2.00");
        assert_eq!(show(Show::Over("get", "a"), 1, "b"), "4.00x");
        assert_eq!(show(Show::Scaling("get"), 2, "a"), "1.50x");
        assert_eq!(show(Show::Lines("get"), 1, "a"), "2.00 / 1.50");
        assert_eq!(show(Show::Micros("get", "p99"), 1, "a"), "1.50");
        assert_eq!(show(Show::Field("pm_bytes_per_record"), 1, "a"), "26.5");
        assert_eq!(show(Show::Rate("scan"), 1, "a"), "-");
        assert_eq!(show(Show::Rate("get"), 2, "b"), "-");
    }
}
