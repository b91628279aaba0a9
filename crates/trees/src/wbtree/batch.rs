//! Many keys at a time.
//!
//! Both operations send up to 64 keys down together, level by level, so that their cache misses
//! overlap. `try_insert_many` also shares its fences: it stages records in input order, each in its own
//! leaf, then makes all of them durable at once and commits them at once:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | all slots (and blocks, with their tickets) | P2 |
//! | P2 | for each leaf: order line; fingerprints, then the state (LIN of all its records) | return (DUR) |
//!
//! A stage ends early at a record that cannot join it (its leaf is full, or the operation is): what
//! is staged is committed, the record goes in alone, and the next stage begins after it. So results
//! are those of single inserts in input order, and the first error stops the batch at its record.

use pmindex_core::{Flushed, Medium, Op, PmError, PmU64};
use pmindex_index::{IndexError, InsertMany, Key, Noted, Value};
use pmindex_record::{EncodedValue, Probe, Slot, bits};

use super::inner::Inner;
use super::layout::{Child, LeafState, Pending, free_slot};
use super::leaf::{Incoming, Leaf, fill_record};
use super::order::Order;
use super::separator::Route;
use super::tree::{STRUCTURE, WbTree};

/// The number of keys that descend together.
const BATCH: usize = 64;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    WbTree<K, V, M, LEAF, INNER>
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
        self.do_get_many(keys, out).noted(&self.pool)
    }

    pub(super) fn do_get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        assert_eq!(keys.len(), out.len(), "one place per key");
        let (pool, pm) = (&*self.pool, self.pm());
        let mut probes = Vec::with_capacity(BATCH.min(keys.len()));
        for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            probes.clear();
            for key in keys {
                probes.push(Probe::<K>::new(key.borrowed())?);
            }
            let leaves =
                self.descend_many(&probes, |leaf, probe| self.prefetch_slot(leaf, probe))?;
            let mut candidates = [0u64; BATCH];
            for ((candidates, probe), &leaf) in candidates.iter_mut().zip(&probes).zip(&leaves) {
                let leaf = self.leaf(leaf)?;
                let state = leaf.state(pm);
                *candidates = leaf.matches(pm, state, probe);
                if let Some(i) = bits(*candidates).next().filter(|&i| i < LEAF) {
                    pm.prefetch(&leaf.slot(i)[0]);
                }
            }
            for (i, out) in out.iter_mut().enumerate() {
                let leaf = self.leaf(leaves[i])?;
                *out = match leaf.find_among(pool, candidates[i], &probes[i])? {
                    Some(slot) => Some(Slot::<K, V>::value(pool, leaf.slot(slot))?),
                    None => None,
                };
            }
        }
        Ok(())
    }

    /// Returns the leaves of up to [`BATCH`] keys; `arriving` is told each as soon as it is known.
    #[inline(always)]
    fn descend_many(
        &self,
        probes: &[Probe<'_, K>],
        arriving: impl Fn(u64, &Probe<'_, K>),
    ) -> Result<[u64; BATCH], PmError> {
        let top = self.top()?;
        let mut nodes = [top; BATCH];
        for _ in 0..top.level() {
            for (node, probe) in nodes.iter_mut().zip(probes) {
                let (_, child) = self.child_for(*node, &Route::to(probe))?;
                *node = child;
                if child.level() > 0 {
                    Inner::<K, V, LEAF, INNER>::prefetch(&self.pool, child.offset());
                } else {
                    arriving(child.offset(), probe);
                }
            }
        }
        Ok(nodes.map(Child::offset))
    }

    /// Adds many records whose keys are new, with one fence per phase for all; nothing is visible before its fence.
    ///
    /// # Cost
    /// 2 fences for up to 64 records, byte strings or not; for each the lines of its record, for each
    /// leaf two. A record whose leaf is full ends the phase and goes in alone.
    ///
    /// # Durability
    /// The results that are returned are durable, whether the batch was stopped or not.
    pub fn try_insert_many(&mut self, records: &[(K, V)]) -> InsertMany {
        self.do_try_insert_many(records).noted(&self.pool)
    }

    pub(super) fn do_try_insert_many(&self, records: &[(K, V)]) -> InsertMany {
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
        self.begin()?;
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
        let mut leaves = self.descend_many(&probes, |leaf, _| self.prefetch_leaf(leaf))?;
        let mut next = 0;
        while next < probes.len() {
            self.pm().keep_stores(); // what is done is done
            let mut stage = Stage::new(self);
            let mut results = Vec::with_capacity(probes.len() - next);
            self.put_unfinished(STRUCTURE);
            while next < probes.len() {
                let Some(new) = stage.add(&probes[next], &records[next].1, leaves[next]) else {
                    break;
                };
                results.push(new);
                next += 1;
            }
            stage.commit()?;
            self.put_unfinished(0);
            inserted.append(&mut results);
            if let Some((key, value)) = records[..probes.len()].get(next) {
                inserted.push(self.do_try_insert(key.borrowed(), value.borrowed())?);
                next += 1;
                // It may have split leaves.
                for (leaf, probe) in leaves.iter_mut().zip(&probes).skip(next) {
                    *leaf = self.descend(&Route::to(probe), |_| ())?.offset();
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }
}

/// A leaf with staged records.
struct Staged<'t, K, V, const LEAF: usize> {
    leaf: Leaf<'t, K, V, LEAF>,
    /// The state as it is.
    before: LeafState,
    /// The slots to be committed.
    slots: u64,
    order: Order,
}

/// Records that will be committed together.
struct Stage<'t, K, V, M: Medium, const LEAF: usize, const INNER: usize> {
    tree: &'t WbTree<K, V, M, LEAF, INNER>,
    op: Option<Op<'t, M>>,
    /// What is to be flushed.
    written: Vec<&'t [PmU64]>,
    leaves: Vec<Staged<'t, K, V, LEAF>>,
    records: u64,
}

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    Stage<'t, K, V, M, LEAF, INNER>
{
    fn new(tree: &'t WbTree<K, V, M, LEAF, INNER>) -> Self {
        let (written, leaves) = (Vec::with_capacity(2 * BATCH), Vec::with_capacity(BATCH));
        Self { tree, op: None, written, leaves, records: 0 }
    }

    /// Stages a record (step P1), or finds its key there (`false`). `None`: it cannot join, for
    /// whatever reason, and nothing was changed.
    #[inline(always)]
    fn add(&mut self, probe: &Probe<'_, K>, value: &V, leaf: u64) -> Option<bool> {
        let tree = self.tree;
        let datum = EncodedValue::new(value.borrowed()).ok()?;
        let index = self.take(leaf)?;
        let Staged { leaf, slots, .. } = self.leaves[index];
        let candidates = leaf.matches(tree.pm(), leaf.state(tree.pm()).with_slots(slots), probe);
        if leaf.find_stored(&tree.pool, candidates, probe).ok()?.is_some() {
            return Some(false);
        }
        let slot = free_slot(slots, probe.preferred_slot(LEAF), LEAF)?;
        let order = &self.leaves[index].order;
        let rank = order.rank(&tree.pool, &leaf, slots, probe).ok()?;
        self.write(&leaf, slot, Incoming { probe, datum: &datum })?;
        let staged = &mut self.leaves[index];
        staged.order.insert(rank, slot);
        staged.slots |= 1 << slot;
        self.records += 1;
        Some(true)
    }

    /// Returns the place among `leaves` of a leaf.
    #[inline(always)]
    fn take(&mut self, offset: u64) -> Option<usize> {
        if let Some(index) = self.leaves.iter().position(|s| s.leaf.offset() == offset) {
            return Some(index);
        }
        let (pool, pm) = (&*self.tree.pool, self.tree.pm());
        let leaf = self.tree.leaf(offset).ok()?;
        let before = leaf.state(pm);
        let slots = before.slots();
        if !before.is_valid(LEAF) || leaf.missing(pm, before) != 0 {
            return None; // a single insert settles it, or says what is wrong
        }
        let order = Order::of(pool, &leaf, before, slots).ok()?;
        self.leaves.push(Staged { leaf, before, slots, order });
        Some(self.leaves.len() - 1)
    }

    /// Writes a record and stores its fingerprint.
    #[inline(always)]
    fn write(
        &mut self,
        leaf: &Leaf<'t, K, V, LEAF>,
        slot: usize,
        record: Incoming<'_, K, V>,
    ) -> Option<()> {
        let (pool, pm) = (&*self.tree.pool, self.tree.pm());
        if Slot::<K, V>::HAS_BLOCK {
            if self.op.is_none() {
                self.op = Some(pool.op().ok()?);
            }
            self.written.extend(fill_record(pool, self.op.as_mut()?, leaf, slot, record).ok()?);
        } else {
            let Incoming { probe, datum } = record;
            self.written.push(Slot::<K, V>::fill(pm, leaf.slot(slot), probe, datum, 0));
        }
        leaf.put_fingerprint(pm, slot, record.probe.fingerprint());
        Some(())
    }

    /// Makes the staged records durable and visible (end of P1, and P2).
    fn commit(mut self) -> Result<(), PmError> {
        let tree = self.tree;
        let pm = tree.pm();
        if self.records == 0 {
            return Ok(());
        }
        let flushed = pm.flush_together(&mut self.written);
        let leaves = &self.leaves;
        if let Some(mut op) = self.op.take() {
            op.prepare(flushed)?;
            self.written.clear();
            publish(pm, leaves);
            let sealed = op.seal();
            let published = flush(pm, leaves);
            let durable = pm.fence(sealed.and(published))?; // DUR
            op.finish(durable);
        } else {
            pm.fence(flushed)?;
            self.written.clear();
            publish(pm, leaves);
            let published = flush(pm, leaves);
            pm.fence(published)?; // DUR
        }
        tree.count(self.records);
        Ok(())
    }
}

/// A stage that a panic of a conversion ends, or an error, leaves records in free slots. Makes their words durable:
/// [`Pending`] relies on it, also through another handle.
impl<K, V, M: Medium, const LEAF: usize, const INNER: usize> Drop
    for Stage<'_, K, V, M, LEAF, INNER>
{
    fn drop(&mut self) {
        if self.written.is_empty() {
            return;
        }
        let pm = self.tree.pool.pm();
        let flushed = pm.flush_together(&mut self.written);
        // If this fails, the pool has lost its disk, and takes no more inserts.
        let _ = pm.fence(flushed);
    }
}

/// Step P2.
fn publish<K: Key, V: Value, const LEAF: usize>(
    pm: &impl Medium,
    leaves: &[Staged<'_, K, V, LEAF>],
) {
    for staged in leaves.iter().filter(|s| s.slots != s.before.slots()) {
        staged.leaf.publish(pm, staged.before, staged.slots, &staged.order, Pending::NONE); // LIN
    }
}

#[track_caller]
fn flush<K: Key, V: Value, const LEAF: usize>(
    pm: &impl Medium,
    leaves: &[Staged<'_, K, V, LEAF>],
) -> Flushed {
    leaves
        .iter()
        .filter(|s| s.slots != s.before.slots())
        .fold(Flushed::nothing(), |all, staged| all.and(staged.leaf.flush_lines(pm)))
}
