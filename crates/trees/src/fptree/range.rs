//! Scans, in both directions.
//!
//! A scan takes one leaf at a time: a private, sorted copy, validated as a whole, so its items were
//! all present and durable at one moment. Going on to the right it follows the leaf's link, if the
//! leaf has not changed since, or descends again; to the left it descends to the separator on the
//! leaf's left. Either way the next leaf starts exactly where the last one ended, whatever split or
//! vanished in between: nothing is seen twice, nothing that stayed is missed.

use std::ops::Bound;

use pmindex_core::{Mapped, Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, Records, Value};
use pmindex_record::{Barren, Bounds, LeafSource, Probe, Scan, Scratch, Sink, Skipped};

use super::access::At;
use super::inner::{OwnedRoute, Route, Siblings};
use super::tree::FpTree;

/// Items of a range scan, from both ends.
pub type Range<'t, K, V, M = Mapped, const LEAF: usize = 54, const INNER: usize = 14> =
    Scan<Leaves<'t, K, V, M, LEAF, INNER>>;

/// The source of a [`Range`].
pub struct Leaves<'t, K, V, M: Medium, const LEAF: usize, const INNER: usize> {
    tree: &'t FpTree<K, V, M, LEAF, INNER>,
    front: Front<'t>,
    back: Back,
    barren: Barren,
    skipped: Skipped<'t>,
    scratch: Scratch,
}

/// Which leaf the front reads next.
enum Front<'t> {
    /// That of the lower bound.
    Bound,
    /// The one after this, if this has not changed; else that of the lower bound. With the place of
    /// this among its siblings, to prefetch by.
    After(At<'t>, Siblings),
}

/// Which leaf the back reads next.
enum Back {
    /// That of the upper bound.
    Bound,
    /// That of the separator on the left of the last one.
    Below(OwnedRoute),
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
{
    fn scan_of(&self, bounds: Bounds<K>) -> Range<'_, K, V, M, LEAF, INNER> {
        let leaves = Leaves {
            tree: self,
            front: Front::Bound,
            back: Back::Bound,
            barren: Barren::default(),
            skipped: Skipped::default(),
            scratch: Scratch::default(),
        };
        Scan::new(leaves, bounds)
    }
}

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    Leaves<'t, K, V, M, LEAF, INNER>
{
    /// Returns the leaf to read next at the front, or `None` after the last.
    fn front_leaf(&self, lower: &Bound<K>) -> Result<Option<(At<'t>, Siblings)>, PmError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        if let Front::After(last, siblings) = &self.front {
            let leaf = tree.leaf(last.leaf)?.next(pm);
            let lock = tree.lock_of(leaf);
            let version = lock.begin_read(pm);
            if last.validate(pm) {
                let siblings = siblings.next();
                tree.prefetch_leaf(tree.inner.sibling(siblings, 1));
                return Ok((leaf != 0).then_some((At { leaf, lock, version }, siblings)));
            }
        }
        Ok(Some(match lower {
            Bound::Included(key) | Bound::Excluded(key) => {
                tree.locate_to_scan(&Route::to(&Probe::of_stored(key)))
            }
            Bound::Unbounded => tree.locate_to_scan(&Route::LEAST),
        }))
    }

    /// Returns the leaf to read next at the back, with the separator on its left.
    fn back_leaf(&self, upper: &Bound<K>) -> (At<'t>, Option<OwnedRoute>) {
        let find = |route: &Route<'_>| {
            let at = self.tree.locate(route);
            (at, self.tree.inner.find_low(self.tree.pm(), route))
        };
        match (&self.back, upper) {
            (Back::Below(low), _) => find(&low.route::<K>()),
            (Back::Bound, Bound::Included(key) | Bound::Excluded(key)) => {
                find(&Route::to(&Probe::of_stored(key)))
            }
            (Back::Bound, Bound::Unbounded) => find(&Route::GREATEST),
        }
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> LeafSource
    for Leaves<'_, K, V, M, LEAF, INNER>
{
    type Key = K;
    type Value = V;
    type Medium = M;
    type Bound = K;

    fn pool(&self) -> &Pool<M> {
        &self.tree.pool
    }

    fn read_front(
        &mut self,
        bounds: &mut Bounds<K>,
        most: usize,
        items: &mut impl Sink<K, V>,
    ) -> Result<bool, IndexError> {
        let (tree, before) = (self.tree, items.count());
        let Some((at, siblings)) = self.front_leaf(&bounds.lower)? else { return Ok(false) };
        let copied = tree.copy_out(&at, bounds, most, &mut self.scratch, items);
        let Some(outside) = copied else { return Ok(true) };
        let (outside, taken) = (outside?, &items.records()[before..]);
        let limit = FpTree::<K, V, M, LEAF, INNER>::leaf_limit(&tree.pool);
        self.barren.count(taken.len(), at.leaf, limit)?;
        self.skipped.note(taken.len(), at.lock, at.version);
        bounds.pass_up(taken);
        self.front = if outside.cut { Front::Bound } else { Front::After(at, siblings) };
        Ok(outside.cut || !outside.above)
    }

    pmindex_record::watches_skipped!();

    fn keep(bounds: Bounds<K>, records: &mut Records<K, V>) {
        bounds.keep(records);
    }

    fn read_back(
        &mut self,
        bounds: &mut Bounds<K>,
        _: usize,
        items: &mut Vec<(K, V)>,
    ) -> Result<bool, IndexError> {
        let (at, low) = self.back_leaf(&bounds.upper);
        // The separator on a leaf's left is the same all its life, so it belongs to the copy.
        let copied = self.tree.copy_out(&at, bounds, usize::MAX, &mut self.scratch, items);
        let Some(outside) = copied else { return Ok(true) };
        let more = !outside?.below && low.is_some();
        self.skipped.note(items.len(), at.lock, at.version);
        bounds.pass_down(items);
        if let Some(low) = low {
            self.back = Back::Below(low);
        }
        Ok(more)
    }
}

pmindex_record::scans!(FpTree<K, V, M, LEAF: usize, INNER: usize>, Range);
