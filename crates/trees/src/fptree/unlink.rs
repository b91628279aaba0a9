//! Leaves with few records merge; an emptied leaf is given back.
//!
//! A removal that leaves an emptied leaf, or leaves with few records beside each other, gives a leaf's
//! records to its left neighbour, and its block to the pool:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | copies of the records in free slots of the left neighbour | P2 |
//! | P2 | the left neighbour's fingerprints, then its state: with the copies, and the "splitting" bit; the ticket "live while the left neighbour's `next` leads here" (if records have blocks, in P1: it voids earlier ones, which name words that change now) | P3 |
//! | P3 | the left neighbour's `next` (the merge is decided); allocation bits | unlock |
//! | P4 | the left neighbour's state without the bit | never |
//!
//! It is a split run backwards, and needs nothing on the medium that a split has not: after P2 the
//! left leaf is what a split leaves between its steps P2 and P3, one that may hold records of the next
//! leaf. Recovery clears those ([`split`](super::split)): before P3 all copies, for the leaf that they came
//! from is the next one, with its records; after P3 none, for every key of what is now the next leaf
//! is greater. Either way each record is there once, and done twice it does nothing. The same goes for
//! any later moment, so P4 is not flushed: it goes with the next change of the leaf's state.
//!
//! An empty leaf has nothing to copy: the ticket, then P3.
//!
//! Both leaves are locked until the inner nodes are changed, so no thread sees a copy that a crash could take
//! back. A merge changes no record, and has no linearization point of its own: a reader that had found
//! the leaf that goes either has read it all before it was locked, or finds its version changed and
//! goes down again, to the left neighbour, with all the records.
//!
//! The left neighbour inherits the range of keys; its fence, a lower bound, stays true. The first leaf
//! has no left neighbour and stays.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Flushed, Medium, Op, Owner, PmError, Pool};
use pmindex_index::{Key, MAX_INLINE_WORDS, Value};
use pmindex_record::{Probe, bits};

use super::inner::Route;
use super::layout::{Geometry, LeafPtr, LeafState, Slot};
use super::leaf::{Leaf, link};
use super::tree::FpTree;

/// The locks of two leaves, which may be one.
type Both<'t> = (VersionGuard<'t>, Option<VersionGuard<'t>>);
/// Two leaves beside each other, and their locks.
type Pair<'t, K, V, const LEAF: usize> = (Leaf<'t, K, V, LEAF>, Leaf<'t, K, V, LEAF>, Both<'t>);

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
{
    /// Frees the leaf of a key, if it is (still) empty and not the first.
    #[cold]
    #[inline(never)]
    pub(super) fn unlink(&self, route: &Route<'_>) -> Result<(), PmError> {
        self.merge_into_left(route, 0)
    }

    /// Merges `leaf`, which is that of a key, and from which one of `left + 1` records was removed, with a neighbour, if
    /// both together have few. Without locks it only guesses whether they have, and whether it is still that leaf.
    #[cold]
    #[inline(never)]
    pub(super) fn merge_around(
        &self,
        route: &Route<'_>,
        leaf: &Leaf<'_, K, V, LEAF>,
        left: usize,
    ) -> Result<(), PmError> {
        let (pm, most) = (self.pm(), Geometry::<K, V, LEAF>::MERGED);
        if left == 0 {
            return self.unlink(route);
        }
        let next = leaf.next(pm);
        if next != 0 {
            let right = self.leaf(next)?;
            let state = right.state(pm);
            if let Some(slot) = bits(state.slots()).find(|&i| i < LEAF)
                && state.len() + left <= most
            {
                // Its key may have changed: it leads to some leaf.
                let key = Slot::<K, V>::key(&self.pool, right.slot(slot))?;
                return self.merge_into_left(&Route::to(&Probe::of_stored(&key)), most);
            }
        }
        let Some(low) = self.inner.find_low(pm, route) else { return Ok(()) };
        let before = self.leaf(self.inner.leaf_for(pm, &low.route::<K>()))?;
        if before.state(pm).len() + left <= most {
            return self.merge_into_left(route, most);
        }
        Ok(())
    }

    /// Moves the records of a key's leaf to its left neighbour and gives it back, if it has one and
    /// both have (still) `most` records at most, or this one none.
    fn merge_into_left(&self, route: &Route<'_>, most: usize) -> Result<(), PmError> {
        let pm = self.pm();
        let Some((left, right, guards)) = self.lock_with_left(route)? else { return Ok(()) };
        let (state, moved) = (left.state(pm), right.state(pm));
        if moved.len() == 0 {
            unlink_between(&self.pool, &left, &right)?;
        } else if state.len() + moved.len() <= most {
            self.move_and_unlink(&left, &right)?;
            self.count(left.offset(), moved.len() as u64);
            self.count(right.offset(), (moved.len() as u64).wrapping_neg());
        } else {
            return Ok(());
        }
        self.inner.remove(pm, route, right.offset());
        drop(guards);
        Ok(())
    }

    /// Merges two leaves with records; the inner nodes do not know it yet.
    pub(super) fn move_and_unlink(
        &self,
        left: &Leaf<'_, K, V, LEAF>,
        right: &Leaf<'_, K, V, LEAF>,
    ) -> Result<(), PmError> {
        let pm = self.pm();
        let (state, next) = (left.state(pm), right.next(pm));
        let (op, merged) = self.copy_into(left, right)?;
        if let Err(error) = link(&self.pool, op, left.next_cell(), next) {
            if pm.is_poisoned() {
                left.put_state(pm, state); // in memory alone: nothing is in progress any more
                pm.keep_stores();
            }
            return Err(error);
        }
        left.put_state(pm, merged); // P4
        pm.keep_stores();
        Ok(())
    }

    /// Steps P1 and P2; returns the operation that frees the right leaf, and the left leaf's state to
    /// come.
    pub(super) fn copy_into(
        &self,
        left: &Leaf<'_, K, V, LEAF>,
        right: &Leaf<'_, K, V, LEAF>,
    ) -> Result<(Op<'_, M>, LeafState), PmError> {
        let pm = self.pm();
        let (places, merged) = self.places_for(left.state(pm), right)?;
        let mut op = free_behind(&self.pool, left, right)?;
        // P1: the copies, before any bit names them.
        let slots = self.write_slots();
        let mut words = [0; 2 * MAX_INLINE_WORDS];
        let words = &mut words[..Slot::<K, V>::WORDS];
        let mut written = Vec::with_capacity(places.len());
        for &(from, to) in &places {
            pm.read_words(right.slot(from), words);
            pm.write_words(left.slot(to), words);
            written.push(left.slot(to));
        }
        let mut flushed = pm.flush_together(&mut written);
        if Slot::<K, V>::HAS_BLOCK {
            // Earlier tickets may name the words that own the records' blocks, now or then.
            op.changes(left.state_cell());
            for (from, _) in &places {
                op.changes(&right.slot(*from)[Slot::<K, V>::BLOCK_WORD]);
            }
            flushed = flushed.and(op.stage());
        }
        pm.fence(flushed)?;
        slots.end();
        // P2: the bits. The fingerprints precede them on the same line.
        for &(from, to) in &places {
            left.put_fingerprint(pm, to, right.fingerprint(pm, from));
        }
        left.forget_pending(pm);
        let committed = left.commit(pm, merged.splitting());
        if Slot::<K, V>::HAS_BLOCK {
            pm.fence(committed)?;
        } else {
            op.prepare(committed)?;
        }
        Ok((op, merged))
    }

    /// Returns a free slot of a leaf with `state` for each record of `right`, as from and to; and the state
    /// with them.
    fn places_for(
        &self,
        mut state: LeafState,
        right: &Leaf<'_, K, V, LEAF>,
    ) -> Result<(Vec<(usize, usize)>, LeafState), PmError> {
        let moved = right.state(self.pm());
        let mut places = Vec::with_capacity(moved.len());
        for from in bits(moved.slots()).filter(|&i| i < LEAF) {
            let preferred = self.home_of(right, from)?;
            let Some(to) = Geometry::<K, V, LEAF>::free_slot(state, preferred) else {
                let what = "more records than slots";
                return Err(PmError::Corrupt { what, offset: right.offset() });
            };
            state = state.with(to);
            places.push((from, to));
        }
        Ok((places, state))
    }

    /// Returns the leaf for `route` and its left neighbour, locked, the left one first; `None` if it is the
    /// first.
    fn lock_with_left(&self, route: &Route<'_>) -> Result<Option<Pair<'_, K, V, LEAF>>, PmError> {
        let pm = self.pm();
        loop {
            let right = self.inner.leaf_for(pm, route);
            let Some(low) = self.inner.find_low(pm, route) else { return Ok(None) };
            let left = self.inner.leaf_for(pm, &low.route::<K>());
            let guards = self.lock_both(left, right);
            // The ways to a leaf change only under its lock: what holds now stays so.
            let settled = self.inner.leaf_for(pm, route) == right
                && self
                    .inner
                    .find_low(pm, route)
                    .is_some_and(|low| self.inner.leaf_for(pm, &low.route::<K>()) == left);
            if settled {
                return Ok(Some((self.leaf(left)?, self.leaf(right)?, guards)));
            }
            drop(guards);
            pm.spin();
        }
    }

    /// Locks two leaves in the order of their locks.
    fn lock_both(&self, a: u64, b: u64) -> Both<'_> {
        let pm = self.pm();
        let (i, j) = (self.locks.index_of(a), self.locks.index_of(b));
        let (first, second) = if i <= j { (a, b) } else { (b, a) };
        let guard = self.lock_of(first).lock(pm);
        (guard, (i != j).then(|| self.lock_of(second).lock(pm)))
    }
}

/// Unlinks and frees `empty`, which follows `left`. Recovery does so too, with no lock.
pub(super) fn unlink_between<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    left: &Leaf<'_, K, V, LEAF>,
    empty: &Leaf<'_, K, V, LEAF>,
) -> Result<(), PmError> {
    let mut op = free_behind(pool, left, empty)?;
    op.prepare(Flushed::nothing())?; // P1: the ticket
    // P3: the neighbour's link.
    link(pool, op, left.next_cell(), empty.next(pool.pm()))
}

/// Returns an operation with the ticket that frees `leaf`, which follows `left`, when it does so no more.
fn free_behind<'p, K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &'p Pool<M>,
    left: &Leaf<'_, K, V, LEAF>,
    leaf: &Leaf<'_, K, V, LEAF>,
) -> Result<Op<'p, M>, PmError> {
    let (cell, offset) = (left.next_cell(), leaf.offset());
    if pool.pm().load_word(cell) != offset {
        return Err(PmError::Corrupt { what: "a leaf that its neighbour does not know", offset });
    }
    let mut op = pool.op()?;
    // Words of the freed leaf that earlier tickets name change with its next use.
    op.free(LeafPtr::new(offset), Owner { word: cell, mask: u64::MAX, expect: offset })?;
    op.changes(leaf.next_cell());
    if Slot::<K, V>::HAS_BLOCK {
        op.changes(leaf.state_cell());
    }
    Ok(op)
}
