//! What a measurement is written down as: the stable JSON of `pmindex bench --json`.

use serde::Serialize;

use crate::measure::{Measured, PhaseResult};
use crate::phase::Phase;
use crate::subject::Counts;

/// All runs of one measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// One for each index.
    pub runs: Vec<Run>,
}

/// One index, measured.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Its name.
    pub index: String,
    /// Threads that ran its operations.
    pub threads: usize,
    /// Records loaded before the other phases.
    pub records: u64,
    /// `flush`, `fence`, `msync`, `process` or `volatile`.
    pub durability: String,
    /// The phases, in the order they ran.
    pub phases: Vec<PhaseRow>,
    /// PM per record after all phases, in bytes; 0 for an index that has none.
    pub pm_bytes_per_record: Option<f64>,
    /// DRAM per record after all phases, in bytes.
    pub dram_bytes_per_record: Option<f64>,
    /// Time from an unclean end to a usable index, in milliseconds; null if nothing survives.
    pub recovery_ms: Option<f64>,
}

/// One phase of one index.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseRow {
    /// Which operation.
    pub op: Phase,
    /// Operations in all chunks.
    pub ops: u64,
    /// Time of all chunks in seconds.
    pub seconds: f64,
    /// Million operations a second, the median of the chunks.
    pub mops: f64,
    /// Lines flushed per operation, counted exactly apart from the timing; null if not counted.
    pub flushed_lines_per_op: Option<f64>,
    /// Fences per operation, counted likewise.
    pub fences_per_op: Option<f64>,
    /// Million operations a second of each chunk.
    pub chunks_mops: Vec<f64>,
}

impl Run {
    /// The throughput of a measured subject; sizes and recovery are filled in by who knows them.
    #[must_use]
    pub fn new(measured: &Measured, records: u64, durability: &str) -> Self {
        Self {
            index: measured.name.clone(),
            threads: measured.threads,
            records,
            durability: durability.into(),
            phases: measured.phases.iter().map(PhaseRow::new).collect(),
            pm_bytes_per_record: None,
            dram_bytes_per_record: None,
            recovery_ms: None,
        }
    }

    /// The row of a phase.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> Option<&PhaseRow> {
        self.phases.iter().find(|row| row.op == phase)
    }
}

impl PhaseRow {
    fn new(result: &PhaseResult) -> Self {
        Self {
            op: result.phase,
            ops: result.ops,
            seconds: result.time.as_secs_f64(),
            mops: result.mops(),
            flushed_lines_per_op: None,
            fences_per_op: None,
            chunks_mops: result.chunks.clone(),
        }
    }

    /// Notes what `ops` operations under a counting medium came to.
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn set_counts(&mut self, counts: Counts, ops: u64) {
        let per_op = |count: u64| Some(count as f64 / ops.max(1) as f64);
        self.flushed_lines_per_op = per_op(counts.flushed_lines);
        self.fences_per_op = per_op(counts.fences);
    }
}
