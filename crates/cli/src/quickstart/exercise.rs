//! Runs every operation on a loaded index, and measures its speed and its flushes and fences.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pmindex::{Index, IndexError, Key, Value};
use pmindex_pibench::{BATCH, KeySpace, SCAN_LENGTH};

use crate::trial::model::{Expected, Model};
use crate::trial::source::Universes;
use crate::trial::store::Store;
use crate::trial::universe::Universe;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Op {
    /// Looks up keys that exist.
    Get,
    /// The same, 64 in a call.
    GetMany,
    /// Reads 100 records.
    Scan,
    /// Replaces values.
    Update,
    /// Removes.
    Remove,
    /// Adds the removed records again.
    Insert,
    /// The same, 64 in a call.
    InsertMany,
}

impl Op {
    /// All operations, in an order in which each finds the records that it needs.
    pub(crate) const ALL: [Self; 7] = [
        Self::Get,
        Self::GetMany,
        Self::Scan,
        Self::Update,
        Self::Remove,
        Self::Insert,
        Self::InsertMany,
    ];

    /// Returns its name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::GetMany => "get_many (64)",
            Self::Scan => "scan (100)",
            Self::Update => "update",
            Self::Remove => "remove",
            Self::Insert => "insert",
            Self::InsertMany => "insert_many (64)",
        }
    }
}

/// Time and costs of the operations of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpTotals {
    /// The number of operations.
    pub(crate) ops: u64,
    /// Their total time.
    pub(crate) time: Duration,
    /// The lines they flushed.
    pub(crate) lines: u64,
    /// The fences they executed.
    pub(crate) fences: u64,
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
impl OpTotals {
    /// Returns the operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.ops as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Returns the flushed lines per operation.
    pub(crate) fn lines_per_op(&self) -> f64 {
        self.lines as f64 / self.ops.max(1) as f64
    }

    /// Returns the fences per operation.
    pub(crate) fn fences_per_op(&self) -> f64 {
        self.fences as f64 / self.ops.max(1) as f64
    }
}

/// The limit after which no more operations of a kind are run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpLimit {
    /// The number of operations.
    pub(crate) ops: u64,
    /// The time.
    pub(crate) time: Duration,
}

/// Returns the lines flushed and fences so far, if the medium counts them.
pub(crate) type Meter<'a> = &'a dyn Fn() -> (u64, u64);

/// Runs operations on one index, and keeps `expected` up to date.
pub(crate) struct Exercise<'a, I, K, V> {
    index: &'a I,
    universe: &'a Universe<K, V>,
    expected: &'a mut Expected,
    random: KeySpace,
    removed: Vec<usize>,
    numbers: u64,
}

/// Operations before the first reading of the clock: on a disk each write may take milliseconds.
const FIRST: usize = 2 * BATCH;
/// Operations between two later readings.
const CHUNK: usize = 8 * BATCH;

impl<'a, K: Key, V: Value, I: Index<K, V>> Exercise<'a, I, K, V> {
    /// Exercises an index that holds `expected`.
    pub(crate) fn new(
        index: &'a I,
        universe: &'a Universe<K, V>,
        expected: &'a mut Expected,
    ) -> Self {
        let random = KeySpace::new(5);
        Self { index, universe, expected, random, removed: Vec::new(), numbers: 1 << 40 }
    }

    /// Runs every operation in turn.
    ///
    /// # Errors
    /// The error of a failed operation. An operation with a wrong effect is found later, when the index is
    /// verified.
    pub(crate) fn run(
        &mut self,
        limit: OpLimit,
        meter: Meter<'_>,
    ) -> Result<Vec<(Op, OpTotals)>, IndexError> {
        let mut results = Vec::new();
        for op in Op::ALL {
            let mut totals = OpTotals::default();
            while totals.ops < limit.ops && totals.time < limit.time {
                let places = self.places(op, &totals);
                if places.is_empty() {
                    break;
                }
                self.chunk(op, &places, &mut totals, meter)?;
            }
            results.push((op, totals));
        }
        Ok(results)
    }

    /// Returns the places of the next operations: of present records, or of those removed before.
    fn places(&mut self, op: Op, totals: &OpTotals) -> Vec<usize> {
        let chunk = if totals.ops == 0 { FIRST } else { CHUNK };
        match op {
            // The rest is for the batches; on a slow medium few records have been removed.
            Op::Insert if self.removed.len() < 2 * CHUNK => {
                let half = if totals.ops == 0 { self.removed.len() / 2 } else { 0 };
                self.removed.split_off(self.removed.len() - half)
            }
            Op::Insert | Op::InsertMany => {
                self.removed.split_off(self.removed.len().saturating_sub(CHUNK))
            }
            Op::Scan => (0..chunk / 16).filter_map(|_| self.present()).collect(),
            Op::Remove => (0..chunk)
                .map_while(|_| {
                    let at = self.present()?;
                    self.expected.set(at, None);
                    self.removed.push(at);
                    Some(at)
                })
                .collect(),
            Op::Get | Op::GetMany | Op::Update => {
                (0..chunk).filter_map(|_| self.present()).collect()
            }
        }
    }

    /// Returns a random place that holds a record.
    fn present(&mut self) -> Option<usize> {
        (0..1000).find_map(|_| {
            let at = self.random.below(self.universe.len() as u64);
            let at = usize::try_from(at).unwrap_or_default();
            self.expected.at(at).map(|_| at)
        })
    }

    fn chunk(
        &mut self,
        op: Op,
        places: &[usize],
        totals: &mut OpTotals,
        meter: Meter<'_>,
    ) -> Result<(), IndexError> {
        let keys: Vec<K> = places.iter().map(|at| self.universe.key(*at).clone()).collect();
        let mut records: Vec<(K, V)> = Vec::new();
        if matches!(op, Op::Update | Op::Insert | Op::InsertMany) {
            for (at, key) in places.iter().zip(&keys) {
                self.numbers += 1;
                self.expected.set(*at, Some(self.numbers));
                records.push((key.clone(), self.universe.value(self.numbers)));
            }
        }
        let before = meter();
        let started = Instant::now();
        execute(self.index, op, &keys, &records)?;
        totals.time += started.elapsed();
        let after = meter();
        totals.lines += after.0 - before.0;
        totals.fences += after.1 - before.1;
        totals.ops += keys.len() as u64;
        Ok(())
    }
}

fn execute<K: Key, V: Value>(
    index: &impl Index<K, V>,
    op: Op,
    keys: &[K],
    records: &[(K, V)],
) -> Result<(), IndexError> {
    match op {
        Op::Get => {
            for key in keys {
                black_box(index.get(key.borrowed())?);
            }
        }
        Op::GetMany => {
            let mut values = vec![None; BATCH];
            for keys in keys.chunks(BATCH) {
                index.get_many(keys, &mut values[..keys.len()])?;
                black_box(&values);
            }
        }
        Op::Scan => {
            let mut found = Vec::with_capacity(SCAN_LENGTH);
            for key in keys {
                found.clear();
                index.scan(key.borrowed(), SCAN_LENGTH, &mut found)?;
                black_box(&found);
            }
        }
        Op::Update => {
            for (key, value) in records {
                let _ = index.update(key.borrowed(), value.borrowed())?;
            }
        }
        Op::Remove => {
            for key in keys {
                black_box(index.remove(key.borrowed())?);
            }
        }
        Op::Insert => {
            for (key, value) in records {
                let _ = index.try_insert(key.borrowed(), value.borrowed())?;
            }
        }
        Op::InsertMany => {
            for records in records.chunks(BATCH) {
                if let Some(stopped) = index.try_insert_many(records).stopped {
                    return Err(stopped);
                }
            }
        }
    }
    Ok(())
}

/// The results of both indexes of a store, words first.
pub(crate) type BothIndexes = [Vec<(Op, OpTotals)>; 2];

/// Exercises both indexes of a store.
pub(crate) fn both(
    store: &Store,
    universes: &Universes,
    model: &mut Model,
    limit: OpLimit,
    meter: Meter<'_>,
) -> Result<BothIndexes, IndexError> {
    let words = Exercise::new(&store.words, &universes.words, &mut model.words);
    let integers = Exercise::new(&store.integers, &universes.integers, &mut model.integers);
    let (mut words, mut integers) = (words, integers);
    Ok([words.run(limit, meter)?, integers.run(limit, meter)?])
}
