//! What a measurement is written down as: the stable JSON of `pmindex bench --json`, and CSV.
//!
//! `docs/bench-schema.md` is this module for people who read JSON. Fields are added, never renamed
//! or removed; what could not be measured is null.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::counters::Counters;
use crate::distribution::Distribution;
use crate::environment::Environment;
use crate::measure::{Measured, StepResult};
use crate::phase::Phase;
use crate::probe::Latency;
use crate::subject::Counts;
use crate::workload::Sizes;

/// All runs of one measurement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Of this form; a reader refuses a later one.
    pub schema: u32,
    /// The machine.
    pub environment: Environment,
    /// One for each index and each setting of the others.
    pub runs: Vec<Run>,
}

/// The present form of [`Report`].
pub const SCHEMA: u32 = 2;

/// One index, measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// Its name.
    pub index: String,
    /// Whether it is no index of this workspace, measured for comparison.
    #[serde(default)]
    pub peer: bool,
    /// Threads that ran its operations.
    pub threads: usize,
    /// Whether each thread stayed on a core of its own.
    pub pinned: bool,
    /// Whether one more thread did the background work of the index.
    #[serde(default)]
    pub background: bool,
    /// Records loaded before the other phases.
    pub records: u64,
    /// `flush`, `fence`, `msync`, `process` or `volatile`; of a peer, its own setting in a word.
    pub durability: String,
    /// The same in a sentence.
    pub durability_words: String,
    /// Nanoseconds that each flushed line took longer, emulating slower media; 0: none.
    pub write_latency_ns: u64,
    /// How records were chosen.
    pub distribution: Chosen,
    /// What keys are.
    pub key: Field,
    /// What values are.
    pub value: Field,
    /// Records that a scan reads.
    pub scan_length: usize,
    /// Operations in a call of `get_many` or `insert_many`.
    pub batch: usize,
    /// Where all choices came from.
    pub seed: u64,
    /// The phases and mixes, in the order they ran.
    pub phases: Vec<PhaseRow>,
    /// PM per record after loading, in bytes; 0 for an index that has none.
    pub pm_bytes_per_record: Option<f64>,
    /// DRAM per record after loading, in bytes.
    pub dram_bytes_per_record: Option<f64>,
    /// Time from an unclean end to a usable index, in milliseconds; null if nothing survives.
    pub recovery_ms: Option<f64>,
    /// Time from opening a closed pool to a usable index, in milliseconds; null without a pool.
    #[serde(default)]
    pub clean_open_ms: Option<f64>,
}

/// How records were chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Chosen {
    /// `uniform`, `zipfian`, `self-similar` or `monotonic`.
    pub name: String,
    /// Its skew, where it has one.
    pub skew: Option<f64>,
}

impl From<Distribution> for Chosen {
    fn from(distribution: Distribution) -> Self {
        Self { name: distribution.name().into(), skew: distribution.skew() }
    }
}

/// What keys or values are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// `u64`, or `bytes`.
    pub kind: String,
    /// The shortest, in bytes.
    pub min_bytes: usize,
    /// The longest, in bytes.
    pub max_bytes: usize,
    /// What all begin with.
    pub prefix: String,
    /// The file they come from; null if they are made.
    pub file: Option<String>,
}

impl Field {
    /// 8-byte integers.
    #[must_use]
    pub fn integer() -> Self {
        Self { kind: "u64".into(), min_bytes: 8, max_bytes: 8, ..Self::default() }
    }

    /// Its length, or the range of its lengths.
    #[must_use]
    pub fn bytes(&self) -> String {
        match (self.min_bytes, self.max_bytes) {
            (min, max) if min == max => max.to_string(),
            (min, max) => format!("{min}-{max}"),
        }
    }
}

/// One phase or mix of one index.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PhaseRow {
    /// Which operation, or the mix as it was named.
    pub op: String,
    /// The shares of a mix in parts of their sum; one operation with 100 if it is none.
    pub mix: BTreeMap<String, u32>,
    /// Operations in all chunks.
    pub ops: u64,
    /// Time of all chunks in seconds.
    pub seconds: f64,
    /// Million operations a second, the median of the chunks.
    pub mops: f64,
    /// Million operations a second of each chunk.
    pub chunks_mops: Vec<f64>,
    /// Million operations a second in each 100 ms of its running time.
    pub windows_mops: Vec<f64>,
    /// Their standard deviation.
    pub window_stddev: f64,
    /// Times of single calls, in a round of their own; null if none were taken.
    pub latency_ns: Option<Latency>,
    /// Lines flushed per operation, counted exactly apart from the timing; null if not counted.
    pub flushed_lines_per_op: Option<f64>,
    /// Fences per operation, counted likewise.
    pub fences_per_op: Option<f64>,
    /// Bytes that the medium writes per operation, in units of 256, counted likewise.
    pub media_write_bytes_per_op: Option<f64>,
    /// What the CPU counted; null where the system grants no counters.
    pub counters: Option<Counters>,
}

/// The runs that differ in nothing but the index: they follow each other, and the next series
/// begins where an index comes again.
#[must_use]
pub fn series(runs: &[Run]) -> Vec<&[Run]> {
    let mut series = Vec::new();
    let mut start = 0;
    for at in 1..=runs.len() {
        let again = |run: &Run| runs[start..at].iter().any(|other| other.index == run.index);
        if runs.get(at).is_none_or(again) {
            series.push(&runs[start..at]);
            start = at;
        }
    }
    series
}

impl Report {
    /// A report of no runs yet, made here.
    #[must_use]
    pub fn here() -> Self {
        Self { schema: SCHEMA, environment: Environment::here(), runs: Vec::new() }
    }
}

impl Run {
    /// The throughput of a measured subject; the rest is filled in by who knows it.
    #[must_use]
    pub fn new(measured: &Measured, sizes: &Sizes, durability: &str) -> Self {
        Self {
            index: measured.name.clone(),
            threads: measured.threads,
            background: measured.background,
            records: sizes.records,
            durability: durability.into(),
            distribution: sizes.distribution.into(),
            key: Field::integer(),
            value: Field::integer(),
            scan_length: sizes.scan_length,
            batch: sizes.batch,
            seed: sizes.seed,
            phases: measured.steps.iter().map(PhaseRow::new).collect(),
            ..Self::default()
        }
    }

    /// The row of a phase.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> Option<&PhaseRow> {
        self.row(phase.name())
    }

    /// The row of a phase or mix by name.
    #[must_use]
    pub fn row(&self, name: &str) -> Option<&PhaseRow> {
        self.phases.iter().find(|row| row.op == name)
    }
}

impl PhaseRow {
    fn new(result: &StepResult) -> Self {
        let shares = result.step.shares().iter();
        Self {
            op: result.step.name().into(),
            mix: shares.map(|(phase, share)| (phase.name().into(), *share)).collect(),
            ops: result.ops,
            seconds: result.time.as_secs_f64(),
            mops: result.mops(),
            chunks_mops: result.chunks.clone(),
            windows_mops: result.windows.clone(),
            window_stddev: result.window_stddev(),
            latency_ns: result.latency.clone(),
            counters: result.counters,
            ..Self::default()
        }
    }

    /// Notes what `ops` operations under a counting medium came to.
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn set_counts(&mut self, counts: Counts, ops: u64) {
        let per_op = |count: u64| Some(count as f64 / ops.max(1) as f64);
        self.flushed_lines_per_op = per_op(counts.flushed_lines);
        self.fences_per_op = per_op(counts.fences);
        self.media_write_bytes_per_op = per_op(counts.media_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_ends_where_an_index_comes_again() {
        let run = |index: &str| Run { index: index.into(), ..Run::default() };
        let runs = [run("a"), run("b"), run("a"), run("b"), run("a")];
        let lengths: Vec<usize> = series(&runs).iter().map(|runs| runs.len()).collect();
        assert_eq!(lengths, [2, 2, 1]);
        assert!(series(&[]).is_empty());
    }
}
