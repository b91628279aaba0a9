//! A full leaf splits.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the new leaf, its `next` and fence included; its ticket; the "splitting" bit of the old leaf's state | P2 |
//! | P2 | the old leaf's `next` (the split is decided); allocation bits | P3 |
//! | P3 | the old leaf's state: without the moved records, without the bit | unlock |
//!
//! The paper keeps a micro-log of the leaf under split. Here the leaf says it itself, with one bit
//! of its commit word, so that recovery finds it while it reads the headers anyway, and no number
//! of concurrent splits runs out of logs. Recovery of a leaf with the bit clears the records that
//! are greater than the next leaf's least, whichever step was reached, and the bit: before P2 there
//! are none, after P2 they are in the next leaf, and doing it twice does nothing.
//!
//! The old leaf's lock is held throughout, and until the inner nodes know the new leaf.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Medium, Owner, PmError, Pool};
use pmindex_index::{IndexError, Key, Shape, Value};
use pmindex_record::{Probe, RecordBlock, separator_between};

use super::image::LeafImage;
use super::inner::Route;
use super::layout::{Geometry, LeafState, Slot};
use super::leaf::{Leaf, link};
use super::tree::FpTree;

/// Which records move, and what separates the two leaves.
struct Plan<K> {
    /// Slots of the records that move.
    moved: Vec<usize>,
    /// The words of the separator of inline keys: the greatest key that stays.
    words: pmindex_index::Words,
    /// The separator of byte-string keys.
    bytes: Vec<u8>,
    key: std::marker::PhantomData<fn() -> K>,
}

impl<K: Key> Plan<K> {
    /// Makes a division: of the records in `order`, all but the first `keep` move.
    fn new<V: Value, M: Medium, const LEAF: usize>(
        pool: &Pool<M>,
        leaf: &Leaf<'_, K, V, LEAF>,
        mut order: Vec<usize>,
        keep: usize,
    ) -> Result<Self, PmError> {
        let moved = order.split_off(keep);
        let (left, right) = (leaf.slot(order[keep - 1]), leaf.slot(moved[0]));
        let mut plan =
            Self { moved, words: [0; 4], bytes: Vec::new(), key: std::marker::PhantomData };
        match K::SHAPE {
            Shape::Inline(_) => {
                plan.words = K::to_words(Slot::<K, V>::key(pool, left)?.borrowed());
            }
            Shape::Bytes => {
                RecordBlock::prefetch(pool, Slot::<K, V>::block(pool.pm(), right));
                let (left, right) =
                    (Slot::<K, V>::key(pool, left)?, Slot::<K, V>::key(pool, right)?);
                let (left, right) = (K::to_bytes(left.borrowed()), K::to_bytes(right.borrowed()));
                plan.bytes = separator_between(&left, &right, leaf.offset())?.into_owned();
            }
        }
        Ok(plan)
    }

    fn route(&self) -> Route<'_> {
        match K::SHAPE {
            Shape::Inline(_) => Route::to_words(&self.words),
            Shape::Bytes => Route::to_bytes(&self.bytes),
        }
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
{
    /// Splits `left`, which `guard` holds and which has at least two records, in half; or, if
    /// `incoming` is greater than every key of the index, so that ascending keys leave full leaves.
    #[cold]
    #[inline(never)]
    pub(super) fn split(
        &self,
        left: &Leaf<'_, K, V, LEAF>,
        state: LeafState,
        guard: VersionGuard<'_>,
        incoming: Option<&Probe<'_, K>>,
    ) -> Result<(), IndexError> {
        let pm = self.pm();
        let order = left.order(&self.pool, state)?;
        if order.len() < 2 {
            let what = "a full leaf without records";
            return Err(PmError::Corrupt { what, offset: left.offset() }.into());
        }
        let appending = match (incoming, order.last()) {
            (Some(probe), Some(last)) if left.next(pm) == 0 => {
                Slot::<K, V>::cmp_key(&self.pool, left.slot(*last), probe)?.is_lt()
            }
            _ => false,
        };
        let keep = if appending { order.len() - 1 } else { order.len().div_ceil(2) };
        let plan = Plan::new(&self.pool, left, order, keep)?;
        let route = plan.route();
        let promise = self.inner.promise(pm, &route)?;
        match self.split_leaf(left, state, &plan) {
            Ok(right) => {
                let shrunk = self.pool.complete(|| self.shrink(left, state, &plan));
                self.inner.insert(pm, &promise, &route, right);
                drop(guard);
                Ok(shrunk?)
            }
            Err(error) => {
                if pm.is_poisoned() {
                    left.put_state(pm, state); // in memory alone: nothing is in progress any more
                    pm.keep_stores();
                }
                self.inner.forgo(pm, &promise);
                Err(error.into())
            }
        }
    }

    /// Steps P1 and P2 of a split in half, and no more.
    #[cfg(test)]
    pub(super) fn split_but_do_not_shrink(&self, left: &Leaf<'_, K, V, LEAF>, state: LeafState) {
        let order = left.order(&self.pool, state).expect("intact");
        let keep = order.len().div_ceil(2);
        let plan = Plan::new(&self.pool, left, order, keep).expect("intact");
        self.split_leaf(left, state, &plan).expect("room");
    }

    /// Steps P1 and P2; returns the new leaf.
    fn split_leaf(
        &self,
        left: &Leaf<'_, K, V, LEAF>,
        state: LeafState,
        plan: &Plan<K>,
    ) -> Result<u64, PmError> {
        let pm = self.pm();
        let mut op = self.pool.op()?;
        let block = op.reserve_bytes(Geometry::<K, V, LEAF>::BYTES, 64)?;
        let offset = block.ptr().offset();
        // P1: everything about the new leaf, before anything leads to it.
        let image = self.image_of_right(left, plan)?;
        let filled = pm.stream_words(self.leaf(offset)?.words(), &image);
        let marked = left.commit(pm, state.splitting());
        op.allocate(&block, Owner { word: left.next_cell(), mask: u64::MAX, expect: offset })?;
        if Slot::<K, V>::HAS_BLOCK {
            // Earlier tickets may name the words that no longer own a moved record's block.
            op.changes(left.state_cell());
            for slot in &plan.moved {
                op.changes(&left.slot(*slot)[Slot::<K, V>::BLOCK_WORD]);
            }
        }
        op.prepare(filled.and(marked))?;
        // P2: the link.
        link(&self.pool, op, left.next_cell(), offset)?;
        self.pool.note_split();
        Ok(offset)
    }

    /// Step P3.
    fn shrink(
        &self,
        left: &Leaf<'_, K, V, LEAF>,
        state: LeafState,
        plan: &Plan<K>,
    ) -> Result<(), PmError> {
        let pm = self.pm();
        let all = LeafState::of_slots(state.slots());
        let kept = plan.moved.iter().fold(all, |state, slot| state.without(*slot));
        let committed = left.commit(pm, kept);
        pm.fence(committed)?;
        Ok(())
    }

    /// Returns the words of the new leaf: each record in its preferred slot, or the next free one.
    fn image_of_right(
        &self,
        left: &Leaf<'_, K, V, LEAF>,
        plan: &Plan<K>,
    ) -> Result<Vec<u64>, PmError> {
        let pm = self.pm();
        let mut image = LeafImage::<K, V, LEAF>::new();
        for &from in &plan.moved {
            let words = left.slot(from);
            let fingerprint = left.fingerprint(pm, from);
            let preferred = self.home_of(left, from)?;
            image.push_at(preferred, fingerprint, |slot| pm.read_words(words, slot))?;
        }
        Ok(image.finish(left.next(pm), &plan.words))
    }

    /// Returns the slot that the record in slot `from` of a leaf prefers in any leaf.
    pub(super) fn home_of(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        from: usize,
    ) -> Result<usize, PmError> {
        Ok(match K::SHAPE {
            Shape::Inline(_) => {
                let key = Slot::<K, V>::key(&self.pool, leaf.slot(from))?;
                Geometry::<K, V, LEAF>::preferred_slot(&Probe::of_stored(&key))
            }
            Shape::Bytes => {
                Geometry::<K, V, LEAF>::slot_of_fingerprint(leaf.fingerprint(self.pm(), from))
            }
        })
    }
}
