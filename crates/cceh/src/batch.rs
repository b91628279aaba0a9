//! Batches of records with shared fences.
//!
//! `try_insert_many` stages records in input order, under as many segment locks as it takes:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | all blocks, with their tickets | P2 |
//! | P2 | all pairs (LIN) | return (DUR) |
//!
//! A stage ends early at a record that cannot join it (its segment has no room, or has changed): the staged
//! records are committed, this record is inserted alone, and the next stage begins after it. So results are
//! those of single inserts in input order, and the first error stops the batch at its record.

use pmindex_core::{Medium, Op, PmError, PmU64};
use pmindex_index::{IndexError, InsertMany, Key, Noted, Value};
use pmindex_record::{Pair, PairValue, reserve};

use crate::access::At;
use crate::index::Cceh;
use crate::layout::{Sought, has_block};
use crate::segment::Segment;
use crate::write::{Change, owner_by_id};

/// The number of keys that are located together.
const BATCH: usize = 64;

impl<K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize>
    Cceh<K, V, M, LINES, PROBE>
{
    /// Adds many records whose keys are new, with one fence per phase for all; nothing is visible before its fence.
    pub fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany {
        let mut result = InsertMany::default();
        result.inserted.reserve(records.len());
        for records in records.chunks(BATCH) {
            if let Err(error) = self.insert_chunk(records, &mut result.inserted) {
                result.stopped = Some(error);
                break;
            }
        }
        result.noted(&self.pool)
    }

    /// Inserts up to [`BATCH`] records; the records in `inserted` are durable, also after an error.
    fn insert_chunk(&self, records: &[(K, V)], inserted: &mut Vec<bool>) -> Result<(), IndexError> {
        self.pool.check_writable()?;
        let (mut keys, mut refused) = (Vec::with_capacity(records.len()), None);
        for (key, _) in records {
            match Sought::new::<K>(key.borrowed()) {
                Ok(key) => keys.push(key),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        self.fetch(&keys);
        let mut ways: Vec<At<'_>> = keys.iter().map(|key| self.locate(key.position)).collect();
        let mut next = 0;
        while next < keys.len() {
            self.pm().keep_stores(); // committed records stay
            let mut stage = Stage::new(self);
            let mut results = Vec::with_capacity(keys.len() - next);
            while next < keys.len()
                && let Some(new) = stage.add(&keys[next], &records[next].1, &ways[next])
            {
                results.push(new);
                next += 1;
            }
            stage.commit()?;
            inserted.append(&mut results);
            if next < keys.len() {
                let (key, value) = &records[next];
                inserted.push(self.try_insert(key.borrowed(), value.borrowed())?.is_ok());
                next += 1;
                // Segments that have changed, mostly through this thread.
                for (key, way) in keys.iter().zip(&mut ways).skip(next) {
                    if !way.validate(self.pm()) {
                        *way = self.locate(key.position);
                    }
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }
}

/// A segment with staged records.
struct Staged<'t, K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize> {
    segment: Segment<'t, LINES, PROBE>,
    /// The version at which it was located.
    at: At<'t>,
    /// The pairs that get records in P2, and the records.
    pairs: Vec<(usize, [u64; 2])>,
    /// The lock, unless another staged segment shares it.
    change: Option<Change<'t, K, V, M, LINES, PROBE>>,
}

/// Records that will be committed together.
///
/// Locks are only tried, in any order: a thread that fails to get one releases the others.
struct Stage<'t, K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize> {
    index: &'t Cceh<K, V, M, LINES, PROBE>,
    /// Dropped before the locks are.
    op: Option<Op<'t, M>>,
    segments: Vec<Staged<'t, K, V, M, LINES, PROBE>>,
    /// The blocks of the records, to flush.
    blocks: Vec<&'t [PmU64]>,
}

impl<'t, K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize>
    Stage<'t, K, V, M, LINES, PROBE>
{
    fn new(index: &'t Cceh<K, V, M, LINES, PROBE>) -> Self {
        Self { index, op: None, segments: Vec::new(), blocks: Vec::new() }
    }

    /// Stages a record (step P1), or finds its key (`false`). Returns `None` if it cannot join, for any
    /// reason.
    fn add(&mut self, key: &Sought<'_>, value: &V, at: &At<'t>) -> Option<bool> {
        let index = self.index;
        let value = Pair::<K, V>::encode(value.borrowed()).ok()?;
        let staged = self.hold(at)?;
        let Staged { segment, pairs, .. } = &self.segments[staged];
        if segment.find::<K, V, M>(&index.pool, key).ok()?.is_some() {
            return Some(false);
        }
        if pairs.iter().any(|(_, [id, _])| *id == key.id) {
            // It may be the same key.
            return if Pair::<K, V>::WORD_KEY { Some(false) } else { None };
        }
        let taken = |pair| pairs.iter().any(|(staged, _)| *staged == pair);
        let pair = segment.room(index.pm(), at.cover, key.position, taken)?;
        let other = if has_block::<K, V>() {
            self.add_block(staged, pair, key, &value)?
        } else {
            value.word
        };
        self.segments[staged].pairs.push((pair, [key.id, other]));
        Some(true)
    }

    /// Adds the block of a record, with its ticket. Returns `None` if nothing was changed.
    fn add_block(
        &mut self,
        staged: usize,
        pair: usize,
        key: &Sought<'_>,
        value: &PairValue<'_>,
    ) -> Option<u64> {
        let index = self.index;
        if self.op.is_none() {
            self.op = Some(index.pool.op().ok()?);
        }
        let op = self.op.as_mut()?;
        let segment = &self.segments[staged].segment;
        let (block, words) = reserve(&index.pool, op, &key.bytes, &value.bytes).ok()?;
        op.allocate(&block, owner_by_id(segment, pair, key.id)).ok()?;
        op.changes(segment.other_cell(pair));
        self.blocks.push(words);
        Some(block.ptr().offset())
    }

    /// Returns the position in `segments` of the segment, locked at the version at which it was located.
    fn hold(&mut self, at: &At<'t>) -> Option<usize> {
        let mut change = None;
        if let Some(guard) = at.lock.try_upgrade(self.index.pm(), at.version) {
            change = Some(self.index.change(at.segment, guard));
        } else {
            // This stage may hold the lock already, since this version.
            let holds = |s: &Staged<'_, K, V, M, LINES, PROBE>| {
                s.at.version == at.version && s.change.is_some() && std::ptr::eq(s.at.lock, at.lock)
            };
            self.segments.iter().position(holds)?;
            let same = |s: &Staged<'_, K, V, M, LINES, PROBE>| s.at.segment == at.segment;
            if let Some(place) = self.segments.iter().position(same) {
                return Some(place);
            }
        }
        let segment = self.index.segment(at.segment).ok()?;
        self.segments.push(Staged { segment, at: *at, pairs: Vec::new(), change });
        Some(self.segments.len() - 1)
    }

    /// Makes the staged records durable and visible (end of P1, and P2).
    fn commit(mut self) -> Result<(), PmError> {
        self.persist()?;
        for Staged { segment, pairs, change, .. } in &mut self.segments {
            if !pairs.is_empty() {
                self.index.count(segment.offset(), pairs.len() as u64);
            }
            if let Some(change) = change.take() {
                change.done();
            }
        }
        Ok(())
    }

    /// Does everything but the end of [`commit`](Self::commit).
    fn persist(&mut self) -> Result<(), PmError> {
        let pm = self.index.pm();
        if self.segments.iter().all(|staged| staged.pairs.is_empty()) {
            return Ok(());
        }
        if let Some(op) = &mut self.op {
            op.prepare(pm.flush_together(&mut self.blocks))?;
        }
        let mut stored = Vec::new();
        for staged in &self.segments {
            for (pair, words) in &staged.pairs {
                staged.segment.store(pm, *pair, *words); // LIN
                stored.push(staged.segment.pair(*pair));
            }
        }
        let stored = pm.flush_together(&mut stored);
        match self.op.take() {
            Some(mut op) => {
                let sealed = op.seal();
                let durable = pm.fence(stored.and(sealed))?; // DUR
                op.finish(durable);
            }
            None => {
                pm.fence(stored)?; // DUR
            }
        }
        Ok(())
    }
}
