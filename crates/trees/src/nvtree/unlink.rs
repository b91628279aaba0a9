//! An emptied leaf is given back.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the ticket "live while the left neighbour's `next` leads here" | P2 |
//! | P2 | the left neighbour's `next` (LIN); allocation bits | unlock (DUR) |
//!
//! One word decides, so there is nothing to log. The left neighbour inherits the range of keys; its
//! fence, a lower bound, stays true. The first leaf has no left neighbour and stays.

use pmindex_core::{Medium, Owner, PmError, PmU64};
use pmindex_index::{Key, Value};

use super::inner::Route;
use super::leaf::{Leaf, link, prepare_free};
use super::split::{Follow, Linked};
use super::tree::NvTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    NvTree<K, V, M, LEAF, INNER>
{
    /// Frees the leaf of a key, if it is (still) empty and not the first.
    #[cold]
    #[inline(never)]
    pub(super) fn unlink(&self, route: &Route<'_>) -> Result<(), PmError> {
        let pm = self.pm();
        let linked = self.lock_with_link(route)?;
        let Linked { leaf, cell, .. } = &linked;
        let hint = leaf.hint(pm);
        if linked.first || hint.len() > 0 || leaf.is_behind(pm, hint) {
            return Ok(());
        }
        linked.verify(pm)?;
        let promise = self.inner.promise(pm, None)?;
        let empty = leaf.offset();
        let follow = Follow::after(|quietly| match (pm.load_word(cell) == empty, quietly) {
            (true, false) => self.inner.forgo(pm, &promise),
            (true, true) => self.inner.forgo(self.inner.medium(), &promise),
            (false, false) => self.inner.remove(pm, &promise, route, empty),
            (false, true) => self.inner.remove(self.inner.medium(), &promise, route, empty),
        });
        let next = leaf.next(pm);
        unlink_behind(&self.pool, cell, leaf)?;
        follow.end();
        self.move_waypoint(empty, next);
        drop(linked);
        self.go_on();
        Ok(())
    }
}

/// Unlinks and frees `empty`, to which `cell` leads. Recovery does so too, with no lock.
pub(super) fn unlink_behind<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &pmindex_core::Pool<M>,
    cell: &PmU64,
    empty: &Leaf<'_, K, V, LEAF>,
) -> Result<(), PmError> {
    let offset = empty.offset();
    // P1: the ticket.
    let owner = Owner { word: cell, mask: u64::MAX, expect: offset };
    let op = prepare_free(pool, offset, owner, None)?;
    // P2, LIN: the neighbour's link.
    link(pool, op, cell, empty.next(pool.pm()))
}
