//! Two leaves with few records become one.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | a new leaf with the live records of both, its link included; its ticket, and those of the two | P2 |
//! | P2 | the link to the left one (decides all); allocation bits | unlock (DUR) |
//!
//! As in a compaction ([`split`](super::split)) one word decides, so there is nothing to log and
//! nothing to recover: the two leaves are live while the link leads to the left one, the new one while
//! it leads there.
//!
//! The locks of both leaves and of the link are held until the inner nodes know. A merge changes no
//! record, and has no linearization point of its own: a reader that had found one of the two either has
//! read it all before it was locked, or finds its version changed and goes down again. The inner nodes
//! lose the right leaf first, so that keys of either lead to the left one, which is locked; then the new
//! one takes its place.

use std::cell::Cell;

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Medium, Owner, PmError, PmU64};
use pmindex_index::{Key, Value};
use pmindex_record::{OwnedRoute, Probe, Slot, bits};

use super::image::LeafImage;
use super::inner::{Entry, Route};
use super::layout::{Geometry, LeafPtr};
use super::leaf::{Leaf, link};
use super::split::Follow;
use super::tree::NvTree;

/// Two leaves beside each other and the link that leads to the left one, all locked.
struct Pair<'t, K, V, const LEAF: usize> {
    left: Leaf<'t, K, V, LEAF>,
    right: Leaf<'t, K, V, LEAF>,
    cell: &'t PmU64,
    /// The separator between the two: a way to the left one.
    low: OwnedRoute,
    _guards: Vec<VersionGuard<'t>>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    NvTree<K, V, M, LEAF, INNER>
{
    /// Two neighbours with at most this many records together become one: fewer than a full leaf is
    /// compacted with, so that a few more do not make it split again.
    pub(super) const MERGED: usize = LEAF * 5 / 8;

    /// Merges the leaf of a key, from which one of `left + 1` records was removed, with a neighbour, if
    /// both together have few. Without locks it only guesses whether they have.
    #[cold]
    #[inline(never)]
    pub(super) fn merge_around(&self, route: &Route<'_>, left: usize) -> Result<(), PmError> {
        let pm = self.pm();
        if left == 0 {
            return self.unlink(route);
        }
        let fits = |leaf: &Leaf<'_, K, V, LEAF>| leaf.hint(pm).len() + left <= Self::MERGED;
        let found = self.inner.find_neighbours(pm, route);
        let next = self.leaf(found.leaf)?.next(pm);
        if next != 0 {
            let right = self.leaf(next)?;
            if let Some(slot) = bits(right.hint(pm).live()).find(|&i| i < LEAF)
                && fits(&right)
            {
                // Its key may have changed: it leads to some leaf.
                let key = Slot::<K, V>::key(&self.pool, right.slot(slot))?;
                return self.merge_into_left(&Route::to(&Probe::of_stored(&key)));
            }
        }
        match found.left {
            Some(before) if fits(&self.leaf(before)?) => self.merge_into_left(route),
            _ => Ok(()),
        }
    }

    /// Merges the leaf of a key with its left neighbour, if it has one and both (still) have few
    /// records.
    fn merge_into_left(&self, route: &Route<'_>) -> Result<(), PmError> {
        let pm = self.pm();
        let Some(pair) = self.lock_pair(route)? else { return Ok(()) };
        let Pair { left, right, cell, low, .. } = &pair;
        let (state, moved) = (left.hint(pm), right.hint(pm));
        if state.len() + moved.len() > Self::MERGED
            || left.is_behind(pm, state)
            || right.is_behind(pm, moved)
        {
            return Ok(());
        }
        let (old, gone) = (left.offset(), right.offset());
        if pm.load_word(cell) != old || left.next(pm) != gone {
            let what = "a leaf that its neighbour does not know";
            return Err(PmError::Corrupt { what, offset: gone });
        }
        let mut image = LeafImage::<K, V, LEAF>::new();
        image.push_all(pm, left)?;
        image.push_all(pm, right)?;
        let segment = image.segment();
        let promise = self.inner.promise(pm, None)?;
        let (block, removed) = (Cell::new(0), Cell::new(false));
        let follow = Follow::after(|quietly| {
            let new = block.get();
            let linked = new != 0 && pm.load_word(cell) == new;
            let (low, new) = (low.route::<K>(), Entry::word(new, segment));
            let inner = &self.inner;
            if !linked {
                if quietly {
                    inner.forgo(inner.medium(), &promise);
                } else {
                    inner.forgo(pm, &promise);
                }
                return;
            }
            // Each of the two is whole, whatever panics: what is done is not done again.
            if !removed.get() {
                if quietly {
                    inner.remove(inner.medium(), &promise, route, gone);
                } else {
                    inner.remove(pm, &promise, route, gone);
                }
                removed.set(true);
            }
            if quietly {
                inner.replace(inner.medium(), &low, new);
            } else {
                inner.replace(pm, &low, new);
            }
        });
        let mut op = self.pool.op()?;
        let reserved = op.reserve_bytes(Geometry::<K, V, LEAF>::BYTES, 64)?;
        let new = reserved.ptr().offset();
        // P1: the new leaf, before anything leads to it.
        let image = image.finish(right.next(pm), &left.fence(pm));
        let filled = pm.stream_words(self.leaf(new)?.words(), &image);
        let live = Owner { word: cell, mask: u64::MAX, expect: old };
        op.allocate(&reserved, Owner { expect: new, ..live })?;
        op.free(LeafPtr::new(old), live)?;
        op.free(LeafPtr::new(gone), live)?;
        op.prepare(filled)?;
        // P2: the link.
        block.set(new);
        link(&self.pool, op, cell, new)?;
        follow.end();
        self.move_waypoint(old, new);
        self.move_waypoint(gone, new);
        drop(pair);
        self.go_on();
        Ok(())
    }

    /// Locks the leaf of a key, its left neighbour and the link to that; `None` if there is none.
    fn lock_pair(&self, route: &Route<'_>) -> Result<Option<Pair<'_, K, V, LEAF>>, PmError> {
        let pm = self.pm();
        loop {
            let found = self.inner.find_neighbours(pm, route);
            let (Some(left), Some(low)) = (found.left, self.inner.find_low(pm, route)) else {
                return Ok(None);
            };
            let before = self.inner.find_neighbours(pm, &low.route::<K>());
            let mut guards = Vec::with_capacity(3);
            if before.left.is_none() {
                guards.push(self.head_lock.lock(pm));
            }
            let leaves = [before.left.unwrap_or(left), left, found.leaf];
            let mut locks = leaves.map(|leaf| self.locks.index_of(leaf));
            locks.sort_unstable();
            for (i, &index) in locks.iter().enumerate() {
                if i == 0 || locks[i - 1] != index {
                    guards.push(self.locks.all()[index].lock(pm));
                }
            }
            // The ways to a leaf and its predecessor change only under their locks: what holds now
            // stays so.
            if before.leaf != left || !found.validate(pm) || !before.validate(pm) {
                drop(guards);
                pm.spin();
                continue;
            }
            let cell = match before.left {
                Some(before) => self.leaf(before)?.next_cell(),
                None => self.root()?.head.as_word(),
            };
            let (left, right) = (self.leaf(left)?, self.leaf(found.leaf)?);
            return Ok(Some(Pair { left, right, cell, low, _guards: guards }));
        }
    }
}
