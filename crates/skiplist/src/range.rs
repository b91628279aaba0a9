//! Scans, in both directions.
//!
//! A scan reads one node at a time: a private copy, validated as a whole, so its items were all present and
//! durable at one moment. Forwards it follows the node's link, if the node has not changed since, or descends
//! the towers again; backwards it descends to the separator on the node's left.

use std::ops::Bound;

use pmindex_core::{Mapped, Medium, PmError, Pool, rank_sort};
use pmindex_index::{IndexError, Key, Records, Value};
use pmindex_record::{
    Barren, Bounds, LeafSource, OwnedRoute, Pair, Probe, Readable, RecordBlock, Route, Scan, Sink,
    Skipped,
};

use crate::access::At;
use crate::layout::has_block;
use crate::list::SkipList;
use crate::node::{Node, key_of, value_of};

/// Iterates over a range from both ends.
pub type Range<'t, K, V, M = Mapped, const LINES: usize = 8> = Scan<Nodes<'t, K, V, M, LINES>>;

/// The source of a [`Range`].
pub struct Nodes<'t, K, V, M: Medium, const LINES: usize> {
    list: &'t SkipList<K, V, M, LINES>,
    /// The node that the front has read, at its version; `None`: it reads the node of the lower bound.
    front: Option<At<'t>>,
    /// The back reads the node of this separator; `None`: the node of the upper bound.
    back: Option<OwnedRoute>,
    barren: Barren,
    skipped: Skipped<'t>,
}

/// A record to read.
struct InPair<'t, M: Medium> {
    pool: &'t Pool<M>,
    pair: [u64; 2],
}

impl<K: Key, V: Value, M: Medium> Readable<K, V> for InPair<'_, M> {
    fn key(&self) -> Result<K, PmError> {
        key_of::<K, V, M>(self.pool, self.pair)
    }
    fn key_into(&self, key: &mut K) -> Result<(), PmError> {
        *key = key_of::<K, V, M>(self.pool, self.pair)?;
        Ok(())
    }
    fn value(&self, _: &K) -> Result<V, PmError> {
        value_of::<K, V, M>(self.pool, self.pair[1])
    }
    fn value_into(&self, _: &K, value: &mut V) -> Result<(), PmError> {
        if has_block::<K, V>() {
            return Pair::<K, V>::value_into(self.pool, self.pair[1], value);
        }
        *value = V::from_words(&self.pair[1..]);
        Ok(())
    }
}

/// The records of a node that a scan did not take.
#[derive(Default)]
struct Outside {
    below: bool,
    above: bool,
    cut: bool,
}

impl<K: Key, V: Value, M: Medium, const LINES: usize> SkipList<K, V, M, LINES> {
    fn scan_of(&self, bounds: Bounds<K>) -> Range<'_, K, V, M, LINES> {
        let (barren, skipped) = (Barren::default(), Skipped::default());
        Scan::new(Nodes { list: self, front: None, back: None, barren, skipped }, bounds)
    }

    fn locate_to_scan(&self, route: &Route<'_>) -> At<'_> {
        self.locate(route, |node| Node::<LINES>::prefetch(&self.pool, node))
    }

    /// Appends the records of a node between the bounds, ascending; of those without blocks the least `most`.
    /// Returns `None` if the node has changed. After an error nothing is appended.
    fn copy_out(
        &self,
        at: &At<'_>,
        bounds: &Bounds<K>,
        most: usize,
        items: &mut impl Sink<K, V>,
    ) -> Option<Result<Outside, PmError>> {
        let before = items.count();
        let copied = self.node(at.node).and_then(|node| {
            if has_block::<K, V>() {
                self.copy_records(&node, bounds, items)
            } else {
                Ok(self.copy_words(&node, bounds, most, items))
            }
        });
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

    /// Copies records of two words: sorts the keys by rank.
    fn copy_words(
        &self,
        node: &Node<'_, LINES>,
        bounds: &Bounds<K>,
        most: usize,
        items: &mut impl Sink<K, V>,
    ) -> Outside {
        let mut outside = Outside::default();
        let mut entries = node.entries(self.pm());
        entries.retain(|entry| {
            let key = K::from_words(&entry.pair[..1]);
            let (low, high) = (bounds.is_below(&key), bounds.is_above(&key));
            outside.below |= low;
            outside.above |= high;
            !(low || high)
        });
        outside.cut = entries.len() > most;
        let mut keys = [0; 64];
        entries.iter().zip(&mut keys).for_each(|(entry, key)| *key = entry.pair[0]);
        let mut order = [0; 64];
        for &rank in rank_sort(&keys[..entries.len()], &mut order).iter().take(most) {
            let pair = entries[usize::from(rank)].pair;
            items.push((K::from_words(&pair[..1]), V::from_words(&pair[1..])));
        }
        outside
    }

    /// Copies records with blocks, which are prefetched together.
    fn copy_records(
        &self,
        node: &Node<'_, LINES>,
        bounds: &Bounds<K>,
        items: &mut impl Sink<K, V>,
    ) -> Result<Outside, PmError> {
        let (before, entries) = (items.count(), node.entries(self.pm()));
        for entry in &entries {
            RecordBlock::prefetch(&self.pool, entry.pair[1]);
        }
        let mut outside = Outside::default();
        for entry in &entries {
            items.add_if(&InPair { pool: &*self.pool, pair: entry.pair }, |key| {
                let (low, high) = (bounds.is_below(key), bounds.is_above(key));
                outside.below |= low;
                outside.above |= high;
                !(low || high)
            })?;
        }
        items.records_mut()[before..].sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(outside)
    }
}

impl<'t, K: Key, V: Value, M: Medium, const LINES: usize> Nodes<'t, K, V, M, LINES> {
    /// Returns the node to read next at the front, or `None` after the last.
    fn front_node(&self, lower: &Bound<K>) -> Result<Option<At<'t>>, PmError> {
        let (list, pm) = (self.list, self.list.pm());
        if let Some(last) = &self.front {
            let node = list.node(last.node)?.next(pm);
            let lock = list.lock_of(node);
            let version = lock.begin_read(pm);
            if last.validate(pm) {
                if node == 0 {
                    return Ok(None);
                }
                // Prefetch the next node while this one is copied.
                Node::<LINES>::prefetch(&list.pool, list.node(node)?.next(pm));
                return Ok(Some(At { node, lock, version }));
            }
        }
        Ok(Some(match lower {
            Bound::Included(key) | Bound::Excluded(key) => {
                list.locate_to_scan(&Route::to(&Probe::of_stored(key)))
            }
            Bound::Unbounded => list.locate_to_scan(&Route::LEAST),
        }))
    }

    /// Returns the node to read next at the back, with the separator on its left.
    fn back_node(&self, upper: &Bound<K>) -> (At<'t>, Option<OwnedRoute>) {
        let list = self.list;
        let find = |route: &Route<'_>| {
            // The separator on the left of a node is the same as long as the node's version is.
            let at = list.locate_to_scan(route);
            (at, list.towers.around(list.pm(), route).low)
        };
        match (&self.back, upper) {
            (Some(low), _) => find(&low.route::<K>()),
            (None, Bound::Included(key) | Bound::Excluded(key)) => {
                find(&Route::to(&Probe::of_stored(key)))
            }
            (None, Bound::Unbounded) => find(&Route::GREATEST),
        }
    }
}

impl<K: Key, V: Value, M: Medium, const LINES: usize> LeafSource for Nodes<'_, K, V, M, LINES> {
    type Key = K;
    type Value = V;
    type Medium = M;
    type Bound = K;

    fn pool(&self) -> &Pool<M> {
        &self.list.pool
    }

    fn read_front(
        &mut self,
        bounds: &mut Bounds<K>,
        most: usize,
        items: &mut impl Sink<K, V>,
    ) -> Result<bool, IndexError> {
        let (list, before) = (self.list, items.count());
        let Some(at) = self.front_node(&bounds.lower)? else { return Ok(false) };
        let Some(outside) = list.copy_out(&at, bounds, most, items) else { return Ok(true) };
        let (outside, taken) = (outside?, &items.records()[before..]);
        let limit = SkipList::<K, V, M, LINES>::node_limit(&list.pool);
        self.barren.count(taken.len(), at.node, limit)?;
        self.skipped.note(taken.len(), at.lock, at.version);
        bounds.pass_up(taken);
        self.front = (!outside.cut).then_some(at);
        Ok(outside.cut || !outside.above)
    }

    fn watch(&mut self) {
        self.skipped.watch();
    }

    fn stays(&self) -> bool {
        self.skipped.stay(self.list.pm())
    }

    fn keep(bounds: Bounds<K>, records: &mut Records<K, V>) {
        bounds.keep(records);
    }

    fn read_back(
        &mut self,
        bounds: &mut Bounds<K>,
        _: usize,
        items: &mut Vec<(K, V)>,
    ) -> Result<bool, IndexError> {
        let (at, low) = self.back_node(&bounds.upper);
        let copied = self.list.copy_out(&at, bounds, usize::MAX, items);
        let Some(outside) = copied else { return Ok(true) };
        let more = !outside?.below && low.is_some();
        self.skipped.note(items.len(), at.lock, at.version);
        bounds.pass_down(items);
        if let Some(low) = low {
            self.back = Some(low);
        }
        Ok(more)
    }
}

pmindex_record::scans!(SkipList<K, V, M, LINES: usize>, Range);
