//! The sections of a chapter: the charts of its runs.

use std::fmt::Write;

use super::chapter::{Chapter, Series};
use super::charts::{Axes, Bar, Curve, Scale, bars, curves, mops};
use super::palette::Palette;
use super::scale::{rate_mark, short, three, time, time_mark};
use super::svg::escape;
use crate::probe::Latency;
use crate::report::{PhaseRow, Run};
use crate::yardstick::Yardstick;

/// The operations in the order of their importance to readers; others follow.
const ORDER: [&str; 8] =
    ["get", "insert", "scan", "update", "delete", "get_miss", "get_many", "insert_many"];
/// The number of operations that have charts of threads, skew and latency, and appear in chapters after the
/// first.
const MAIN: usize = 4;

/// Returns all sections for which the runs have figures; in chapters after the first only those of the main
/// operations. The report behind the page has all figures.
pub(super) fn all(chapter: &Chapter<'_>, palette: &Palette, first: bool) -> String {
    let Some(base) = chapter.series.first() else { return String::new() };
    let (mut phases, mixes): (Vec<&str>, Vec<&str>) =
        ops(&chapter.series).into_iter().partition(|op| !is_mix(base, op));
    let place = |op: &&str| ORDER.iter().position(|known| known == op).unwrap_or(ORDER.len());
    phases.sort_by_key(place);
    let main: Vec<&str> = phases.iter().copied().filter(|op| place(op) < MAIN).collect();
    let main = if main.is_empty() { phases.clone() } else { main };
    let drawn = if first { &phases } else { &main };
    let compared = if base.runs.iter().any(|run| run.index == Yardstick::NAME) {
        " The dotted line and the last column compare with BTreeMap, which is volatile."
    } else {
        ""
    };
    let hint = format!("{}.{compared} Whiskers: deviation between 100 ms windows.", about(base));
    let mut html =
        section("Throughput", &hint, drawn.iter().filter_map(|op| throughput(base, op, palette)));
    html += &section(
        "Memory and recovery",
        "What a record takes after loading, key and value included: in persistent memory or files (full \
         colour) and in DRAM (pale). A missing bar: loading used memory that another index had freed, so its \
         size is unknown. How long it takes from SIGKILL of a writing process to a usable \
         index, on a logarithmic axis.",
        [memory(base, palette), recovery(base, palette)].into_iter().flatten(),
    );
    html += &section(
        "Mixes",
        &format!("{}. What a mix consists of stands beside its name, in percent.", about(base)),
        mixes.iter().filter_map(|op| throughput(base, op, palette)),
    );
    html += &threads(chapter, &main, palette);
    html += &distributions(chapter, &main, palette);
    let latency = main.iter().filter_map(|op| latencies(base, op, palette));
    let words = "How long the slowest calls take, by percentile: a call in ten is slower than 90 %, \
                 one in a thousand slower than 99.9 %. A scan reads its whole range.";
    html += &section("Latency", words, latency);
    html + &costs(base, palette)
}

fn section(title: &str, hint: &str, figures: impl Iterator<Item = String>) -> String {
    let figures: String = figures.collect();
    if figures.is_empty() {
        return String::new();
    }
    let (title, hint) = (escape(title), escape(hint));
    format!("<h3>{title}</h3><p class=\"hint\">{hint}</p><div class=\"grid\">{figures}</div>")
}

fn figure(caption: &str, small: &str, chart: &str) -> String {
    let (caption, small) = (escape(caption), escape(small));
    let small = if small.is_empty() { String::new() } else { format!("<small>{small}</small>") };
    format!("<figure><figcaption>{caption}{small}</figcaption>{chart}</figure>")
}

/// Describes the conditions of a series.
fn about(series: &Series<'_>) -> String {
    format!("{}, {}", threads_of(series), distribution(series))
}

fn threads_of(series: &Series<'_>) -> String {
    match series.threads {
        1 => "One thread".to_owned(),
        n => format!("{n} threads"),
    }
}

fn distribution(series: &Series<'_>) -> String {
    let name = &series.distribution.name;
    series.distribution.skew.map_or_else(|| name.clone(), |skew| format!("{name} {skew}"))
}

/// Returns the names of all rows, in order.
fn ops<'r>(series: &[Series<'r>]) -> Vec<&'r str> {
    let mut ops: Vec<&str> = Vec::new();
    for row in series.iter().flat_map(|s| &s.runs).flat_map(|run| &run.phases) {
        if !ops.contains(&row.op.as_str()) {
            ops.push(&row.op);
        }
    }
    ops
}

fn is_mix(series: &Series<'_>, op: &str) -> bool {
    let row = series.runs.iter().find_map(|run| run.row(op));
    row.is_some_and(|row| row.mix.len() > 1 || row.mix.keys().any(|phase| phase != op))
}

/// Describes the shares of a mix.
fn shares(row: &PhaseRow) -> String {
    let shares = row.mix.iter().map(|(phase, share)| format!("{share} {phase}"));
    if row.mix.len() > 1 { shares.collect::<Vec<_>>().join(", ") } else { String::new() }
}

fn throughput(series: &Series<'_>, op: &str, palette: &Palette) -> Option<String> {
    let rows: Vec<(&Run, &PhaseRow)> =
        series.runs.iter().filter_map(|run| Some((*run, run.row(op)?))).collect();
    let base = rows.iter().find(|(run, _)| run.index == Yardstick::NAME).map(|(_, row)| row.mops);
    let most = rows.iter().map(|(_, row)| row.mops + row.window_stddev).fold(0.0, f64::max);
    let (factor, unit) = match most {
        most if most >= 1.0 => (1.0, "million operations a second"),
        most if most >= 1e-3 => (1e3, "thousand operations a second"),
        _ => (1e6, "operations a second"),
    };
    let bar = |(run, row): &(&Run, &PhaseRow)| {
        let ratio = base.filter(|base| *base > 0.0 && run.index != Yardstick::NAME);
        let ratio = ratio.map_or(String::new(), |base| format!("{}×", three(row.mops / base)));
        let title = format!(
            "{}: {} operations a second, deviation {}\n{}",
            run.index,
            mops(row.mops),
            mops(row.window_stddev),
            standing(run)
        );
        Bar {
            index: run.index.clone(),
            label: run.index.clone(),
            parts: vec![(row.mops, palette.of(&run.index).into())],
            spread: row.window_stddev,
            value: mops(row.mops),
            ratio,
            title,
        }
    };
    let drawn: Vec<Bar> = rows.iter().map(bar).collect();
    let small = rows.first().map(|(_, row)| shares(row)).unwrap_or_default();
    let name = format!("{op}: operations a second");
    let scale = Scale { name: &name, unit, log: false, tick: &|mops| short(mops * factor) };
    let chart = bars(&scale, &drawn, base);
    (!drawn.is_empty()).then(|| figure(op, &small, &chart))
}

/// Describes in a word or two what a run of an index survives.
fn standing(run: &Run) -> String {
    match run.durability.as_str() {
        "volatile" => "volatile: nothing survives the process".into(),
        mode if run.peer => format!("{mode} at each commit"),
        mode => format!("durability {mode}"),
    }
}

/// Charts throughput against threads, for each distribution that was measured with several numbers.
fn threads(chapter: &Chapter<'_>, ops: &[&str], palette: &Palette) -> String {
    let mut html = String::new();
    let mut seen = Vec::new();
    for first in &chapter.series {
        if seen.contains(&first.distribution) {
            continue;
        }
        seen.push(first.distribution);
        let mut same: Vec<&Series<'_>> =
            chapter.series.iter().filter(|s| s.distribution == first.distribution).collect();
        same.sort_by_key(|series| series.threads);
        if same.len() < 2 {
            continue;
        }
        let places: Vec<String> = same.iter().map(|series| series.threads.to_string()).collect();
        let keep = |run: &Run, at: usize| run.threads == same[at].threads;
        let figures = lines((&same, ops), &places, "threads", palette, &keep);
        let hint = format!(
            "Operations a second with {} threads, {}.",
            places.join(", "),
            distribution(first)
        );
        html += &section("Scaling with threads", &hint, figures.into_iter());
    }
    html
}

/// Charts throughput against distributions, for each number of threads that was measured with several.
fn distributions(chapter: &Chapter<'_>, ops: &[&str], palette: &Palette) -> String {
    let mut html = String::new();
    let mut seen = Vec::new();
    for first in &chapter.series {
        if seen.contains(&first.threads) {
            continue;
        }
        seen.push(first.threads);
        let same: Vec<&Series<'_>> =
            chapter.series.iter().filter(|s| s.threads == first.threads).collect();
        if same.len() < 2 {
            continue;
        }
        let places: Vec<String> = same.iter().map(|series| distribution(series)).collect();
        let figures = lines((&same, ops), &places, "distribution", palette, &|_, _| true);
        let threads = threads_of(first);
        let hint = format!("{threads}; how records are chosen changes what is in the caches.");
        html += &section("Skew", &hint, figures.into_iter());
    }
    html
}

/// Draws a chart for each of these operations, over several series.
fn lines(
    (series, ops): (&[&Series<'_>], &[&str]),
    places: &[String],
    what: &str,
    palette: &Palette,
    keep: &dyn Fn(&Run, usize) -> bool,
) -> Vec<String> {
    let Some(first) = series.first() else { return Vec::new() };
    let chart = |op: &&str| {
        let drawn: Vec<Curve> = first
            .runs
            .iter()
            .map(|run| {
                let point = |(at, series): (usize, &&Series<'_>)| {
                    let run = series.runs.iter().find(|other| other.index == run.index)?;
                    Some((at, run.row(op)?.mops)).filter(|_| keep(run, at))
                };
                Curve {
                    index: run.index.clone(),
                    label: run.index.clone(),
                    colour: palette.of(&run.index).into(),
                    dashed: run.peer,
                    points: series.iter().enumerate().filter_map(point).collect(),
                }
            })
            .filter(|curve| curve.points.len() > 1)
            .collect();
        let name = format!("{op} by {what}");
        let up = "operations a second";
        let unit = |value: f64| rate_mark(value * 1e6);
        let axes = Axes { name: &name, places, across: what, up, log: false, unit };
        (!drawn.is_empty()).then(|| figure(op, "", &curves(&axes, &drawn)))
    };
    ops.iter().filter_map(chart).collect()
}

fn latencies(series: &Series<'_>, op: &str, palette: &Palette) -> Option<String> {
    let names = ["50 %", "90", "99", "99.9", "99.99", "99.999"];
    let points = |latency: &Latency| -> Vec<(usize, f64)> {
        let values = [
            Some(latency.p50),
            latency.p90,
            latency.p99,
            latency.p99_9,
            latency.p99_99,
            latency.p99_999,
        ];
        #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a call")]
        let point = |(at, value): (usize, Option<u64>)| Some((at, value? as f64));
        values.into_iter().enumerate().filter_map(point).collect()
    };
    let curve = |run: &&Run| {
        Some(Curve {
            index: run.index.clone(),
            label: run.index.clone(),
            colour: palette.of(&run.index).into(),
            dashed: run.peer,
            points: points(run.row(op)?.latency_ns.as_ref()?),
        })
    };
    let drawn: Vec<Curve> = series.runs.iter().filter_map(curve).collect();
    let last = drawn.iter().flat_map(|curve| curve.points.iter().map(|point| point.0)).max()?;
    let places: Vec<String> = names[..=last].iter().map(|name| (*name).to_owned()).collect();
    let name = format!("{op}: latency by percentile");
    let (across, up) = ("percentile", "time of a call, log scale");
    let axes = Axes { name: &name, places: &places, across, up, log: true, unit: time_mark };
    Some(figure(op, "", &curves(&axes, &drawn)))
}

fn memory(series: &Series<'_>, palette: &Palette) -> Option<String> {
    let bar = |run: &&Run| {
        let (pm, dram) = run.memory()?;
        let colour = palette.of(&run.index);
        let value = match (pm >= 0.05, dram >= 0.05) {
            (true, true) => format!("{} + {} B", three(pm), three(dram)),
            (true, false) => format!("{} B", three(pm)),
            _ => format!("{} B DRAM", three(dram)),
        };
        Some(Bar {
            index: run.index.clone(),
            label: run.index.clone(),
            parts: vec![(pm, colour.into()), (dram, format!("{colour}66"))],
            spread: 0.0,
            title: format!("{}: {} bytes stored, {} in DRAM", run.index, three(pm), three(dram)),
            value,
            ratio: String::new(),
        })
    };
    let drawn: Vec<Bar> = series.runs.iter().filter_map(bar).collect();
    let scale =
        Scale { name: "bytes per record", unit: "bytes a record", log: false, tick: &short };
    let chart = bars(&scale, &drawn, None);
    (!drawn.is_empty()).then(|| figure("Memory of a record", "stored + DRAM", &chart))
}

fn recovery(series: &Series<'_>, palette: &Palette) -> Option<String> {
    let bar = |run: &&Run| {
        let ms = run.recovery_ms?;
        let value = time(ms * 1e6);
        Some(Bar {
            index: run.index.clone(),
            label: run.index.clone(),
            parts: vec![(ms, palette.of(&run.index).into())],
            spread: 0.0,
            title: format!("{}: usable {value} after SIGKILL", run.index),
            value,
            ratio: String::new(),
        })
    };
    let drawn: Vec<Bar> = series.runs.iter().filter_map(bar).collect();
    let tick = |ms: f64| time_mark(ms * 1e6);
    let unit = "time until usable, log scale";
    let scale = Scale { name: "recovery after SIGKILL", unit, log: true, tick: &tick };
    let chart = bars(&scale, &drawn, None);
    (!drawn.is_empty()).then(|| figure("Usable again after SIGKILL", "log scale", &chart))
}

/// Draws lines, fences and media bytes of every counted operation.
fn costs(series: &Series<'_>, palette: &Palette) -> String {
    let counted = |run: &Run| run.phases.iter().any(|row| row.fences_per_op.is_some());
    let runs: Vec<&Run> = series.runs.iter().copied().filter(|run| counted(run)).collect();
    let writes = |op: &&str| {
        let fences = runs.iter().filter_map(|run| run.row(op)?.fences_per_op);
        fences.fold(0.0, f64::max) > 0.0
    };
    let ops: Vec<&str> = ops(std::slice::from_ref(series)).into_iter().filter(writes).collect();
    if ops.is_empty() {
        return String::new();
    }
    let heads: Vec<String> = ops.iter().map(|op| escape(op)).collect();
    let heads = heads.join("</th><th>");
    let mut rows = String::new();
    for run in runs {
        let cell = |op: &&str| {
            let row = run.row(op)?;
            let (lines, fences) = (row.flushed_lines_per_op?, row.fences_per_op?);
            let media = row.media_write_bytes_per_op.map_or("-".into(), three);
            Some(format!("<td>{} / {} <small>{media} B</small></td>", three(lines), three(fences)))
        };
        let cells: String = ops.iter().map(|op| cell(op).unwrap_or("<td>-</td>".into())).collect();
        let (index, colour) = (escape(&run.index), palette.of(&run.index));
        let _ = write!(
            rows,
            r#"<tr class="of" data-of="{index}"><td><i style="background:{colour}"></i>{index}</td>{cells}</tr>"#
        );
    }
    format!(
        "<h3>What a write costs</h3><p class=\"hint\">Lines flushed / fences per operation, splits \
         included, and bytes that a medium with 256-byte units writes.</p>\
         <div class=\"scroll\"><table><tr><th></th><th>{heads}</th></tr>{rows}</table></div>"
    )
}
