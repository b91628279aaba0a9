//! Chapters: runs that can be compared, because they have the same keys, values, number of records and
//! medium.

use super::scale::thousands;
use crate::report::{Chosen, Field, Run, series};

/// Runs of the same records on the same medium.
pub(super) struct Chapter<'r> {
    /// Runs with different threads or distributions; the first is the simplest.
    pub(super) series: Vec<Series<'r>>,
}

/// Runs that differ only in the index.
pub(super) struct Series<'r> {
    /// The requested number of threads.
    pub(super) threads: usize,
    pub(super) distribution: &'r Chosen,
    pub(super) runs: Vec<&'r Run>,
}

/// The settings that all runs of a chapter share.
#[derive(PartialEq)]
struct Common<'r> {
    key: &'r Field,
    value: &'r Field,
    records: u64,
    write_latency_ns: u64,
    durability: &'r str,
}

/// Returns all chapters, in the order of the report.
pub(super) fn chapters(runs: &[Run]) -> Vec<Chapter<'_>> {
    let mut chapters: Vec<(Common<'_>, Chapter<'_>)> = Vec::new();
    for runs in series(runs) {
        let Some(first) = runs.first() else { continue };
        let durable = runs.iter().find(|run| super::is_persistent(run));
        let common = Common {
            key: &first.key,
            value: &first.value,
            records: first.records,
            write_latency_ns: first.write_latency_ns,
            durability: durable.map_or("volatile", |run| run.durability.as_str()),
        };
        let threads = runs.iter().map(|run| run.threads).max().unwrap_or(1);
        let distribution = &first.distribution;
        let known = chapters.iter().position(|(other, _)| *other == common);
        let at = known.unwrap_or(chapters.len());
        if known.is_none() {
            chapters.push((common, Chapter { series: Vec::new() }));
        }
        let chapter = &mut chapters[at].1;
        let same = |s: &Series<'_>| s.threads == threads && s.distribution == distribution;
        let known = chapter.series.iter().position(same);
        let at = known.unwrap_or(chapter.series.len());
        if known.is_none() {
            chapter.series.push(Series { threads, distribution, runs: Vec::new() });
        }
        let series = &mut chapter.series[at];
        for run in runs {
            if series.runs.iter().all(|other| other.index != run.index) {
                series.runs.push(run);
            }
        }
    }
    chapters.into_iter().map(|(_, chapter)| chapter).collect()
}

impl Chapter<'_> {
    /// Describes its records.
    pub(super) fn title(&self) -> String {
        let Some(run) = self.first() else { return String::new() };
        let what = match &run.key.file {
            Some(_) => "words".to_owned(),
            None if run.key.bytes() == run.value.bytes() => {
                format!("records of {}-byte keys and values", run.key.bytes())
            }
            None => {
                let (key, value) = (run.key.bytes(), run.value.bytes());
                format!("records of {key}-byte keys and {value}-byte values")
            }
        };
        let latency = match run.write_latency_ns {
            0 => String::new(),
            ns => format!(", {ns} ns added to each flushed line"),
        };
        let mode = match run.durability.as_str() {
            "process" => ", without flushes",
            _ => "",
        };
        // The last digit only keeps chapters of other indexes apart.
        format!("{} {what}{latency}{mode}", thousands(run.records / 10 * 10))
    }

    /// Returns the names of its indexes, each once.
    pub(super) fn indexes(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for run in self.series.iter().flat_map(|series| &series.runs) {
            if !names.contains(&run.index.as_str()) {
                names.push(&run.index);
            }
        }
        names
    }

    /// Describes its medium.
    pub(super) fn note(&self) -> String {
        let runs = self.series.iter().flat_map(|series| &series.runs);
        let durable = runs.copied().find(|run| super::is_persistent(run));
        let Some(run) = durable.or_else(|| self.first()) else { return String::new() };
        let mut note = format!("Durability {}: {}", run.durability, run.durability_words);
        if let Some(file) = &run.key.file {
            let bytes = run.value.bytes();
            note = format!("Keys from {file}, values of {bytes} bytes. {note}");
        }
        note += &self.others();
        if self.series.iter().flat_map(|series| &series.runs).any(|run| run.peer) {
            note += " Dashed curves are other libraries.";
        }
        note
    }

    /// Describes the promises of peers, and of indexes in volatile memory.
    fn others(&self) -> String {
        let mut modes: Vec<(&str, Vec<&str>)> = Vec::new();
        for run in self.series.iter().flat_map(|series| &series.runs) {
            if super::is_persistent(run) {
                continue;
            }
            let words = run.durability_words.as_str();
            let known = modes.iter().position(|(other, _)| *other == words);
            let at = known.unwrap_or(modes.len());
            if known.is_none() {
                modes.push((words, Vec::new()));
            }
            let indexes = &mut modes[at].1;
            if !indexes.contains(&run.index.as_str()) {
                indexes.push(&run.index);
            }
        }
        modes.iter().fold(String::new(), |text, (words, indexes)| {
            format!("{text} {}: {words}.", indexes.join(", "))
        })
    }

    fn first(&self) -> Option<&Run> {
        self.series.first().and_then(|series| series.runs.first().copied())
    }
}
