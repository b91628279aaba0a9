//! Many keys at a time.
//!
//! Both operations send up to 64 keys down together, level by level, so that their cache misses
//! overlap. `try_insert_many` also shares its fences: it gives records their places in input order, each
//! in its own leaf, under as many leaf locks as it takes, then writes all of them, makes them durable
//! at once and commits them at once. All locks come before the first store to a leaf, for which
//! their atomics would wait:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P0 | leaves without room make room, each by itself | |
//! | P1 | byte strings: all blocks, with their tickets (wide slots: all records) | P2 |
//! | P2 | for each leaf: the records of its first segment, then their marks in one store (LIN) | P3 |
//! | P3 | for each leaf: the same of every other segment (LIN) | return (DUR) |
//! | P4 | the hints: derived, never flushed | |
//!
//! Independent keys have one record per leaf, hence no P3: one fence for all. P3 is fenced off from P2
//! so that a crash which finds any record of a leaf finds one in the slot that the leaf's hint takes
//! for the next free one, as after a single append: the hint is known to be behind.
//!
//! A stage ends early at a record that cannot join it (its leaf is full or has changed): what is
//! staged is committed, the record goes in alone, and the next stage begins after it. So results
//! are those of single inserts in input order, and the first error stops the batch at its record.

use std::cmp::Ordering;

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Flushed, Medium, Op, PmError};
use pmindex_index::{IndexError, InsertMany, Key, Noted, Value};
use pmindex_record::{EncodedValue, Probe, Slot, bits};

use super::access::At;
use super::inner::{BATCH, Cursor, Entry, Route};
use super::layout::{Geometry, Hint, LeafPtr, Mark};
use super::leaf::{Incoming, Leaf};
use super::tree::NvTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    NvTree<K, V, M, LEAF, INNER>
{
    /// Looks up many keys with overlapping cache misses; `out[i]` is the value of `keys[i]`.
    ///
    /// # Cost
    /// No flush, no fence. 64 keys go down together, level by level: about one cache miss a level
    /// for all of them.
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
            self.locate_many(&probes, &mut ways, |_| ());
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
    fn locate_many<'t>(
        &'t self,
        probes: &[Probe<'_, K>],
        ways: &mut [At<'t>; BATCH],
        also: impl Fn(&Entry),
    ) {
        let pm = self.pm();
        let mut cursors = [Cursor::default(); BATCH];
        let cursors = &mut cursors[..probes.len()];
        self.inner.find_many(pm, probes, cursors, |entry| {
            self.pool.prefetch(LeafPtr::new(entry.leaf()));
            also(entry);
        });
        for (cursor, at) in cursors.iter().zip(ways) {
            let (entry, leaf) = (cursor.entry, cursor.entry.leaf());
            let lock = self.lock_of(leaf);
            let version = lock.begin_read(pm);
            let valid = leaf != 0 && self.inner.is_valid(pm, cursor);
            *at = At { leaf: if valid { leaf } else { 0 }, entry, lock, version };
        }
    }

    /// Returns the slots whose fingerprints match, and prefetches the line of the first one.
    #[inline(always)]
    fn match_and_prefetch(&self, at: &At<'_>, probe: &Probe<'_, K>) -> u64 {
        let Ok(leaf) = self.leaf(at.leaf) else { return 0 };
        let candidates = leaf.matches(self.pm(), leaf.hint(self.pm()), probe);
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

    /// Adds many records whose keys are new, with one fence per phase for all; nothing is visible before its fence.
    ///
    /// # Cost
    /// For up to 64 records 1 fence, with byte strings 2; 1 more where the records of a leaf
    /// lie on several lines. 1 line for each record of a leaf of its own. Full leaves make room
    /// first, one by one.
    ///
    /// # Durability
    /// The results that are returned are durable, whether the batch was stopped or not.
    pub fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany {
        self.insert_many_inner(records).noted(&self.pool)
    }

    fn insert_many_inner(&self, records: &[(K, V)]) -> InsertMany {
        let mut result = InsertMany::default();
        result.inserted.reserve(records.len());
        for records in records.chunks(BATCH) {
            if let Err(error) = self.insert_chunk(records, &mut result.inserted) {
                result.stopped = Some(error);
                break;
            }
        }
        result
    }

    /// Inserts up to [`BATCH`] records; what was pushed to `inserted` is durable, error or not.
    fn insert_chunk(&self, records: &[(K, V)], inserted: &mut Vec<bool>) -> Result<(), IndexError> {
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
        self.locate_many(&probes, &mut ways, |entry| self.prefetch_segment(entry));
        self.make_room_for_all(&probes, &mut ways);
        let mut next = 0;
        while next < probes.len() {
            self.pm().keep_stores(); // what is done is done
            let mut stage = Stage::new(self, &probes, records);
            let mut results = Vec::with_capacity(probes.len() - next);
            while next < probes.len() {
                let Some(new) = stage.add(next, &ways[next]) else { break };
                results.push(new);
                next += 1;
            }
            stage.commit()?;
            inserted.append(&mut results);
            if let Some((key, value)) = records[..probes.len()].get(next) {
                inserted.push(self.try_insert(key.borrowed(), value.borrowed())?.is_ok());
                next += 1;
                self.locate_again(&probes[next..], &mut ways[next..]);
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Makes room in full leaves before anything is staged, so that a stage need not end there.
    fn make_room_for_all<'t>(&'t self, probes: &[Probe<'_, K>], ways: &mut [At<'t>; BATCH]) {
        let pm = self.pm();
        let mut full = 0u64;
        for (i, at) in ways.iter().enumerate().take(probes.len()) {
            if self.leaf(at.leaf).is_ok_and(|leaf| leaf.hint(pm).count() >= LEAF) {
                self.prefetch_leaf(Some(at.leaf));
                // Its link will change.
                if let Some(left) = self.inner.left_of(&at.entry) {
                    self.pool.prefetch(LeafPtr::new(left));
                }
                full |= 1 << i;
            }
        }
        for i in bits(full).filter(|&i| ways[i].validate(pm)) {
            // Whatever fails here fails again where its record is inserted.
            let _ = self.make_room(&probes[i]);
        }
        if full != 0 {
            self.locate_again(probes, ways);
        }
    }

    /// Locates the leaves of keys whose leaves have changed, by our own hand mostly.
    fn locate_again<'t>(&'t self, probes: &[Probe<'_, K>], ways: &mut [At<'t>]) {
        for (probe, at) in probes.iter().zip(ways) {
            if !at.validate(self.pm()) {
                *at = self.locate_to_write(&Route::to(probe));
            }
        }
    }
}

/// A leaf with staged records: the slots from `hint.count()` on.
struct Staged<'t, K, V, const LEAF: usize> {
    leaf: Leaf<'t, K, V, LEAF>,
    /// What the leaf will be.
    hint: Hint,
    /// The first staged slot.
    first: usize,
    /// Where it is named.
    entry: Entry,
    /// The version at which it was located.
    version: u64,
    /// The lock, unless another staged leaf shares it.
    guard: Option<VersionGuard<'t>>,
}

impl<K: Key, V: Value, const LEAF: usize> Staged<'_, K, V, LEAF> {
    fn records(&self) -> usize {
        self.hint.count() - self.first
    }

    /// Returns the first staged slot that is not in the segment of the first one.
    fn second_segment(&self) -> usize {
        let per_segment = Geometry::<K, V, LEAF>::PER_SEGMENT;
        (self.first / per_segment * per_segment + per_segment).min(self.hint.count())
    }

    /// Stores the marks of staged slots of one segment, all at once, and flushes their line.
    #[track_caller]
    fn commit(&self, pm: &impl Medium, slots: std::ops::Range<usize>) -> Flushed {
        let first = slots.start;
        let counter = self.leaf.counter(first);
        let count = |word, i| Mark::POSITIVE.add_to(word, Leaf::<K, V, LEAF>::place(i));
        pm.store_word(counter, slots.fold(pm.load_word(counter), count)); // LIN
        pm.flush_words(self.leaf.counter_line(first))
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

/// Records that will be committed together.
///
/// Leaf locks are only tried, so in any order: a stage that cannot have one ends, and unlocks the others.
struct Stage<'t, 'r, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> {
    tree: &'t NvTree<K, V, M, LEAF, INNER>,
    probes: &'r [Probe<'r, K>],
    records: &'r [(K, V)],
    op: Option<Op<'t, M>>,
    leaves: Vec<Staged<'t, K, V, LEAF>>,
    planned: Vec<Planned<'r, V>>,
}

impl<'t, 'r, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    Stage<'t, 'r, K, V, M, LEAF, INNER>
{
    fn new(
        tree: &'t NvTree<K, V, M, LEAF, INNER>,
        probes: &'r [Probe<'r, K>],
        records: &'r [(K, V)],
    ) -> Self {
        let (leaves, planned) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        Self { tree, probes, records, op: None, leaves, planned }
    }

    /// Gives a record its place, or finds its key there (`false`). `None`: it cannot join, for
    /// whatever reason, and nothing was changed.
    #[inline(always)]
    fn add(&mut self, record: usize, at: &At<'t>) -> Option<bool> {
        let (tree, probe) = (self.tree, &self.probes[record]);
        let datum = EncodedValue::new(self.records[record].1.borrowed()).ok()?;
        let index = self.hold(at)?;
        let Staged { leaf, hint, first, .. } = &self.leaves[index];
        let (leaf, slot) = (*leaf, hint.count());
        let same = |p: &Planned<'_, V>| {
            p.leaf == index && self.probes[p.record].compare(probe) == Ordering::Equal
        };
        if slot > *first && self.planned.iter().any(same)
            || leaf.find(&tree.pool, leaf.hint(tree.pm()), probe).ok()?.is_some()
        {
            return Some(false);
        }
        if slot >= LEAF {
            return None;
        }
        let mut block = 0;
        if Slot::<K, V>::HAS_BLOCK {
            if self.op.is_none() {
                self.op = Some(tree.pool.op().ok()?);
            }
            let op = self.op.as_mut()?;
            let reserved = op.reserve_bytes(Slot::<K, V>::block_size(probe, &datum), 8).ok()?;
            op.allocate(&reserved, leaf.appended(slot)).ok()?;
            block = reserved.ptr().offset();
        }
        self.planned.push(Planned { record, datum, leaf: index, slot, block });
        let staged = &mut self.leaves[index];
        staged.hint = staged.hint.appended(slot, Mark::POSITIVE);
        Some(true)
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
        let hint = leaf.hint(pm);
        if leaf.is_behind(pm, hint) {
            return None;
        }
        let (first, entry, version) = (hint.count(), at.entry, at.version);
        self.leaves.push(Staged { leaf, hint, first, entry, version, guard });
        Some(self.leaves.len() - 1)
    }

    /// Writes the records and their fingerprints: nothing reads either before the marks. What
    /// must be durable before these is flushed (step P1).
    #[inline(always)]
    fn write(&self) -> Result<Flushed, PmError> {
        let (pool, pm) = (&*self.tree.pool, self.tree.pm());
        let mut written = Vec::with_capacity(BATCH);
        for &Planned { record, ref datum, leaf, slot, block } in &self.planned {
            let (probe, leaf) = (&self.probes[record], &self.leaves[leaf].leaf);
            if Slot::<K, V>::HAS_BLOCK {
                let block = LeafPtr::new(block);
                written.push(Slot::<K, V>::fill_block(pool, block, probe, datum)?);
            }
            leaf.write_slot(pm, slot, &Incoming { probe, datum }, block);
            if !Geometry::<K, V, LEAF>::ONE_LINE {
                written.push(leaf.slot(slot));
            }
            leaf.put_fingerprint(pm, slot, probe.fingerprint());
        }
        Ok(pm.flush_together(&mut written))
    }

    /// Makes the staged records durable and visible.
    fn commit(self) -> Result<(), IndexError> {
        if self.planned.is_empty() {
            return Ok(());
        }
        let flushed = self.write()?;
        let Self { tree, mut op, leaves, .. } = self;
        let pm = tree.pm();
        let staged = || leaves.iter().filter(|staged| staged.records() > 0);
        // P1: blocks and tickets; records that are not on the line of their counter.
        if let Some(op) = &mut op {
            op.prepare(flushed)?;
        } else if Geometry::<K, V, LEAF>::ONE_LINE {
            pm.in_order(); // the records, before their marks on the same line
        } else {
            pm.fence(flushed)?;
        }
        // P2: of each leaf the first segment.
        let nothing = Flushed::nothing();
        let mut committed = staged().fold(nothing, |all, staged| {
            all.and(staged.commit(pm, staged.first..staged.second_segment()))
        });
        // P3: the segments behind it.
        if staged().any(|staged| staged.second_segment() < staged.hint.count()) {
            pm.fence(committed)?;
            committed = staged().fold(Flushed::nothing(), |all, staged| {
                let per_segment = Geometry::<K, V, LEAF>::PER_SEGMENT;
                let (from, to) = (staged.second_segment(), staged.hint.count());
                (from..to).step_by(per_segment).fold(all, |all, first| {
                    all.and(staged.commit(pm, first..to.min(first + per_segment)))
                })
            });
        }
        if let Some(mut op) = op {
            let sealed = op.seal();
            let durable = pm.fence(committed.and(sealed))?; // DUR
            op.finish(durable);
        } else {
            pm.fence(committed)?; // DUR
        }
        // P4: what readers go by.
        for staged in staged() {
            staged.leaf.put_hint(pm, staged.hint);
            tree.count(staged.leaf.offset(), staged.records() as u64);
            tree.note_appended(&staged.entry, staged.hint.count());
        }
        Ok(())
    }
}
