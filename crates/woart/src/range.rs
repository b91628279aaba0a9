//! Scans, in both directions.
//!
//! A scan takes records in batches. It descends to its bound, noting the children beyond it at each node on
//! the path, then visits these in order, each node and leaf at a version that it validates. If a node has
//! changed, the batch ends, and the next one begins at its last key.

use std::marker::PhantomData;
use std::ops::Bound;

use pmindex_core::{Mapped, Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, Records, Value};
use pmindex_record::{Bounds, LeafSource, Pair, Readable, RecordBlock, Scan, Sink};

use crate::index::{KeyBytes, Woart};
use crate::layout::{Child, Digit, digit};
use crate::node::Node;
use crate::path::{At, Entered, Near, Step, deep};
use crate::tree::Tree;

/// The maximum number of records of a batch.
const BATCH: usize = 128;
/// The number of leaves that are prefetched.
const AHEAD: usize = 4;

/// Iterates over a range from both ends.
pub type Range<'t, K, V, M = Mapped, const COW: bool = false> = Scan<Batches<'t, K, V, M, COW>>;

/// The source of a [`Range`].
pub struct Batches<'t, K, V, M: Medium, const COW: bool> {
    tree: &'t Tree<M>,
    /// If it is watched: the way to the first record that the last read has taken.
    way: Option<Vec<At<'t>>>,
    types: PhantomData<fn() -> (K, V)>,
}

/// A node or leaf that is still to be read.
#[derive(Clone, Copy)]
struct Next<'t> {
    child: Child,
    /// The lock of its parent.
    at: At<'t>,
    /// A lower bound of a node's depth.
    least: usize,
}

/// A leaf to read.
struct InLeaf<'t, M: Medium> {
    pool: &'t Pool<M>,
    leaf: u64,
}

impl<K: Key, V: Value, M: Medium> Readable<K, V> for InLeaf<'_, M> {
    fn key(&self) -> Result<K, PmError> {
        Pair::<K, V>::key_in(self.pool, self.leaf)
    }
    fn key_into(&self, key: &mut K) -> Result<(), PmError> {
        *key = Pair::<K, V>::key_in(self.pool, self.leaf)?;
        Ok(())
    }
    fn value(&self, _: &K) -> Result<V, PmError> {
        Pair::<K, V>::value_in(self.pool, self.leaf)
    }
    fn value_into(&self, _: &K, value: &mut V) -> Result<(), PmError> {
        Pair::<K, V>::value_into(self.pool, self.leaf, value)
    }
}

impl<K: Key, V: Value, M: Medium, const COW: bool> Woart<K, V, M, COW> {
    fn scan_of(&self, bounds: Bounds<K>) -> Range<'_, K, V, M, COW> {
        Scan::new(Batches { tree: &self.tree, way: None, types: PhantomData }, bounds)
    }
}

impl<M: Medium> Tree<M> {
    /// Returns the children at or beyond a key, upwards or downwards, the nearest last, as far as a scan of
    /// `most` records needs them, and whether there are more; without a key, from the end. Returns `None` if
    /// a node on the path has changed.
    fn beyond(
        &self,
        key: Option<&[u8]>,
        up: bool,
        most: usize,
    ) -> Result<Option<(Vec<Next<'_>>, bool)>, PmError> {
        let Some(key) = key else {
            let Step { child, at, .. } = self.first_step(false)?;
            let all = (!child.is_none()).then_some(Next { child, at, least: 0 });
            return Ok(at.validate(self.pm()).then(|| (all.into_iter().collect(), false)));
        };
        let mut entered: Vec<Entered<'_>> = Vec::with_capacity(12);
        let Some(way) = self.descend(key, usize::MAX, false, |node| entered.push(*node))? else {
            return Ok(None);
        };
        // All keys below a node share the bytes before its depth with the nearby leaf.
        let (differ, side) = match way.near {
            Near::Nothing => return Ok(Some((Vec::new(), false))),
            Near::Same => (usize::MAX, true),
            Near::Differs { depth, digit: near } => (depth, (near > digit(key, depth)) == up),
        };
        let shared = entered.iter().take_while(|entered| entered.node.depth <= differ).count();
        // The nearest first, until they are reversed.
        let mut beyond = Vec::with_capacity(most + 1);
        // The target of the last node: the key's leaf, or a subtree on one side of the key.
        let last = entered.get(shared).map(|entered| entered.step).or(way.last);
        if let Some(Step { child, at, .. }) = last.filter(|_| side) {
            beyond.push(Next { child, at, least: 0 });
        }
        let mut more = false;
        for Entered { node, at, .. } in entered[..shared].iter().rev() {
            // Each child has at least one record.
            more = beyond.len() > most;
            if more {
                break;
            }
            let digit = digit(key, node.depth);
            self.push(&mut beyond, node, *at, up, |at| if up { at > digit } else { at < digit });
            if !at.validate(self.pm()) {
                return Ok(None);
            }
        }
        beyond.reverse();
        Ok(Some((beyond, more)))
    }

    /// Adds the children of a node whose digits are `wanted`, the nearest first. Racing: validate.
    #[inline]
    fn push<'t>(
        &self,
        beyond: &mut Vec<Next<'t>>,
        node: &Node<'t>,
        at: At<'t>,
        up: bool,
        wanted: impl Fn(Digit) -> bool,
    ) {
        let (from, least) = (beyond.len(), node.depth + 1);
        node.each_branch(self.pm(), |(digit, child)| {
            if wanted(digit) {
                beyond.push(Next { child, at, least });
            }
        });
        if !up {
            beyond[from..].reverse();
        }
    }

    /// Takes up to `most` records that are `wanted`, in order, until one is not or a node has changed;
    /// returns `true` if there may be more.
    fn take<'t, K: Key, V: Value>(
        &'t self,
        (mut beyond, more): (Vec<Next<'t>>, bool),
        up: bool,
        most: usize,
        items: &mut impl Sink<K, V>,
        wanted: &dyn Fn(&K) -> Taken,
        way: &mut Option<Vec<At<'t>>>,
    ) -> Result<bool, PmError> {
        let pm = self.pm();
        let full = items.count().saturating_add(most);
        while let Some(Next { child, at, least }) = beyond.pop() {
            if items.count() >= full {
                return Ok(true);
            }
            if let Some(way) = way {
                way.push(at);
            }
            if let Some(later) = beyond.len().checked_sub(AHEAD).map(|place| beyond[place]) {
                RecordBlock::prefetch(&self.pool, later.child.offset());
            }
            if !child.is_leaf() {
                let Some((node, next)) = self.enter(child, &at)? else { return Ok(true) };
                if node.depth < least {
                    return Err(deep(node.offset));
                }
                let from = beyond.len();
                self.push(&mut beyond, &node, next, up, |_| true);
                if !next.validate(pm) {
                    return Ok(true);
                }
                beyond[from..].reverse();
                for next in beyond.iter().rev().take(AHEAD) {
                    RecordBlock::prefetch(&self.pool, next.child.offset());
                }
                continue;
            }
            let before = items.count();
            let mut judged = Taken::Yes;
            let added = items.add_if(&InLeaf { pool: &*self.pool, leaf: child.offset() }, |key| {
                judged = wanted(key);
                matches!(judged, Taken::Yes)
            });
            if !at.validate(pm) {
                items.truncate(before);
                return Ok(true);
            }
            added?;
            if matches!(judged, Taken::Last) {
                return Ok(false);
            }
        }
        Ok(more)
    }

    /// Returns a batch of a scan in its direction, starting at a bound, and `true` if there may be more.
    fn read<'t, K: Key, V: Value>(
        &'t self,
        bounds: &Bounds<K>,
        up: bool,
        most: usize,
        items: &mut impl Sink<K, V>,
        way: &mut Option<Vec<At<'t>>>,
    ) -> Result<bool, IndexError> {
        let before = items.count();
        way.iter_mut().for_each(Vec::clear);
        let bound = if up { &bounds.lower } else { &bounds.upper };
        let key = match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(KeyBytes::of::<K>(key.borrowed())),
            Bound::Unbounded => None,
        };
        let most = most.clamp(1, BATCH);
        let Some(beyond) = self.beyond(key.as_deref(), up, most)? else {
            self.pm().spin();
            return Ok(true);
        };
        let judge = |key: &K| {
            let (below, above) = (bounds.is_below(key), bounds.is_above(key));
            let (early, late) = if up { (below, above) } else { (above, below) };
            match (early, late) {
                (_, true) => Taken::Last,
                (true, _) => Taken::No,
                _ => Taken::Yes,
            }
        };
        let more = self.take(beyond, up, most, items, &judge, way)?;
        let taken = &mut items.records_mut()[before..];
        if !up {
            taken.reverse();
        }
        if taken.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            let what = "keys out of order";
            return Err(PmError::Corrupt { what, offset: self.top_at.offset() }.into());
        }
        if taken.is_empty() && more {
            self.pm().spin();
        }
        Ok(more)
    }
}

/// The decision about a record.
enum Taken {
    Yes,
    /// It is before the bounds.
    No,
    /// It is after the bounds, as are all that follow.
    Last,
}

impl<K: Key, V: Value, M: Medium, const COW: bool> LeafSource for Batches<'_, K, V, M, COW> {
    type Key = K;
    type Value = V;
    type Medium = M;
    type Bound = K;

    fn read_front(
        &mut self,
        bounds: &mut Bounds<K>,
        most: usize,
        items: &mut impl Sink<K, V>,
    ) -> Result<bool, IndexError> {
        let before = items.count();
        let more = self.tree.read(bounds, true, most, items, &mut self.way)?;
        bounds.pass_up(&items.records()[before..]);
        Ok(more)
    }

    fn watch(&mut self) {
        self.way = Some(Vec::new());
    }

    fn stays(&self) -> bool {
        self.way.iter().flatten().all(|at| at.validate(self.tree.pm()))
    }

    fn keep(bounds: Bounds<K>, records: &mut Records<K, V>) {
        bounds.keep(records);
    }

    fn read_back(
        &mut self,
        bounds: &mut Bounds<K>,
        most: usize,
        items: &mut Vec<(K, V)>,
    ) -> Result<bool, IndexError> {
        let more = self.tree.read(bounds, false, most, items, &mut self.way)?;
        bounds.pass_down(items);
        Ok(more)
    }

    fn pool(&self) -> &Pool<M> {
        &self.tree.pool
    }
}

pmindex_record::scans!(Woart<K, V, M, COW: bool>, Range);
