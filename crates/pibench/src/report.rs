//! The report of a measurement: the stable JSON of `pmindex bench --json`, and CSV.
//!
//! `docs/bench-schema.md` documents this module for readers of the JSON. Fields are added, never renamed or
//! removed; a value that could not be measured is null.

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
    /// The version of the schema; a reader refuses a later one.
    pub schema: u32,
    /// The machine.
    pub environment: Environment,
    /// One run for each index and each combination of settings.
    pub runs: Vec<Run>,
}

/// The present version of the schema of [`Report`].
pub const SCHEMA: u32 = 2;

/// The measurement of one index.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// Its name.
    pub index: String,
    /// `true` for another store, measured for comparison.
    #[serde(default)]
    pub peer: bool,
    /// The number of threads that ran its operations.
    pub threads: usize,
    /// `true` if each thread stayed on a core of its own.
    pub pinned: bool,
    /// `true` if an additional thread did the background work of the index.
    #[serde(default)]
    pub background: bool,
    /// The number of records loaded before the other phases.
    pub records: u64,
    /// `flush`, `fence`, `journal`, `msync`, `periodic`, `process` or `volatile`; for a peer, its own setting
    /// in a word.
    pub durability: String,
    /// The same in a sentence.
    pub durability_words: String,
    /// The additional nanoseconds of each flushed line, to emulate slower media; 0: none.
    pub write_latency_ns: u64,
    /// The distribution by which records were chosen.
    pub distribution: Chosen,
    /// The type and lengths of keys.
    pub key: Field,
    /// The type and lengths of values.
    pub value: Field,
    /// The number of records that a scan reads.
    pub scan_length: usize,
    /// The number of operations in a call of `get_many` or `insert_many`.
    pub batch: usize,
    /// The seed of all choices.
    pub seed: u64,
    /// The phases and mixes, in the order in which they ran.
    pub phases: Vec<PhaseRow>,
    /// PM per record after loading, in bytes; 0 for an index without PM.
    pub pm_bytes_per_record: Option<f64>,
    /// DRAM per record after loading, in bytes.
    pub dram_bytes_per_record: Option<f64>,
    /// Time from an unclean end to a usable index, in milliseconds; null if nothing survives.
    pub recovery_ms: Option<f64>,
    /// Time from opening a closed pool to a usable index, in milliseconds; null without a pool.
    #[serde(default)]
    pub clean_open_ms: Option<f64>,
}

/// The distribution by which records were chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Chosen {
    /// `uniform`, `zipfian`, `self-similar` or `monotonic`.
    pub name: String,
    /// Its skew, if it has one.
    pub skew: Option<f64>,
}

impl From<Distribution> for Chosen {
    fn from(distribution: Distribution) -> Self {
        Self { name: distribution.name().into(), skew: distribution.skew() }
    }
}

/// The type and lengths of keys or values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// `u64` or `bytes`.
    pub kind: String,
    /// The minimum length in bytes.
    pub min_bytes: usize,
    /// The maximum length in bytes.
    pub max_bytes: usize,
    /// The common prefix.
    pub prefix: String,
    /// The file they come from; null if they are generated.
    pub file: Option<String>,
}

impl Field {
    /// Returns the field of 8-byte integers.
    #[must_use]
    pub fn integer() -> Self {
        Self { kind: "u64".into(), min_bytes: 8, max_bytes: 8, ..Self::default() }
    }

    /// Returns the length, or the range of lengths, as text.
    #[must_use]
    pub fn bytes(&self) -> String {
        match (self.min_bytes, self.max_bytes) {
            (min, max) if min == max => max.to_string(),
            (min, max) => format!("{min}-{max}"),
        }
    }
}

/// The row of one phase or mix of one index.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PhaseRow {
    /// The operation, or the name of the mix as given.
    pub op: String,
    /// The shares of a mix, in parts of their sum; for one operation 100.
    pub mix: BTreeMap<String, u32>,
    /// The number of records that existed when it began; null in reports of earlier versions.
    #[serde(default)]
    pub live_records: Option<u64>,
    /// Operations in all chunks.
    pub ops: u64,
    /// Time of all chunks in seconds.
    pub seconds: f64,
    /// Million operations per second: the median of the chunks.
    pub mops: f64,
    /// Million operations per second of each chunk.
    pub chunks_mops: Vec<f64>,
    /// Million operations per second in each 100 ms of its running time.
    pub windows_mops: Vec<f64>,
    /// The standard deviation of `windows_mops`.
    pub window_stddev: f64,
    /// Times of single calls, in a round of their own; null without that round.
    pub latency_ns: Option<Latency>,
    /// Lines flushed per operation, counted separately from the timing; null if not counted.
    pub flushed_lines_per_op: Option<f64>,
    /// Fences per operation, counted likewise.
    pub fences_per_op: Option<f64>,
    /// Bytes that the medium writes per operation, in units of 256, counted likewise.
    pub media_write_bytes_per_op: Option<f64>,
    /// Hardware counters; null if the system grants none.
    pub counters: Option<Counters>,
}

/// Groups runs that differ only in the index. They are adjacent; a new series begins where an index occurs
/// again, or where the records, their choice or the medium change.
#[must_use]
pub fn series(runs: &[Run]) -> Vec<&[Run]> {
    let mut series = Vec::new();
    let mut start = 0;
    for at in 1..=runs.len() {
        let again = |run: &Run| {
            runs[start..at].iter().any(|other| other.index == run.index || !other.is_beside(run))
        };
        if runs.get(at).is_none_or(again) {
            series.push(&runs[start..at]);
            start = at;
        }
    }
    series
}

impl Report {
    /// Returns a report without runs, of this machine.
    #[must_use]
    pub fn here() -> Self {
        Self { schema: SCHEMA, environment: Environment::here(), runs: Vec::new() }
    }
}

impl Run {
    /// Returns the run of a measured subject with its throughput; the caller fills in the rest.
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

    /// Returns `true` if the run of another index has the same records, chosen alike, on the same medium.
    fn is_beside(&self, other: &Self) -> bool {
        let same = |run: &Self| (run.records, run.write_latency_ns);
        same(self) == same(other)
            && (&self.key, &self.value) == (&other.key, &other.value)
            && self.distribution == other.distribution
    }

    /// Returns the bytes per record in PM and in DRAM. `None` if they are unknown, or less than the record itself
    /// has: then loading used memory that the process had already.
    #[must_use]
    pub fn memory(&self) -> Option<(f64, f64)> {
        let (pm, dram) = (self.pm_bytes_per_record?, self.dram_bytes_per_record?);
        let least = u32::try_from(self.key.min_bytes + self.value.min_bytes).unwrap_or(u32::MAX);
        (pm + dram >= f64::from(least)).then_some((pm, dram))
    }

    /// Returns the row of a phase.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> Option<&PhaseRow> {
        self.row(phase.name())
    }

    /// Returns the row of a phase or mix by name.
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
            live_records: Some(result.live),
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

    /// Returns the least and the greatest rate of its chunks, in million operations per second; `None` without
    /// chunks.
    #[must_use]
    pub fn spread(&self) -> Option<(f64, f64)> {
        let least = self.chunks_mops.iter().copied().reduce(f64::min)?;
        Some((least, self.chunks_mops.iter().copied().fold(least, f64::max)))
    }

    /// Returns the mean time of a chunk in seconds; `None` without chunks.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a few chunks")]
    pub fn chunk_seconds(&self) -> Option<f64> {
        let chunks = self.chunks_mops.len();
        (chunks > 0).then(|| self.seconds / chunks as f64)
    }

    /// Sets the counts of `ops` operations on a counting medium.
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
        let slower = |index: &str| Run { write_latency_ns: 300, ..run(index) };
        assert_eq!(series(&[run("a"), slower("b"), slower("c")]).len(), 2);
        assert!(series(&[]).is_empty());
    }

    #[test]
    fn a_record_takes_no_less_than_its_bytes() {
        let run = |pm, dram| Run {
            key: Field::integer(),
            value: Field::integer(),
            pm_bytes_per_record: Some(pm),
            dram_bytes_per_record: dram,
            ..Run::default()
        };
        assert_eq!(run(25.0, Some(0.5)).memory(), Some((25.0, 0.5)));
        assert_eq!(run(0.0, Some(29.0)).memory(), Some((0.0, 29.0)));
        assert_eq!(run(0.0, Some(0.03)).memory(), None);
        assert_eq!(run(25.0, None).memory(), None);
    }
}
