//! Scans, in both directions.
//!
//! A leaf's order gives its records sorted, so a scan copies them in order and meanwhile prefetches the next
//! leaves, which the parent names. Leaves have no links: a scan keeps its path, and moves along it to the
//! next leaf.

use std::ops::Bound;

use pmindex_core::{Mapped, Medium, PPtr, PmError, PmU64, Pool};
use pmindex_index::{IndexError, Key, KeyRange, Noted, Records, Value};
use pmindex_record::{Bounds, LeafSource, Outside, Probe, Scan, Sink, Slot};

use super::access::{Path, Step, Steps};
use super::layout::Child;
use super::leaf::Leaf;
use super::order::Order;
use super::separator::Route;
use super::tree::WbTree;

/// How many leaves ahead of the one that is copied a scan fetches the first lines of.
const AHEAD: usize = 4;

/// Items of a range scan, from both ends.
pub type Range<'t, K, V, M = Mapped, const LEAF: usize = 52, const INNER: usize = 48> =
    Scan<Leaves<'t, K, V, M, LEAF, INNER>>;

/// The source of a [`Range`].
pub struct Leaves<'t, K, V, M: Medium, const LEAF: usize, const INNER: usize> {
    tree: &'t WbTree<K, V, M, LEAF, INNER>,
    /// The way to the last leaf that the front, and the back, has read.
    front: Option<Path>,
    back: Option<Path>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    WbTree<K, V, M, LEAF, INNER>
{
    /// Records that a leaf has, more or less.
    const USUAL: usize = LEAF.div_ceil(3) * 2;

    /// Returns the records with keys in `bounds`, in order, from both ends.
    ///
    /// # Cost
    /// No flush, no fence, no sort. A way down for each end, then one leaf after the other, copied
    /// whole.
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    #[track_caller]
    pub fn range(&self, bounds: impl KeyRange<K>) -> Range<'_, K, V, M, LEAF, INNER> {
        Scan::new(self.leaves(), Bounds::of(bounds))
    }

    /// Returns the leaves, from both ends.
    pub(super) fn leaves(&self) -> Leaves<'_, K, V, M, LEAF, INNER> {
        Leaves { tree: self, front: None, back: None }
    }

    /// Returns all records, in order.
    pub fn iter(&self) -> Range<'_, K, V, M, LEAF, INNER> {
        self.range(..)
    }

    /// Up to `limit` records from `from` on, ascending, appended to `out`.
    ///
    /// # Cost
    /// No flush, no fence, no sort. The way down, then the leaves, each fetched while the one before
    /// is copied.
    pub fn scan(
        &self,
        from: &K::Ref,
        limit: usize,
        out: &mut Vec<(K, V)>,
    ) -> Result<(), IndexError> {
        self.do_scan(from, limit, out).noted(&self.pool)
    }

    pub(super) fn do_scan(
        &self,
        from: &K::Ref,
        limit: usize,
        out: &mut Vec<(K, V)>,
    ) -> Result<(), IndexError> {
        let from = K::owned(from);
        let probe = Probe::<K>::of_stored(&from);
        let pool = &*self.pool;
        let mut path = self.trace(self.top()?, &Route::to(&probe))?;
        // The first lines of all leaves that will be needed, probably, before any other line: so the
        // walks through the page tables, which take longest, overlap.
        self.pool.prefetch(PPtr::<PmU64>::new(path.leaf));
        let ahead = (limit.saturating_add(Self::USUAL / 2) / Self::USUAL).min(AHEAD - 1);
        for distance in 1..=ahead {
            self.prefetch_sibling(&path, distance, false);
        }
        self.prefetch_leaf(path.leaf);
        if ahead > 0 {
            self.prefetch_sibling(&path, 1, true);
        }
        let end = out.len().saturating_add(limit);
        let mut first = true;
        while out.len() < end {
            let leaf = self.leaf(path.leaf)?;
            let state = leaf.state(pool.pm());
            let live = leaf.live(pool.pm(), state);
            let order = Order::of(pool, &leaf, state, live)?;
            let skip = if first { order.rank(pool, &leaf, live, &probe)? } else { 0 };
            first = false;
            let slots = order.slots().get(skip..).unwrap_or(&[]);
            let left = (end - out.len()).saturating_sub(slots.len());
            if left > Self::USUAL / 4 * 3 {
                self.prefetch_sibling(&path, 2, true);
            }
            if left > AHEAD * Self::USUAL {
                self.prefetch_sibling(&path, AHEAD, false);
            }
            append(pool, &leaf, &slots[..slots.len().min(end - out.len())], out)?;
            if out.len() >= end || !self.advance(&mut path)? {
                break;
            }
        }
        Ok(())
    }

    /// Up to `limit` records with keys in `range`, ascending, in the memory of what was in `out`; returns how
    /// many: [`Index::scan_bounds_into`](pmindex_index::Index::scan_bounds_into).
    ///
    /// # Errors
    /// Those of a scan. What was read before stays in `out`.
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    #[track_caller]
    pub fn scan_into(
        &self,
        range: impl KeyRange<K>,
        limit: usize,
        out: &mut Records<K, V>,
    ) -> Result<usize, IndexError> {
        self.do_scan_into(range, limit, out).noted(&self.pool)
    }

    #[track_caller]
    pub(super) fn do_scan_into(
        &self,
        range: impl KeyRange<K>,
        limit: usize,
        out: &mut Records<K, V>,
    ) -> Result<usize, IndexError> {
        let bounds = Bounds::of_kept(range, out);
        Scan::new(self.leaves(), bounds).fill(limit, out)
    }

    /// Returns the least record. Costs a way down and a leaf's copy.
    pub fn first_key_value(&self) -> Result<Option<(K, V)>, IndexError> {
        Scan::least(|| self.iter()).noted(&self.pool)
    }

    /// Returns the greatest record. Costs a way down and a leaf's copy.
    pub fn last_key_value(&self) -> Result<Option<(K, V)>, IndexError> {
        Scan::greatest(|| self.iter()).noted(&self.pool)
    }

    /// Returns `true` if there are no records. Costs what [`first_key_value`](Self::first_key_value) does.
    pub fn is_empty(&self) -> Result<bool, IndexError> {
        self.do_is_empty().noted(&self.pool)
    }

    pub(super) fn do_is_empty(&self) -> Result<bool, IndexError> {
        Ok(Scan::least(|| self.iter())?.is_none())
    }

    /// Returns the way to a leaf; it and its right neighbour are on their way.
    fn trace_scan(&self, route: &Route<'_>) -> Result<Path, PmError> {
        let path = self.trace(self.top()?, route)?;
        self.prefetch_leaf(path.leaf);
        self.prefetch_sibling(&path, 1, true);
        Ok(path)
    }

    /// Returns the way to the last leaf.
    fn trace_last(&self) -> Result<Path, PmError> {
        let top = self.top()?;
        let mut path = Path { steps: Steps::new(), leaf: 0 };
        self.go_down(&mut path, top, true)?;
        Ok(path)
    }

    /// Goes down from `node` by the first children, or the last.
    pub(super) fn go_down(
        &self,
        path: &mut Path,
        mut node: Child,
        last: bool,
    ) -> Result<(), PmError> {
        while node.level() > 0 {
            let inner = self.inner(node.offset())?;
            let len = inner.len(self.pm());
            let place = if last { len.saturating_sub(1) } else { 0 };
            path.steps.push(Step { node, place });
            node = self.child_at(Step { node, place })?;
        }
        path.leaf = node.offset();
        Ok(())
    }

    #[inline(always)]
    fn child_at(&self, step: Step) -> Result<Child, PmError> {
        let pool = &*self.pool;
        let inner = self.inner(step.node.offset())?;
        let i = inner.entry_at(pool, inner.state(pool.pm()), step.place)?;
        inner.child(pool.pm(), i).below(step.node)
    }

    /// Fetches a leaf to the right, or its first line, if it has the same parent. A hint.
    #[inline(always)]
    fn prefetch_sibling(&self, path: &Path, distance: usize, whole: bool) {
        let Some(step) = path.steps.last() else { return };
        let sibling = Step { node: step.node, place: step.place + distance };
        if self.inner(step.node.offset()).is_ok_and(|inner| sibling.place < inner.len(self.pm()))
            && let Ok(leaf) = self.child_at(sibling)
        {
            if whole {
                self.prefetch_leaf(leaf.offset());
            } else {
                self.pool.prefetch(PPtr::<PmU64>::new(leaf.offset()));
            }
        }
    }

    /// Moves to the leaf on the right; returns `false` after the last.
    pub(super) fn advance(&self, path: &mut Path) -> Result<bool, PmError> {
        while let Some(step) = path.steps.pop() {
            let place = step.place + 1;
            if place < self.inner(step.node.offset())?.len(self.pm()) {
                let step = Step { node: step.node, place };
                path.steps.push(step);
                let child = self.child_at(step)?;
                self.go_down(path, child, false)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves to the leaf on the left; returns `false` after the first.
    fn retreat(&self, path: &mut Path) -> Result<bool, PmError> {
        while let Some(step) = path.steps.pop() {
            if let Some(place) = step.place.checked_sub(1) {
                let step = Step { node: step.node, place };
                path.steps.push(step);
                let child = self.child_at(step)?;
                self.go_down(path, child, true)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Appends the records of a leaf between the bounds, ascending.
    fn copy_out(
        &self,
        offset: u64,
        bounds: &Bounds<K>,
        items: &mut impl Sink<K, V>,
    ) -> Result<Outside, PmError> {
        let (pool, leaf) = (&*self.pool, self.leaf(offset)?);
        let state = leaf.state(pool.pm());
        let order = Order::of(pool, &leaf, state, leaf.live(pool.pm(), state))?;
        let mut outside = Outside::default();
        for &i in order.slots() {
            let slot = leaf.slot(usize::from(i));
            items.add_if(&Slot::<K, V>::readable(pool, slot), |key| {
                outside.above = bounds.is_above(key);
                let below = !outside.above && bounds.is_below(key);
                outside.below |= below;
                !(outside.above || below)
            })?;
            if outside.above {
                break;
            }
        }
        Ok(outside)
    }
}

/// Appends the records of these slots.
#[inline(always)]
fn append<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    leaf: &Leaf<'_, K, V, LEAF>,
    slots: &[u8],
    out: &mut Vec<(K, V)>,
) -> Result<(), PmError> {
    out.reserve(slots.len());
    for &i in slots {
        let slot = leaf.slot(usize::from(i));
        out.push((Slot::<K, V>::key(pool, slot)?, Slot::<K, V>::value(pool, slot)?));
    }
    Ok(())
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
        _: usize,
        items: &mut impl Sink<K, V>,
    ) -> Result<bool, IndexError> {
        let (tree, before) = (self.tree, items.count());
        let path = match (self.front.take(), &bounds.lower) {
            (Some(mut path), _) => {
                if !tree.advance(&mut path)? {
                    return Ok(false);
                }
                tree.prefetch_sibling(&path, 1, true);
                path
            }
            (None, Bound::Included(key) | Bound::Excluded(key)) => {
                tree.trace_scan(&Route::to(&Probe::of_stored(key)))?
            }
            (None, Bound::Unbounded) => {
                let mut path = Path { steps: Steps::new(), leaf: 0 };
                tree.go_down(&mut path, tree.top()?, false)?;
                path
            }
        };
        let outside = tree.copy_out(path.leaf, bounds, items)?;
        bounds.pass_up(&items.records()[before..]);
        self.front = Some(path);
        Ok(!outside.above)
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
        let tree = self.tree;
        let path = match (self.back.take(), &bounds.upper) {
            (Some(mut path), _) => {
                if !tree.retreat(&mut path)? {
                    return Ok(false);
                }
                path
            }
            (None, Bound::Included(key) | Bound::Excluded(key)) => {
                tree.trace(tree.top()?, &Route::to(&Probe::of_stored(key)))?
            }
            (None, Bound::Unbounded) => tree.trace_last()?,
        };
        let outside = tree.copy_out(path.leaf, bounds, items)?;
        bounds.pass_down(items);
        self.back = Some(path);
        Ok(!outside.below)
    }
}

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> IntoIterator
    for &'t WbTree<K, V, M, LEAF, INNER>
{
    type Item = Result<(K, V), IndexError>;
    type IntoIter = Range<'t, K, V, M, LEAF, INNER>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
