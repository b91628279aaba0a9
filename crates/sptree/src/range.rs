//! Scans, in both directions.
//!
//! A scan takes one Bnode at a time: a private, sorted copy, validated as a whole, so its items were
//! all present and durable at one moment. Going on to the right it follows the Mnode's link, if the
//! Mnode has not changed since, or searches again; to the left it searches for what is below the
//! Mnode's low key. Either way the next Bnode starts exactly where the last one ended, even after splits
//! and merges in between: no record is seen twice, and none that stayed is missed.

use std::ops::Bound;

use pmindex_core::{Mapped, Medium, Pool};
use pmindex_index::{IndexError, Key, Records, Value};
use pmindex_record::{
    Barren, Bounds, LeafSource, OwnedRoute, Probe, Route, Scan, Scratch, Sink, Skipped,
};

use crate::leaves::{At, Leaves};
use crate::middle::NONE;
use crate::tree::SpTree;

/// Items of a range scan, from both ends.
pub type Range<'t, K, V, M = Mapped, const LEAF: usize = 64, const BUFFER: usize = 0> =
    Scan<ScanSource<'t, K, V, M, LEAF, BUFFER>>;

/// The source of a [`Range`].
pub struct ScanSource<'t, K, V, M: Medium, const LEAF: usize, const BUFFER: usize> {
    tree: &'t SpTree<K, V, M, LEAF, BUFFER>,
    front: Front<'t>,
    back: Back,
    barren: Barren,
    skipped: Skipped<'t>,
    scratch: Scratch,
}

/// The Mnode that the front reads next.
enum Front<'t> {
    /// That of the lower bound.
    Bound,
    /// The one after this, if this has not changed; else that of the lower bound.
    After(At<'t>),
}

/// The Mnode that the back reads next.
enum Back {
    /// That of the upper bound.
    Bound,
    /// The one on the left of this low key.
    Below(OwnedRoute),
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    fn scan_of(&self, bounds: Bounds<K>) -> Range<'_, K, V, M, LEAF, BUFFER> {
        let (front, back, barren) = (Front::Bound, Back::Bound, Barren::default());
        let (skipped, scratch) = (Skipped::default(), Scratch::default());
        Scan::new(ScanSource { tree: self, front, back, barren, skipped, scratch }, bounds)
    }
}

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    ScanSource<'t, K, V, M, LEAF, BUFFER>
{
    /// The Mnode to read next at the front, or `None` after the last.
    fn front_node(&self, lower: &Bound<K>) -> Option<At<'t>> {
        let (tree, pm) = (self.tree, self.tree.pm());
        if let Front::After(last) = &self.front {
            let index = tree.leaves.middle.next(last.node);
            let node = tree.leaves.middle.get(index);
            let version = node.lock.begin_read(pm);
            let bnode = tree.leaves.middle.dram.load(&node.bnode);
            if last.validate(pm) {
                if index == NONE {
                    return None;
                }
                tree.prefetch_right(node);
                return Some(At { index, node, version, bnode });
            }
        }
        Some(match lower {
            Bound::Included(key) | Bound::Excluded(key) => {
                tree.locate_to_scan(&Route::to(&Probe::of_stored(key)))
            }
            Bound::Unbounded => tree.locate_to_scan(&Route::LEAST),
        })
    }

    /// The Mnode to read next at the back.
    fn back_node(&self, upper: &Bound<K>) -> Option<At<'t>> {
        match (&self.back, upper) {
            (Back::Below(low), _) => self.tree.locate_below(&low.route::<K>()),
            (Back::Bound, Bound::Included(key) | Bound::Excluded(key)) => {
                Some(self.tree.locate(&Route::to(&Probe::of_stored(key))))
            }
            (Back::Bound, Bound::Unbounded) => Some(self.tree.locate(&Route::GREATEST)),
        }
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> LeafSource
    for ScanSource<'_, K, V, M, LEAF, BUFFER>
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
        tree.make_ready()?;
        let Some(at) = self.front_node(&bounds.lower) else { return Ok(false) };
        let copied = tree.copy_out(&at, bounds, most, &mut self.scratch, items);
        let Some(outside) = copied else { return Ok(true) };
        let (outside, taken) = (outside?, &items.records()[before..]);
        let limit = Leaves::<K, V, M, LEAF>::limit(&tree.pool);
        self.barren.count(taken.len(), at.bnode, limit)?;
        self.skipped.note(taken.len(), &at.node.lock, at.version);
        bounds.pass_up(taken);
        self.front = if outside.cut { Front::Bound } else { Front::After(at) };
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
        let tree = self.tree;
        tree.make_ready()?;
        let Some(at) = self.back_node(&bounds.upper) else { return Ok(false) };
        // Read before the copy, which validates both.
        let first = tree.leaves.middle.prev(at.node) == NONE;
        let low = (!first).then(|| tree.leaves.middle.low_route(at.node));
        let copied = tree.copy_out(&at, bounds, usize::MAX, &mut self.scratch, items);
        let Some(outside) = copied else { return Ok(true) };
        let more = !outside?.below && low.is_some();
        self.skipped.note(items.len(), &at.node.lock, at.version);
        bounds.pass_down(items);
        if let Some(low) = low {
            self.back = Back::Below(low);
        }
        Ok(more)
    }
}

pmindex_record::scans!(SpTree<K, V, M, LEAF: usize, BUFFER: usize>, Range);
