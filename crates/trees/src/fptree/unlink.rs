//! An emptied leaf is given back.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the ticket "live while the left neighbour's `next` leads here" | P2 |
//! | P2 | the left neighbour's `next` (LIN); allocation bits | unlock (DUR) |
//!
//! One word decides, so there is nothing to log. The left neighbour inherits the range of keys; its
//! fence, a lower bound, stays true. The first leaf has no left neighbour and stays.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Flushed, Medium, Owner, PmError};
use pmindex_index::{Key, Value};

use super::inner::Route;
use super::layout::{LeafPtr, Slot};
use super::leaf::{Leaf, link};
use super::tree::FpTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
{
    /// Gives the leaf of a key back, if it is (still) empty and not the first.
    #[cold]
    #[inline(never)]
    pub(super) fn unlink(&self, route: &Route<'_>) -> Result<(), PmError> {
        let pm = self.pm();
        loop {
            let empty = self.inner.leaf_for(pm, route);
            let Some(low) = self.inner.find_low(pm, route) else { return Ok(()) };
            let left = self.inner.leaf_for(pm, &low.route::<K>());
            let guards = self.lock_both(left, empty);
            // The ways to a leaf change only under its lock: what holds now stays so.
            let settled = self.inner.leaf_for(pm, route) == empty
                && self
                    .inner
                    .find_low(pm, route)
                    .is_some_and(|low| self.inner.leaf_for(pm, &low.route::<K>()) == left);
            if !settled {
                drop(guards);
                pm.spin();
                continue;
            }
            let (left, empty) = (self.leaf(left)?, self.leaf(empty)?);
            if empty.state(pm).len() == 0 {
                unlink_between(&self.pool, &left, &empty)?;
                self.inner.remove(pm, route, empty.offset());
            }
            drop(guards);
            return Ok(());
        }
    }

    /// Locks two leaves in the order of their locks.
    fn lock_both(&self, a: u64, b: u64) -> (VersionGuard<'_>, Option<VersionGuard<'_>>) {
        let pm = self.pm();
        let (i, j) = (self.locks.index_of(a), self.locks.index_of(b));
        let (first, second) = if i <= j { (a, b) } else { (b, a) };
        let guard = self.lock_of(first).lock(pm);
        (guard, (i != j).then(|| self.lock_of(second).lock(pm)))
    }
}

/// Unlinks and frees `empty`, which follows `left`. Recovery does so too, with no lock.
pub(super) fn unlink_between<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &pmindex_core::Pool<M>,
    left: &Leaf<'_, K, V, LEAF>,
    empty: &Leaf<'_, K, V, LEAF>,
) -> Result<(), PmError> {
    let pm = pool.pm();
    let (cell, offset) = (left.next_cell(), empty.offset());
    if pm.load_word(cell) != offset {
        return Err(PmError::Corrupt { what: "a leaf that its neighbour does not know", offset });
    }
    let mut op = pool.op()?;
    // P1: the ticket. Words of the freed leaf that earlier tickets name change with its next use.
    op.free(LeafPtr::new(offset), Owner { word: cell, mask: u64::MAX, expect: offset })?;
    op.changes(empty.next_cell());
    if Slot::<K, V>::HAS_BLOCK {
        op.changes(empty.state_cell());
    }
    op.prepare(Flushed::nothing())?;
    // P2, LIN: the neighbour's link.
    link(pool, op, cell, empty.next(pm))
}
