//! Many keys at a time.
//!
//! All operations descend with up to 64 keys at once, level by level, so that their cache misses
//! overlap. `try_insert_many` and `put_many` also share their fences: they stage records in input order, each in
//! its own leaf, under as many leaf locks as it takes, then write all of them, make them durable at once
//! and commit them at once. All locks come before the first write-back, for which their atomics
//! would wait:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P0 | leaves without room split, each by itself | |
//! | P1 | all slots (and blocks, with their tickets); 8-byte values that are replaced (LIN); the redo log without the blocks that are replaced, whose values a fence before has made durable in place | P2 |
//! | P2 | for each leaf: fingerprints, then the state (LIN of all its new records, and of values of several words, whose records move to other slots); for each byte string that is replaced: the pointer to its new block (LIN) | return (DUR) |
//!
//! A stage that only replaces 8-byte values ends with P1. Each ticket names the word that decides its block, so a
//! crash within P2 leaves each record of the stage done or not, and no block lost. The locks are held to the end, so
//! no thread sees a record before its last fence.
//!
//! A stage ends early at a record that cannot join it (its leaf is full now or has changed): what is
//! staged is committed, the record goes in alone, and the next stage begins after it. So results
//! are those of single inserts or puts in input order, and the first error stops the batch at its record.

use std::cmp::Ordering;

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Flushed, Medium, Op, Owner, PmError, words_of};
use pmindex_index::{IndexError, InsertMany, Key, Noted, Value};
use pmindex_record::{EncodedValue, Leaving, Probe, bits};

use super::access::At;
use super::inner::{BATCH, Cursor};
use super::layout::{Geometry, LeafPtr, LeafState, Slot};
use super::leaf::{Leaf, finish};
use super::tree::FpTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
{
    /// Looks up many keys with overlapping cache misses; `out[i]` is the value of `keys[i]`.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        self.get_many_inner(keys, out).noted(&self.pool)
    }

    fn get_many_inner(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        assert_eq!(keys.len(), out.len(), "one place per key");
        let mut probes = Vec::with_capacity(BATCH.min(keys.len()));
        let mut ways = [At::nowhere(self.lock_of(0)); BATCH];
        let mut candidates = [0u64; BATCH];
        for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            probes.clear();
            for key in keys {
                probes.push(Probe::<K>::new(key.borrowed())?);
            }
            self.locate_many(&probes, &mut ways);
            for ((probe, at), candidates) in probes.iter().zip(&ways).zip(&mut candidates) {
                *candidates = self.match_and_prefetch(at, probe);
            }
            for (i, out) in out.iter_mut().enumerate() {
                *out = match self.read_candidate(&ways[i], &probes[i], candidates[i]) {
                    Some(found) => found?,
                    None => self.get(keys[i].borrowed())?,
                };
            }
        }
        Ok(())
    }

    /// The leaves of up to [`BATCH`] keys, each at a version; nowhere if one has just changed.
    #[inline(always)]
    fn locate_many<'t>(&'t self, probes: &[Probe<'_, K>], ways: &mut [At<'t>; BATCH]) {
        let pm = self.pm();
        let mut cursors = [Cursor::default(); BATCH];
        let cursors = &mut cursors[..probes.len()];
        self.inner.find_many(pm, probes, cursors, |probe, leaf| {
            self.pool.prefetch(LeafPtr::new(leaf));
            self.pool.prefetch(LeafPtr::new(leaf + Self::preferred_line(probe)));
        });
        for (cursor, at) in cursors.iter().zip(ways) {
            let lock = self.lock_of(cursor.leaf);
            let version = lock.begin_read(pm);
            let leaf = if self.inner.is_valid(pm, cursor) { cursor.leaf } else { 0 };
            *at = At { leaf, lock, version };
        }
    }

    /// Returns the slots whose fingerprints match, and prefetches the line of the first one.
    #[inline(always)]
    fn match_and_prefetch(&self, at: &At<'_>, probe: &Probe<'_, K>) -> u64 {
        let Ok(leaf) = self.leaf(at.leaf) else { return 0 };
        let candidates = leaf.matches(self.pm(), leaf.state(self.pm()), probe);
        if let Some(slot) = bits(candidates).next() {
            self.pool.prefetch(LeafPtr::new(at.leaf + Self::line_of_slot(slot)));
        }
        candidates
    }

    /// Returns the value, if one of the candidates has the key; `None` if the leaf has changed.
    #[inline(always)]
    fn read_candidate(
        &self,
        at: &At<'_>,
        probe: &Probe<'_, K>,
        candidates: u64,
    ) -> Option<Result<Option<V>, PmError>> {
        let read = || -> Result<Option<V>, PmError> {
            let leaf = self.leaf(at.leaf)?;
            for slot in bits(candidates) {
                if slot < LEAF && Slot::<K, V>::key_is(&self.pool, leaf.slot(slot), probe)? {
                    return Slot::<K, V>::value(&self.pool, leaf.slot(slot)).map(Some);
                }
            }
            Ok(None)
        };
        let found = read();
        (at.leaf != 0 && at.validate(self.pm())).then_some(found)
    }

    /// Locates the keys from `next` on whose leaves have changed, by our own hand mostly.
    fn locate_changed<'t>(
        &'t self,
        probes: &[Probe<'_, K>],
        ways: &mut [At<'t>; BATCH],
        next: usize,
    ) {
        for (probe, at) in probes.iter().zip(ways).skip(next) {
            if !at.validate(self.pm()) {
                *at = self.locate_probe(probe);
            }
        }
    }

    /// Splits the full leaves of keys that do not seem to be there (step P0). What fails here, or is
    /// not seen, is dealt with record by record.
    fn make_room<'t>(&'t self, probes: &[Probe<'_, K>], ways: &mut [At<'t>; BATCH]) {
        let pm = self.pm();
        let mut split = false;
        for (probe, at) in probes.iter().zip(&*ways).filter(|(_, at)| at.leaf != 0) {
            let Ok(leaf) = self.leaf(at.leaf) else { continue };
            let state = leaf.state(pm);
            if state.len() < LEAF || leaf.matches(pm, state, probe) != 0 {
                continue;
            }
            let Some(guard) = at.lock.try_upgrade(pm, at.version) else { continue };
            split = true;
            if self.split(&leaf, state, guard, Some(probe)).is_err() {
                break;
            }
        }
        if split {
            self.locate_changed(probes, ways, 0);
        }
    }

    /// Adds many records whose keys are new, with one fence per phase for all; nothing is visible before its fence.
    pub fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany {
        self.write_many(records, false).noted(&self.pool)
    }

    /// Adds or replaces many records with one fence per phase for all; nothing is visible before its fence.
    ///
    /// # Cost
    /// Per 64 records: 2 fences; 1 if all replace 8-byte values; 3 if byte strings are replaced that the redo log has,
    /// of the last updates; more if the tickets of an operation do not
    /// suffice for their blocks. Values of several words that are replaced take free slots until the end, so they
    /// share fences as far as their leaves have room. Those of byte-string keys go in alone, as
    /// [`put`](Self::put) does it.
    pub fn put_many(&self, records: &[(K, V)]) -> Result<(), IndexError> {
        self.write_many(records, true).noted(&self.pool).stopped.map_or(Ok(()), Err)
    }

    /// Adds records; `replaces` decides what happens to existing keys.
    fn write_many(&self, records: &[(K, V)], replaces: bool) -> InsertMany {
        let mut result = InsertMany::default();
        result.inserted.reserve(records.len());
        for records in records.chunks(BATCH) {
            if let Err(error) = self.write_chunk(records, replaces, &mut result.inserted) {
                result.stopped = Some(error);
                break;
            }
        }
        result
    }

    /// Writes up to [`BATCH`] records; what was pushed to `inserted` is durable, error or not.
    fn write_chunk(
        &self,
        records: &[(K, V)],
        replaces: bool,
        inserted: &mut Vec<bool>,
    ) -> Result<(), IndexError> {
        self.pool.check_writable()?;
        let mut probes = Vec::with_capacity(records.len());
        let mut refused = None;
        for (key, _) in records {
            match Probe::<K>::new(key.borrowed()) {
                Ok(probe) => probes.push(probe),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let mut ways = [At::nowhere(self.lock_of(0)); BATCH];
        self.locate_many(&probes, &mut ways);
        self.make_room(&probes, &mut ways);
        let mut next = 0;
        while next < probes.len() {
            self.pm().keep_stores(); // what is done is done
            let mut stage = Stage::new(self, &probes, records, replaces);
            let mut results = Vec::with_capacity(probes.len() - next);
            while next < probes.len() {
                let Some(new) = stage.add(next, &ways[next]) else { break };
                results.push(new);
                next += 1;
            }
            stage.commit()?;
            inserted.append(&mut results);
            if let Some((key, value)) = records[..probes.len()].get(next) {
                let (key, value) = (key.borrowed(), value.borrowed());
                inserted.push(if replaces {
                    self.put(key, value)?
                } else {
                    self.try_insert(key, value)?.is_ok()
                });
                next += 1;
                self.locate_changed(&probes, &mut ways, next);
            }
        }
        refused.map_or(Ok(()), Err)
    }
}

/// A leaf with staged records.
struct Staged<'t, K, V, const LEAF: usize> {
    leaf: Leaf<'t, K, V, LEAF>,
    /// The slots that are taken until the commit, old and new.
    state: LeafState,
    /// Those of them whose records have moved to others.
    left: LeafState,
    /// Staged records.
    records: u64,
    /// Those of them that are new.
    new: u64,
    /// The version at which it was located.
    version: u64,
    /// The lock, unless another staged leaf shares it.
    guard: Option<VersionGuard<'t>>,
}

impl<K, V, const LEAF: usize> Staged<'_, K, V, LEAF> {
    /// The state to be committed.
    fn committed(&self) -> LeafState {
        self.state.without_all(self.left)
    }
}

/// A record with its place.
struct Planned<'r, V> {
    /// Which of the batch.
    record: usize,
    /// Its value, encoded once: another encoding need not have the length of the block.
    datum: EncodedValue<'r, V>,
    /// Which of the staged leaves.
    leaf: usize,
    slot: usize,
    /// The block of the record; 0 if records have none.
    block: u64,
}

/// A new value for an existing record.
struct Replacing<'r, V> {
    /// Which of the batch.
    record: usize,
    /// The new value, encoded once.
    datum: EncodedValue<'r, V>,
    /// Which of the staged leaves.
    leaf: usize,
    slot: usize,
    /// The new block of the slot; 0 if its value is one word.
    block: u64,
}

/// Records that will be committed together.
///
/// Leaf locks are only tried, so in any order: a stage that cannot have one ends, and unlocks the others.
struct Stage<'t, 'r, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> {
    tree: &'t FpTree<K, V, M, LEAF, INNER>,
    probes: &'r [Probe<'r, K>],
    records: &'r [(K, V)],
    replaces: bool,
    op: Option<Op<'t, M>>,
    leaves: Vec<Staged<'t, K, V, LEAF>>,
    planned: Vec<Planned<'r, V>>,
    replacing: Vec<Replacing<'r, V>>,
}

impl<'t, 'r, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    Stage<'t, 'r, K, V, M, LEAF, INNER>
{
    fn new(
        tree: &'t FpTree<K, V, M, LEAF, INNER>,
        probes: &'r [Probe<'r, K>],
        records: &'r [(K, V)],
        replaces: bool,
    ) -> Self {
        let (leaves, planned) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        let replacing = Vec::new();
        Self { tree, probes, records, replaces, op: None, leaves, planned, replacing }
    }

    /// Assigns a slot to a record; returns whether it is new. `None` if it cannot join, for any reason; then nothing
    /// was changed.
    #[inline(always)]
    fn add(&mut self, record: usize, at: &At<'t>) -> Option<bool> {
        let (tree, probe) = (self.tree, &self.probes[record]);
        let datum = EncodedValue::new(self.records[record].1.borrowed()).ok()?;
        let leaf = self.hold(at)?;
        let Staged { leaf: words, state, records, .. } = &self.leaves[leaf];
        let (words, state) = (*words, *state);
        let staged = |p: &Planned<'_, V>| {
            p.leaf == leaf && self.probes[p.record].compare(probe) == Ordering::Equal
        };
        if *records > 0 && self.planned.iter().any(staged) {
            return (!self.replaces).then_some(false); // the later one of two alike comes later
        }
        if let Some(slot) = words.find(&tree.pool, words.state(tree.pm()), probe).ok()? {
            let replaces = self.replaces;
            return if replaces { self.replace(record, leaf, slot, datum) } else { Some(false) };
        }
        let slot = Geometry::<K, V, LEAF>::free_slot_for(state, probe)?;
        let mut block = 0;
        if Slot::<K, V>::HAS_BLOCK {
            let op = self.op()?;
            let reserved = op.reserve_bytes(Slot::<K, V>::block_size(probe, &datum), 8).ok()?;
            op.allocate(&reserved, words.owner(slot)).ok()?;
            block = reserved.ptr().offset();
        }
        self.planned.push(Planned { record, datum, leaf, slot, block });
        let staged = &mut self.leaves[leaf];
        staged.state = state.with(slot);
        staged.records += 1;
        staged.new += 1;
        Some(true)
    }

    /// Stages a new value for the record in a slot: one word there decides it, which is the value or leads to its
    /// block, or the record moves to a free slot.
    fn replace(
        &mut self,
        record: usize,
        leaf: usize,
        slot: usize,
        datum: EncodedValue<'r, V>,
    ) -> Option<bool> {
        let mut block = 0;
        if V::SHAPE.is_bytes() {
            if self.replacing.iter().any(|other| (other.leaf, other.slot) == (leaf, slot)) {
                return None; // what it replaces is not there yet
            }
            let (probe, words) = (&self.probes[record], self.leaves[leaf].leaf);
            let word = &words.slot(slot)[Slot::<K, V>::BLOCK_WORD];
            let old = self.tree.pm().load_word(word);
            let op = self.op()?;
            let reserved = op.reserve_bytes(Slot::<K, V>::block_size(probe, &datum), 8).ok()?;
            block = reserved.ptr().offset();
            // The word decides both. One that stays as it is, since the other has no room, frees nothing.
            op.free(LeafPtr::new(old), Owner { word, mask: u64::MAX, expect: old }).ok()?;
            op.allocate(&reserved, Owner { word, mask: u64::MAX, expect: block }).ok()?;
        } else if !Slot::<K, V>::ONE_WORD_UPDATE {
            return self.displace(record, leaf, slot, datum);
        }
        self.replacing.push(Replacing { record, datum, leaf, slot, block });
        Some(false)
    }

    /// Gives the record in a slot a second slot, which replaces the first one.
    fn displace(
        &mut self,
        record: usize,
        leaf: usize,
        slot: usize,
        datum: EncodedValue<'r, V>,
    ) -> Option<bool> {
        if Slot::<K, V>::HAS_BLOCK {
            return None; // the block of its key stays, but the word that decides it would be another
        }
        let staged = &mut self.leaves[leaf];
        let free = Geometry::<K, V, LEAF>::free_slot_for(staged.state, &self.probes[record])?;
        staged.state = staged.state.with(free);
        staged.left = staged.left.with(slot);
        staged.records += 1;
        self.planned.push(Planned { record, datum, leaf, slot: free, block: 0 });
        Some(false)
    }

    /// Returns the operation of all blocks.
    #[inline(always)]
    fn op(&mut self) -> Option<&mut Op<'t, M>> {
        if self.op.is_none() {
            self.op = Some(self.tree.pool.op().ok()?);
        }
        self.op.as_mut()
    }

    /// Returns the place among `leaves` of the leaf, which is locked at the version at which it was located.
    #[inline(always)]
    fn hold(&mut self, at: &At<'t>) -> Option<usize> {
        if at.leaf == 0 {
            return None;
        }
        let pm = self.tree.pm();
        let leaf = self.tree.leaf(at.leaf).ok()?;
        let guard = at.lock.try_upgrade(pm, at.version);
        if guard.is_none() {
            // Perhaps it is this stage that holds the lock, since this very version.
            let holds = |s: &Staged<'_, K, V, LEAF>| {
                s.version == at.version && s.guard.as_ref().is_some_and(|g| g.is_of(at.lock))
            };
            self.leaves.iter().position(holds)?;
            let same = |s: &Staged<'_, K, V, LEAF>| s.leaf.offset() == at.leaf;
            if let Some(index) = self.leaves.iter().position(same) {
                return Some(index);
            }
        }
        let state = leaf.state(pm);
        let (version, left) = (at.version, LeafState::default());
        self.leaves.push(Staged { leaf, state, left, records: 0, new: 0, version, guard });
        Some(self.leaves.len() - 1)
    }

    /// Writes and flushes the records and their fingerprints (step P1).
    #[inline(always)]
    fn write(&self) -> Result<Flushed, PmError> {
        let (pool, pm) = (&*self.tree.pool, self.tree.pm());
        let mut written = Vec::with_capacity(2 * BATCH);
        for &Planned { record, ref datum, leaf, slot, block } in &self.planned {
            let (probe, leaf) = (&self.probes[record], &self.leaves[leaf].leaf);
            if Slot::<K, V>::HAS_BLOCK {
                let block = LeafPtr::new(block);
                written.push(Slot::<K, V>::fill_block(pool, block, probe, datum)?);
            }
            written.push(Slot::<K, V>::fill(pm, leaf.slot(slot), probe, datum, block));
            leaf.put_fingerprint(pm, slot, probe.fingerprint());
            leaf.forget_pending(pm);
        }
        for &Replacing { record, ref datum, leaf, slot, block } in &self.replacing {
            if block != 0 {
                let (block, probe) = (LeafPtr::new(block), &self.probes[record]);
                written.push(Slot::<K, V>::fill_block(pool, block, probe, datum)?);
                continue;
            }
            let cell = &self.leaves[leaf].leaf.slot(slot)[Slot::<K, V>::KEY_WORDS];
            pm.store_word(cell, datum.words()[0]); // LIN
            written.push(words_of(cell));
        }
        Ok(pm.flush_together(&mut written))
    }

    /// Makes the redo log forget the blocks that are replaced; P1's fence makes that durable. What is in place there
    /// needs a fence before: 1 for all.
    fn leave_redo_log(&self) -> Result<(Leaving<'t>, Flushed), PmError> {
        let pm = self.tree.pm();
        let blocks = self.replacing.iter().filter(|one| one.block != 0).map(|one| {
            let slot = self.leaves[one.leaf].leaf.slot(one.slot);
            pm.load_word(&slot[Slot::<K, V>::BLOCK_WORD])
        });
        match &self.tree.redo {
            Some(redo) if V::SHAPE.is_bytes() => redo.leave_all(&self.tree.pool, blocks),
            _ => Ok((Leaving::default(), Flushed::nothing())),
        }
    }

    /// Makes the staged records durable and visible (P1 and P2).
    fn commit(self) -> Result<(), PmError> {
        if self.planned.is_empty() && self.replacing.is_empty() {
            return Ok(());
        }
        let slots = self.tree.write_slots();
        let (leaving, voided) = self.leave_redo_log()?;
        let flushed = self.write()?.and(voided);
        let swung = |replacing: &&Replacing<'_, V>| replacing.block != 0;
        let is_done = self.planned.is_empty() && !self.replacing.iter().any(|one| swung(&one));
        let Self { tree, op, leaves, replacing, .. } = self;
        let (pool, pm) = (&*tree.pool, tree.pm());
        if is_done {
            pm.fence(flushed)?; // DUR
            slots.end();
            return Ok(());
        }
        let changed = || leaves.iter().filter(|staged| staged.records > 0);
        let uncount = |staged: &Staged<'_, K, V, LEAF>| {
            tree.count(staged.leaf.offset(), staged.new.wrapping_neg());
        };
        let Some(mut op) = op else {
            pm.fence(flushed)?;
            let committed = changed().fold(Flushed::nothing(), |all, staged| {
                tree.count(staged.leaf.offset(), staged.new);
                all.and(staged.leaf.commit(pm, staged.committed())) // P2, LIN
            });
            let durable = pm.fence(committed); // DUR
            if durable.is_err() {
                changed().for_each(uncount);
            }
            durable?;
            slots.end();
            return Ok(());
        };
        op.prepare(flushed)?;
        leaving.end();
        for staged in changed() {
            tree.count(staged.leaf.offset(), staged.new);
            staged.leaf.put_state(pm, staged.committed()); // P2, LIN
        }
        let mut words: Vec<_> = replacing
            .iter()
            .filter(swung)
            .map(|one| {
                let word = &leaves[one.leaf].leaf.slot(one.slot)[Slot::<K, V>::BLOCK_WORD];
                pm.store_word(word, one.block); // P2, LIN
                words_of(word)
            })
            .collect();
        let finished = finish(pool, op, || {
            let swung = pm.flush_together(&mut words);
            changed().fold(swung, |all, staged| all.and(staged.leaf.flush_state(pm)))
        }); // DUR
        if finished.is_err() {
            changed().for_each(uncount);
        }
        finished?;
        slots.end();
        Ok(())
    }
}
