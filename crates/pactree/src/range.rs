//! Scans, in both directions.
//!
//! A scan takes one node at a time: a private, sorted copy, validated as a whole, so its items were all present
//! and durable at one moment. To the right it follows the node's link, if the node has not changed since; to
//! the left it goes on with the keys below the node's low key. Either way it goes on exactly where it was,
//! whatever split or merged in between: nothing is seen twice, nothing that stayed is missed.

use std::ops::Bound;

use pmindex_core::{Mapped, Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, Records, Value};
use pmindex_record::{
    Barren, Bounds, LeafSource, Outside, Probe, RecordBlock, Route, Scan, Sink, Skipped, bits,
};

use crate::access::At;
use crate::layout::Slot;
use crate::node::Node;
use crate::tree::PacTree;

/// Items of a range scan, from both ends.
pub type Range<'t, K, V, M = Mapped, const LEAF: usize = 64> = Scan<Nodes<'t, K, V, M, LEAF>>;

/// The source of a [`Range`].
pub struct Nodes<'t, K, V, M: Medium, const LEAF: usize> {
    tree: &'t PacTree<K, V, M, LEAF>,
    /// The node that the front read last; `None`: it continues at the lower bound.
    front: Option<At<'t>>,
    /// The low key of the node that the back read last; `None`: it continues at the upper bound.
    back: Option<Vec<u8>>,
    barren: Barren,
    skipped: Skipped<'t>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> PacTree<K, V, M, LEAF> {
    fn scan_of(&self, bounds: Bounds<K>) -> Range<'_, K, V, M, LEAF> {
        let (barren, skipped) = (Barren::default(), Skipped::default());
        Scan::new(Nodes { tree: self, front: None, back: None, barren, skipped }, bounds)
    }

    /// Appends the records of a node that lie between the bounds, the least `most`, ascending; `None` if it
    /// has changed. Whatever goes wrong, nothing is appended.
    fn copy_out(
        &self,
        at: &At<'_>,
        bounds: &Bounds<K>,
        most: usize,
        items: &mut impl Sink<K, V>,
    ) -> Option<Result<Outside, PmError>> {
        let before = items.count();
        let copied =
            self.node(at.node).and_then(|node| self.copy_records(&node, bounds, most, items));
        let valid = at.validate(self.pm());
        if !valid || copied.is_err() {
            items.truncate(before);
        }
        if !valid {
            self.pm().spin();
            return None;
        }
        Some(copied)
    }

    fn copy_records(
        &self,
        node: &Node<'_, K, V, LEAF>,
        bounds: &Bounds<K>,
        most: usize,
        items: &mut impl Sink<K, V>,
    ) -> Result<Outside, PmError> {
        let pm = self.pm();
        let (from, to) = (prefix_of(&bounds.lower, 0), prefix_of(&bounds.upper, u64::MAX));
        let mut outside = Outside::default();
        let mut slots = 0;
        for i in bits(node.bitmap(pm)).filter(|&i| i < LEAF) {
            let prefix = node.prefix(pm, i);
            outside.below |= prefix < from;
            outside.above |= prefix > to;
            slots |= u64::from((from..=to).contains(&prefix)) << i;
        }
        let order = node.order(&self.pool, slots)?;
        if Slot::<K, V>::HAS_BLOCK {
            self.fetch_blocks(node, &order.slots()[..order.slots().len().min(most)]);
        }
        let full = items.count().saturating_add(most);
        for &slot in order.slots() {
            if items.count() >= full {
                outside.cut = true;
                break;
            }
            let prefix = node.prefix(pm, slot.into());
            let slot = Slot::<K, V>::readable(&self.pool, node.slot(slot.into()));
            if prefix != from && prefix != to {
                items.add(&slot)?; // between the bounds
                continue;
            }
            items.add_if(&slot, |key| {
                let (below, above) = (bounds.is_below(key), bounds.is_above(key));
                outside.below |= below;
                outside.above |= above;
                !(below || above)
            })?;
        }
        Ok(outside)
    }

    /// Fetches the blocks of some slots: of all the first lines, then the rest.
    fn fetch_blocks(&self, node: &Node<'_, K, V, LEAF>, slots: &[u8]) {
        let block = |slot: &u8| Slot::<K, V>::block(self.pm(), node.slot(usize::from(*slot)));
        for slot in slots {
            RecordBlock::prefetch(&self.pool, block(slot));
        }
        for slot in slots {
            RecordBlock::prefetch_rest(&self.pool, block(slot));
        }
    }
}

/// Returns the first word of a bound's key.
fn prefix_of<K: Key>(bound: &Bound<K>, none: u64) -> u64 {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Probe::of_stored(key).prefix(),
        Bound::Unbounded => none,
    }
}

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize> Nodes<'t, K, V, M, LEAF> {
    /// Returns the node to read next at the front, or `None` after the last.
    fn front_node(&self, lower: &Bound<K>) -> Result<Option<At<'t>>, PmError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        if let Some(last) = &self.front {
            let next = tree.node(last.node)?.next(pm).offset();
            let at = tree.version_of(next);
            if last.validate(pm) {
                if next != 0 {
                    tree.prefetch_node(next);
                }
                return Ok((next != 0).then_some(at));
            }
        }
        let at = match lower {
            Bound::Included(key) | Bound::Excluded(key) => {
                tree.locate_probe(&Probe::of_stored(key))?
            }
            Bound::Unbounded => tree.version_of(tree.head),
        };
        tree.prefetch_node(at.node);
        Ok(Some(at))
    }

    /// Returns the node to read next at the back.
    fn back_node(&self, upper: &Bound<K>) -> Result<At<'t>, PmError> {
        let tree = self.tree;
        match (&self.back, upper) {
            (Some(low), _) => tree.locate(low, true),
            (None, Bound::Included(key) | Bound::Excluded(key)) => {
                tree.locate_probe(&Probe::of_stored(key))
            }
            (None, Bound::Unbounded) => tree.locate_route(&Route::GREATEST),
        }
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> LeafSource for Nodes<'_, K, V, M, LEAF> {
    type Key = K;
    type Value = V;
    type Medium = M;
    type Bound = K;

    fn pool(&self) -> &Pool<M> {
        &self.tree.pool
    }

    pmindex_record::watches_skipped!();

    fn keep(bounds: Bounds<K>, records: &mut Records<K, V>) {
        bounds.keep(records);
    }

    fn read_front(
        &mut self,
        bounds: &mut Bounds<K>,
        most: usize,
        items: &mut impl Sink<K, V>,
    ) -> Result<bool, IndexError> {
        let (tree, before) = (self.tree, items.count());
        let Some(at) = self.front_node(&bounds.lower)? else { return Ok(false) };
        let Some(outside) = tree.copy_out(&at, bounds, most, items) else {
            self.front = None;
            return Ok(true);
        };
        let (outside, taken) = (outside?, &items.records()[before..]);
        self.barren.count(taken.len(), at.node, tree.limit())?;
        self.skipped.note(taken.len(), at.lock, at.version);
        bounds.pass_up(taken);
        self.front = (!outside.cut).then_some(at);
        Ok(outside.cut || !outside.above)
    }

    fn read_back(
        &mut self,
        bounds: &mut Bounds<K>,
        _: usize,
        items: &mut Vec<(K, V)>,
    ) -> Result<bool, IndexError> {
        let tree = self.tree;
        let at = self.back_node(&bounds.upper)?;
        // A node's low key is the same all its life, so it belongs to the copy, which validates both.
        let low = if at.node == tree.head {
            Ok(None)
        } else {
            tree.node(at.node).and_then(|node| node.low(&tree.pool)).map(Some)
        };
        let copied = tree.copy_out(&at, bounds, usize::MAX, items);
        let Some(outside) = copied else { return Ok(true) };
        let (outside, low) = (outside?, low?);
        let more = !outside.below && low.is_some();
        self.skipped.note(items.len(), at.lock, at.version);
        bounds.pass_down(items);
        if low.is_some() {
            self.back = low;
        }
        Ok(more)
    }
}

pmindex_record::scans!(PacTree<K, V, M, LEAF: usize>, Range);
