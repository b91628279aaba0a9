//! One self-contained HTML page of a report: charts in SVG, without network access, in light and dark.
//!
//! The charts are drawn here, in two hundred lines of `charts`, not by a crate: available crates either
//! embed a megabyte of JavaScript in the page, or use fixed colours and fonts, so that the page could
//! neither follow a dark screen nor highlight one index in all charts.

mod chapter;
mod charts;
mod palette;
mod scale;
mod sections;
mod svg;

use std::fmt::Write;

use crate::report::{Report, Run};
use chapter::Chapter;
use palette::Palette;
use scale::{thousands, three};
use svg::escape;

/// The page's style sheet.
const STYLE: &str = include_str!("page.css");
/// Highlights one index in all charts.
const SCRIPT: &str = include_str!("page.js");

/// Returns the page.
#[must_use]
pub fn page(report: &Report) -> String {
    let palette = Palette::new(&report.runs);
    let chapters = chapter::chapters(&report.runs);
    let mut body = header(report);
    body += &legend(&palette);
    let _ = write!(body, "<main>{}", highlights(report, &chapters));
    for (number, chapter) in chapters.iter().enumerate() {
        let (title, note) = (escape(&chapter.title()), escape(&chapter.note()));
        let indexes = escape(&chapter.indexes().join(", "));
        let sections = sections::all(chapter, &palette, number == 0);
        // The other chapters are folded.
        let open = if number == 0 { " open" } else { "" };
        let _ = write!(
            body,
            r#"<details id="c{number}"{open}><summary><div><h2>{title}</h2><small>{indexes}</small></div></summary><p class="note">{note}</p>{sections}</details>"#,
        );
    }
    body += "</main>";
    body += &footer(report);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>pmindex, measured</title><style>{STYLE}</style></head>\n\
         <body>{body}<script>{SCRIPT}</script></body></html>\n"
    )
}

fn header(report: &Report) -> String {
    let here = &report.environment;
    let mut facts = Vec::new();
    if !here.cpu.is_empty() {
        facts.push(format!("{}, {} cores", here.cpu, here.cores));
    }
    facts.push(format!("{} GiB", here.memory_bytes >> 30));
    facts.push(here.system.clone());
    if !here.tmpfs_huge_pages.is_empty() {
        facts.push(format!("huge pages on tmpfs: {}", here.tmpfs_huge_pages));
    }
    facts.push(format!("pmindex {} {} ({})", here.version, here.commit, here.build));
    let facts: Vec<String> =
        facts.iter().map(|fact| format!("<li>{}</li>", escape(fact.trim()))).collect();
    format!(
        "<header><h1>pmindex, measured</h1><p>Ordered indexes in persistent memory, in turns on one \
         machine. Figures carry over to other machines as ratios, not as numbers.</p>\
         <ul class=\"facts\">{}</ul></header>",
        facts.concat()
    )
}

/// Draws the indexes with their colours; each can be highlighted.
fn legend(palette: &Palette) -> String {
    let mut chips = String::new();
    for (index, colour) in palette.all() {
        let index = escape(index);
        let _ = write!(
            chips,
            r#"<button data-of="{index}"><i style="background:{colour}"></i>{index}</button>"#
        );
    }
    format!("<nav aria-label=\"Indexes\">{chips}</nav>")
}

/// Draws the most important figures of the first chapter: the best persistent index for each.
fn highlights(report: &Report, chapters: &[Chapter<'_>]) -> String {
    let Some(base) = chapters.first().and_then(|chapter| chapter.series.first()) else {
        return String::new();
    };
    let ours: Vec<&Run> = base.runs.iter().copied().filter(|run| is_persistent(run)).collect();
    let yardstick = base.runs.iter().find(|run| run.index == crate::yardstick::Yardstick::NAME);
    let mut cards = String::new();
    let card = |figure: &str, what: &str, why: &str| {
        let why = escape(why);
        format!("<div class=\"card\"><b>{figure}</b><span>{what}</span><small>{why}</small></div>")
    };
    for (op, what) in [
        ("get", "the lookups of BTreeMap"),
        ("insert", "the inserts of BTreeMap, each durable here"),
        ("scan", "the range scans of BTreeMap"),
        ("get_many", "the lookups of BTreeMap (one by one), in batches"),
        ("insert_many", "the inserts of BTreeMap (one by one), in durable batches"),
    ] {
        let rate = |run: &&Run| run.row(op).map_or(0.0, |row| row.mops);
        let best = ours.iter().copied().max_by(|a, b| rate(a).total_cmp(&rate(b)));
        let (Some(best), Some(base)) = (best, yardstick.map(rate)) else { continue };
        let found = rate(&best);
        if found > 0.0 && base > 0.0 {
            let why = format!("{}, fastest of {} indexes", best.index, ours.len());
            cards += &card(&format!("{}×", three(found / base)), what, &why);
        }
    }
    let recovery = ours.iter().filter_map(|run| Some((run.recovery_ms?, run)));
    if let Some((ms, run)) = recovery.min_by(|a, b| a.0.total_cmp(&b.0)) {
        let what = format!("from SIGKILL to a usable index of {} records", thousands(run.records));
        let why = format!("{}, quickest of {} indexes", run.index, ours.len());
        cards += &card(&format!("{} ms", three(ms)), &what, &why);
    }
    let debug = report.environment.build == "debug";
    let warning = if debug {
        "<p class=\"warning\">This was a debug build: the page shows what it looks like, not how \
         fast anything is.</p>"
    } else {
        ""
    };
    if cards.is_empty() {
        return warning.into();
    }
    format!(
        "{warning}<div class=\"cards\">{cards}</div><p class=\"hint\">Operations a second of one thread \
         beside those of std’s BTreeMap, which is volatile: nothing in it survives its process. Each card \
         has the index that does best at it; no index is the best at all of them.</p>"
    )
}

/// Returns `true` if an index of a run survives its process, and is not a peer.
fn is_persistent(run: &Run) -> bool {
    !run.peer && run.durability != "volatile"
}

fn footer(report: &Report) -> String {
    let runs = report.runs.len();
    let counters = &report.environment.hardware_counters;
    let counters = match counters.strip_prefix("not counted: ") {
        Some(why) => format!("Hardware events are not counted: {why}."),
        None => String::new(),
    };
    format!(
        "<footer><p>{runs} runs. Indexes take turns, chunk by chunk; a bar is the median of its \
         chunks, its whisker the standard deviation between windows of 100 ms. Keys are made \
         outside the timing. Latencies are taken in a round of their own. Lines, fences and media \
         bytes are counted on a medium that counts, not while the clock runs. {}</p></footer>",
        escape(&counters)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Chosen, PhaseRow};

    fn run(index: &str, threads: usize, distribution: &str, mops: f64) -> Run {
        let row = |op: &str| PhaseRow { op: op.into(), mops, ..PhaseRow::default() };
        Run {
            index: index.into(),
            threads,
            distribution: Chosen { name: distribution.into(), skew: None },
            durability: if index == "btreemap" { "volatile" } else { "flush" }.into(),
            phases: ["load", "get", "insert"].map(row).into(),
            recovery_ms: Some(3.0),
            ..Run::default()
        }
    }

    #[test]
    fn a_page_shows_every_index_and_asks_nothing_of_the_network() {
        let runs = vec![
            run("fptree", 1, "uniform", 4.0),
            run("<b>", 1, "uniform", 3.0),
            run("btreemap", 1, "uniform", 2.0),
            run("fptree", 2, "uniform", 7.6),
            run("<b>", 2, "uniform", 3.0),
            run("btreemap", 1, "uniform", 2.0),
        ];
        let html = page(&Report { runs, ..Report::default() });
        assert!(html.contains("data-of=\"fptree\"") && html.contains("&lt;b&gt;"));
        assert!(!html.contains("<b>\"") && !html.contains("data-of=\"<b>"));
        for outside in ["http:", "https:", "url(", "import ", "src="] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("2.00×"), "the best against the yardstick");
        assert!(html.contains("fptree, fastest of 2 indexes"), "why it stands there");
        assert!(!html.contains("durable inserts") && html.contains("which is volatile"));
        assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
        assert!(!html.contains("NaN") && !html.contains("inf"));
    }

    #[test]
    fn folded_chapters_say_what_they_compare() {
        let of = |index: &str, records| Run { records, ..run(index, 1, "uniform", 2.0) };
        let (first, second) = (1_000_000, 1_000_004);
        let runs = [("fptree", first), ("btreemap", first), ("fptree", second), ("woart", second)];
        let runs = runs.map(|(index, records)| of(index, records)).to_vec();
        let html = page(&Report { runs, ..Report::default() });
        let heading = |indexes| {
            format!(
                "1\u{202f}000\u{202f}000 records of 0-byte keys and values</h2><small>{indexes}<"
            )
        };
        assert!(html.contains(&heading("fptree, btreemap")), "{html}");
        assert!(html.contains(&heading("fptree, woart")), "{html}");
        let second = html.rsplit("<details").next().unwrap_or_default();
        assert!(!second.contains("BTreeMap"), "there is none in this chapter");
    }

    #[test]
    fn the_chart_of_distributions_names_no_single_one() {
        let of = |chosen: &str| run("fptree", 1, chosen, 2.0);
        let html = page(&Report { runs: vec![of("uniform"), of("zipfian")], ..Report::default() });
        assert!(html.contains("<h3>Skew</h3><p class=\"hint\">One thread; how records are chosen"));
    }

    #[test]
    fn a_report_of_nothing_is_a_page_of_nothing() {
        assert!(page(&Report::default()).contains("pmindex"));
    }
}
