//! Many keys at a time.
//!
//! Both operations send up to 64 keys down together, level by level, so that their cache misses
//! overlap. `try_insert_many` also shares its fences: it stages records in input order, each in its own
//! leaf, under as many leaf locks as it takes, then shifts in all leaves side by side, one line each
//! at a time:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | all blocks, with their tickets | P2 |
//! | P2 | of each leaf the stores to the next line of its shift (the last ones are LIN) | the next P2, at last return (DUR) |
//!
//! A stage ends early at a record that cannot join it (its leaf is full or has changed): what is
//! staged is committed, the record goes in alone, and the next stage begins after it. So results
//! are those of single inserts in input order, and the first error stops the batch at its record.

use pmindex_core::{Flushed, Medium, Op, PmError, PmU64, Word};
use pmindex_index::{IndexError, InsertMany, Key, Noted, Value};
use pmindex_record::{Pair, PairValue};

use super::access::At;
use super::entry::{Entry, Sought};
use super::inner::{Cursor, Hint};
use super::layout::{Form, LINE_WORDS};
use super::leaf::{Image, Leaf};
use super::shift::{Gap, place};
use super::tree::FastFair;
use super::write::Change;

/// The number of keys that are searched for together.
const BATCH: usize = 64;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
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
        let pm = self.pm();
        let mut sought = Vec::with_capacity(BATCH.min(keys.len()));
        let mut located = [None; BATCH];
        for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            sought.clear();
            for key in keys {
                sought.push(Sought::new::<K>(key.borrowed())?);
            }
            self.locate_many(&sought, &mut located);
            for (i, out) in out.iter_mut().enumerate() {
                *out = match &located[i] {
                    Some(at) => {
                        let found = self.read(at, &sought[i], Form::<K, V>::value);
                        if at.validate(pm) { found? } else { self.get(keys[i].borrowed())? }
                    }
                    None => self.get(keys[i].borrowed())?,
                };
            }
        }
        Ok(())
    }

    /// The leaves of up to [`BATCH`] keys, each at a version; `None` for one that has just changed,
    /// or is not known to be whole.
    #[inline(always)]
    fn locate_many<'t>(&'t self, keys: &[Sought<'_>], located: &mut [Option<At<'t>>; BATCH]) {
        let pm = self.pm();
        located.fill(None);
        let version = self.inner.begin_read(pm);
        let Ok(top) = self.top() else { return };
        let mut cursors = [Cursor { child: top, hint: Hint::default() }; BATCH];
        // With a copy in DRAM it pays to go all the way down with each key.
        let levels = if self.copies.is_some() { 0 } else { top.level() };
        if levels < top.level() {
            for (key, cursor) in keys.iter().zip(&mut cursors) {
                let Ok(found) = self.go_down(key) else { return };
                *cursor = found;
                self.prefetch_leaf(found.child.offset());
            }
        }
        for level in (0..levels).rev() {
            for (key, cursor) in keys.iter().zip(&mut cursors) {
                if self.step_down(cursor, key).is_err() {
                    return; // a node that has changed, or damage: one by one
                }
                if level > 0 {
                    self.prefetch_node(cursor.child);
                } else {
                    self.prefetch_leaf(cursor.child.offset());
                }
            }
        }
        for ((_, cursor), place) in keys.iter().zip(&cursors).zip(&mut *located) {
            let leaf = cursor.child.offset();
            let lock = self.lock_of(leaf);
            *place = Some(At { leaf, lock, version: lock.begin_read(pm), hint: cursor.hint });
        }
        if !self.inner.validate(pm, version) {
            located.fill(None);
        }
        for place in located {
            let whole =
                |at: &At<'_>| self.leaf(at.leaf).is_ok_and(|leaf| leaf.state(pm).is_of(self.era));
            *place = place.filter(whole);
        }
    }

    /// Adds many records whose keys are new, with one fence per phase for all; nothing is visible before its fence.
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
        let mut keys = Vec::with_capacity(records.len());
        let mut refused = None;
        for (key, _) in records {
            match Sought::new::<K>(key.borrowed()) {
                Ok(key) => keys.push(key),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let mut located = [None; BATCH];
        self.locate_many(&keys, &mut located);
        let mut next = 0;
        while next < keys.len() {
            self.pm().keep_stores(); // what is done is done
            let mut stage = Stage::new(self);
            let mut results = Vec::with_capacity(keys.len() - next);
            while next < keys.len() {
                let added =
                    located[next].and_then(|at| stage.add(&keys[next], &records[next].1, &at));
                let Some(new) = added else { break };
                results.push(new);
                next += 1;
            }
            stage.commit()?;
            inserted.append(&mut results);
            if let Some((key, value)) = records[..keys.len()].get(next) {
                inserted.push(self.try_insert(key.borrowed(), value.borrowed())?.is_ok());
                next += 1;
                // Leaves that have changed, by our own hand mostly.
                for (key, place) in keys.iter().zip(&mut located).skip(next) {
                    if place.is_none_or(|at| !at.validate(self.pm())) {
                        *place = self.locate_to_write(key).ok();
                    }
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }
}

/// A leaf with staged records.
struct Staged<'t, K, V, M: Medium, const LEAF: usize> {
    leaf: Leaf<'t, K, V, LEAF>,
    /// The leaf as it will be.
    image: Image,
    /// The stores to be made, in order.
    stores: Vec<(usize, u64)>,
    /// Staged records.
    records: u64,
    /// The version at which it was located.
    at: At<'t>,
    /// The lock, unless another staged leaf shares it.
    change: Option<Change<'t, M>>,
}

/// Records that are committed together.
///
/// Leaf locks are only tried, so in any order: a stage that cannot have one ends, and unlocks the others.
struct Stage<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> {
    tree: &'t FastFair<K, V, M, LEAF, INNER>,
    op: Option<Op<'t, M>>,
    /// The blocks of the records, to be flushed.
    written: Vec<&'t [PmU64]>,
    leaves: Vec<Staged<'t, K, V, M, LEAF>>,
    /// Staged records: the place of the leaf among `leaves`, the first word of the entry.
    added: Vec<(usize, u64)>,
}

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    Stage<'t, K, V, M, LEAF, INNER>
{
    fn new(tree: &'t FastFair<K, V, M, LEAF, INNER>) -> Self {
        let leaves = Vec::with_capacity(BATCH);
        let added = Vec::with_capacity(BATCH);
        Self { tree, op: None, written: Vec::new(), leaves, added }
    }

    /// Stages a record (step P1), or finds its key there (`false`). `None`: it cannot join, for
    /// whatever reason, and nothing was changed.
    fn add(&mut self, key: &Sought<'_>, value: &V, at: &At<'t>) -> Option<bool> {
        let tree = self.tree;
        let datum = Pair::<K, V>::encode(value.borrowed()).ok()?;
        let index = self.hold(at)?;
        let image = &self.leaves[index].image;
        let gap = tree.gap(image, key).ok()?;
        if gap.before < LEAF {
            let entry = image.entry(gap.before);
            if Form::<K, V>::cmp_key(&tree.pool, entry, key).ok()?.is_eq() {
                return Some(false);
            }
        }
        // A later shift of this stage must not move what a ticket of this stage names.
        let named = Form::<K, V>::HAS_BLOCK && self.leaves[index].records > 0;
        if named || image.free(LEAF) == 0 {
            return None;
        }
        let entry = if Form::<K, V>::HAS_BLOCK {
            self.add_block(index, gap, key, &datum)?
        } else {
            let entry = Form::<K, V>::entry(key, &datum, 0);
            let Staged { image, stores, .. } = &mut self.leaves[index];
            place(image, LEAF, gap, entry, |at, word| stores.push((at, word)))?;
            entry
        };
        self.leaves[index].records += 1;
        self.added.push((index, entry[0]));
        Some(true)
    }

    /// Stages a record with a block. `None`: nothing was changed.
    fn add_block(
        &mut self,
        index: usize,
        gap: Gap,
        key: &Sought<'_>,
        datum: &PairValue<'_>,
    ) -> Option<Entry> {
        let tree = self.tree;
        if self.op.is_none() {
            self.op = Some(tree.pool.op().ok()?);
        }
        let (op, staged) = (self.op.as_mut()?, &mut self.leaves[index]);
        let (entry, block, words) = tree.fill_block(op, key, datum).ok()?;
        self.written.push(words);
        let mut drafted = staged.image.clone();
        let mut stores = Vec::with_capacity(2 * LEAF);
        let placed = place(&mut drafted, LEAF, gap, entry, |at, word| stores.push((at, word)))?;
        op.allocate(&block, staged.leaf.owner(placed, entry)).ok()?;
        for (at, _) in &stores {
            op.changes(&staged.leaf.words()[*at]);
        }
        staged.image = drafted;
        staged.stores.append(&mut stores);
        Some(entry)
    }

    /// Returns the place among `leaves` of the leaf, which is locked at the version at which it was located.
    fn hold(&mut self, at: &At<'t>) -> Option<usize> {
        let pm = self.tree.pm();
        let leaf = self.tree.leaf(at.leaf).ok()?;
        let mut change = None;
        if let Some(guard) = at.lock.try_upgrade(pm, at.version) {
            change = Some(self.tree.change(&leaf, guard));
        } else {
            // Perhaps it is this stage that holds the lock, since this very version.
            let holds = |s: &Staged<'_, K, V, M, LEAF>| {
                s.at.version == at.version && s.change.is_some() && std::ptr::eq(s.at.lock, at.lock)
            };
            self.leaves.iter().position(holds)?;
            let same = |s: &Staged<'_, K, V, M, LEAF>| s.at.leaf == at.leaf;
            if let Some(index) = self.leaves.iter().position(same) {
                return Some(index);
            }
        }
        let image = leaf.image(pm);
        if !image.state().is_of(self.tree.era) {
            if let Some(change) = change {
                change.done();
            }
            return None;
        }
        let stores = Vec::with_capacity(LEAF);
        self.leaves.push(Staged { leaf, image, stores, records: 0, at: *at, change });
        Some(self.leaves.len() - 1)
    }

    /// Makes the staged records durable and visible (end of P1, and P2).
    fn commit(mut self) -> Result<(), PmError> {
        if let Err(error) = self.persist() {
            self.take_back();
            return Err(error);
        }
        for staged in self.leaves {
            if staged.records > 0 {
                self.tree.count(staged.leaf.offset(), staged.records);
            }
            if let Some(change) = staged.change {
                change.done();
            }
        }
        Ok(())
    }

    /// Does all but the end of [`commit`](Self::commit).
    fn persist(&mut self) -> Result<(), PmError> {
        let pm = self.tree.pm();
        match self.op.take() {
            Some(mut op) => {
                op.prepare(pm.flush_together(&mut self.written))?;
                let last = self.shift()?;
                let sealed = op.seal();
                let durable = pm.fence(last.and(sealed))?; // DUR
                op.finish(durable);
            }
            None if self.leaves.iter().all(|staged| staged.stores.is_empty()) => {}
            None => {
                let last = self.shift()?;
                pm.fence(last)?; // DUR
            }
        }
        Ok(())
    }

    /// The disk failed at a later line of some shift: records whose own line was fenced before leave
    /// their leaves again, as do those of other leaves. In memory alone, from which no more reaches the
    /// file; there they may stay, as refused writes may.
    #[cold]
    fn take_back(&self) {
        let pm = self.tree.pm();
        if !pm.is_poisoned() {
            return; // nothing was stored to a leaf
        }
        for &(index, id) in &self.added {
            let leaf = &self.leaves[index].leaf;
            let state = leaf.state(pm).in_era(0); // it may have copies from a shift
            if id == 0 {
                pm.store_word(leaf.state_cell(), state.with_zero(false).into_word());
                continue;
            }
            pm.store_word(leaf.state_cell(), state.into_word());
            for i in 0..LEAF {
                if pm.load_word(leaf.id_cell(i)) == id {
                    pm.store_word(leaf.id_cell(i), 0);
                }
            }
        }
        pm.keep_stores();
    }

    /// Step P2, as often as there are lines in the longest shift; the last fence is the caller's.
    fn shift(&mut self) -> Result<Flushed, PmError> {
        let pm = self.tree.pm();
        let mut at = vec![0; self.leaves.len()];
        loop {
            let mut flushed = Flushed::nothing();
            let mut unfinished = false;
            for (staged, at) in self.leaves.iter().zip(&mut at) {
                let Some(&(first, _)) = staged.stores.get(*at) else { continue };
                let line = first / LINE_WORDS;
                while let Some(&(word, value)) = staged.stores.get(*at)
                    && word / LINE_WORDS == line
                {
                    pm.in_order();
                    pm.store_word(&staged.leaf.words()[word], value);
                    *at += 1;
                }
                let words = &staged.leaf.words()[line * LINE_WORDS..][..LINE_WORDS];
                flushed = flushed.and(pm.flush_words(words));
                unfinished |= *at < staged.stores.len();
            }
            if !unfinished {
                return Ok(flushed);
            }
            pm.fence(flushed)?; // durable before: the stores to the next lines
        }
    }
}
