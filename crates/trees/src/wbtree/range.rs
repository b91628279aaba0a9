//! Scans, in both directions.
//!
//! A leaf's order gives its records sorted, so a scan copies them out as they come, and the next
//! leaves, which the parent names, are on their way meanwhile. There are no links between leaves: a
//! scan holds the way down, and goes on to the next leaf by it.
//!
//! The two ends share the bounds: each leaf that one end copies moves its bound past the records
//! copied, so the other end never copies them; when an end has nothing left to copy, it takes what
//! the other has copied and not given out.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

use pmindex_core::{Mapped, Medium, PPtr, PmError, PmU64, Pool};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{Probe, Slot};

use super::access::{Path, Step};
use super::layout::Child;
use super::leaf::Leaf;
use super::order::Order;
use super::separator::Route;
use super::tree::WbTree;

/// How many leaves ahead of the one that is copied a scan fetches the first lines of.
const AHEAD: usize = 4;

/// Items of a range scan, from both ends.
pub struct Range<'t, K, V, M: Medium = Mapped, const LEAF: usize = 52, const INNER: usize = 48> {
    tree: &'t WbTree<K, V, M, LEAF, INNER>,
    /// What is below has been copied by the front.
    lower: Bound<K>,
    /// What is above has been copied by the back.
    upper: Bound<K>,
    front: End,
    back: End,
    /// What the front has copied, ascending.
    front_items: VecDeque<(K, V)>,
    /// What the back has copied, ascending, all greater.
    back_items: VecDeque<(K, V)>,
}

/// Which leaf an end reads next.
enum End {
    /// That of its bound.
    Bound,
    /// The one beside this.
    Beside(Path),
    /// None.
    Over,
}

impl<K, V, M: Medium, const LEAF: usize, const INNER: usize> std::fmt::Debug
    for Range<'_, K, V, M, LEAF, INNER>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}

/// Like `BTreeMap::range`.
///
/// # Panics
/// If the start is after the end, or both are equal and excluded.
pub(super) fn check_bounds<K: Ord>(lower: Bound<&K>, upper: Bound<&K>) {
    match (lower, upper) {
        (Bound::Excluded(s), Bound::Excluded(e)) => {
            assert!(s != e, "range start and end are equal and excluded");
            assert!(s <= e, "range start is greater than range end");
        }
        (Bound::Included(s) | Bound::Excluded(s), Bound::Included(e) | Bound::Excluded(e)) => {
            assert!(s <= e, "range start is greater than range end");
        }
        _ => {}
    }
}

fn below<K: Ord>(key: &K, lower: &Bound<K>) -> bool {
    match lower {
        Bound::Included(bound) => key < bound,
        Bound::Excluded(bound) => key <= bound,
        Bound::Unbounded => false,
    }
}

fn above<K: Ord>(key: &K, upper: &Bound<K>) -> bool {
    match upper {
        Bound::Included(bound) => key > bound,
        Bound::Excluded(bound) => key >= bound,
        Bound::Unbounded => false,
    }
}

/// Whether nothing can be between the bounds, which may have met.
fn is_empty<K: Ord>(lower: &Bound<K>, upper: &Bound<K>) -> bool {
    match (lower, upper) {
        (Bound::Included(s), Bound::Included(e)) => s > e,
        (Bound::Included(s) | Bound::Excluded(s), Bound::Included(e) | Bound::Excluded(e)) => {
            s >= e
        }
        _ => false,
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    WbTree<K, V, M, LEAF, INNER>
{
    /// Records that a leaf has, more or less.
    const USUAL: usize = LEAF.div_ceil(3) * 2;

    /// The records with keys in `bounds`, in order, from both ends.
    ///
    /// # Cost
    /// No flush, no fence, no sort. A way down for each end, then one leaf after the other, copied
    /// whole.
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    pub fn range(&self, bounds: impl RangeBounds<K>) -> Range<'_, K, V, M, LEAF, INNER> {
        check_bounds(bounds.start_bound(), bounds.end_bound());
        Range {
            tree: self,
            lower: bounds.start_bound().cloned(),
            upper: bounds.end_bound().cloned(),
            front: End::Bound,
            back: End::Bound,
            front_items: VecDeque::new(),
            back_items: VecDeque::new(),
        }
    }

    /// All records, in order.
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

    /// The records between the bounds of the first leaf that has any, or of the last.
    pub(super) fn chunk(
        &self,
        lower: &Bound<K>,
        upper: &Bound<K>,
        last: bool,
    ) -> Result<VecDeque<(K, V)>, IndexError> {
        if is_empty(lower, upper) {
            return Ok(VecDeque::new());
        }
        let mut range = self.range((lower.clone(), upper.clone()));
        if last {
            range.fill_back()?;
            Ok(range.back_items)
        } else {
            range.fill_front()?;
            Ok(range.front_items)
        }
    }

    /// The least record. Costs a way down and a leaf's copy.
    pub fn first(&self) -> Result<Option<(K, V)>, IndexError> {
        self.iter().next().transpose()
    }

    /// The greatest record. Costs a way down and a leaf's copy.
    pub fn last(&self) -> Result<Option<(K, V)>, IndexError> {
        self.iter().next_back().transpose()
    }

    /// Whether there are no records. Costs what [`first`](Self::first) does.
    pub fn is_empty(&self) -> Result<bool, IndexError> {
        self.do_is_empty().noted(&self.pool)
    }

    pub(super) fn do_is_empty(&self) -> Result<bool, IndexError> {
        Ok(self.iter().take_front().transpose()?.is_none())
    }

    /// The way to a leaf; it and its right neighbour are on their way.
    fn trace_scan(&self, route: &Route<'_>) -> Result<Path, PmError> {
        let path = self.trace(self.top()?, route)?;
        self.prefetch_leaf(path.leaf);
        self.prefetch_sibling(&path, 1, true);
        Ok(path)
    }

    /// The way to the last leaf.
    fn trace_last(&self) -> Result<Path, PmError> {
        let top = self.top()?;
        let mut path = Path { steps: Vec::with_capacity(top.level() as usize), leaf: 0 };
        self.go_down(&mut path, top, true)?;
        Ok(path)
    }

    /// Goes down from `node` by the first children, or the last.
    fn go_down(&self, path: &mut Path, mut node: Child, last: bool) -> Result<(), PmError> {
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

    /// Goes on to the leaf on the right; `false` after the last.
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

    /// Goes on to the leaf on the left; `false` after the first.
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

    /// The records of a leaf between the bounds, ascending; whether there are others below, above.
    fn copy_out(
        &self,
        offset: u64,
        (lower, upper): (&Bound<K>, &Bound<K>),
        items: &mut VecDeque<(K, V)>,
    ) -> Result<(bool, bool), PmError> {
        let (pool, leaf) = (&*self.pool, self.leaf(offset)?);
        let state = leaf.state(pool.pm());
        let order = Order::of(pool, &leaf, state, leaf.live(pool.pm(), state))?;
        let (mut is_below, mut is_above) = (false, false);
        for &i in order.slots() {
            let slot = leaf.slot(usize::from(i));
            let key = Slot::<K, V>::key(pool, slot)?;
            if above(&key, upper) {
                is_above = true;
                break;
            }
            if below(&key, lower) {
                is_below = true;
            } else {
                items.push_back((key, Slot::<K, V>::value(pool, slot)?));
            }
        }
        Ok((is_below, is_above))
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

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    Range<'_, K, V, M, LEAF, INNER>
{
    fn fill_front(&mut self) -> Result<(), IndexError> {
        let tree = self.tree;
        while self.front_items.is_empty() {
            let path = match std::mem::replace(&mut self.front, End::Over) {
                End::Over => return Ok(()),
                End::Beside(mut path) => {
                    if !tree.advance(&mut path)? {
                        return Ok(());
                    }
                    tree.prefetch_sibling(&path, 1, true);
                    path
                }
                End::Bound => match &self.lower {
                    Bound::Included(key) | Bound::Excluded(key) => {
                        tree.trace_scan(&Route::to(&Probe::of_stored(key)))?
                    }
                    Bound::Unbounded => {
                        let mut path = Path { steps: Vec::new(), leaf: 0 };
                        tree.go_down(&mut path, tree.top()?, false)?;
                        path
                    }
                },
            };
            let bounds = (&self.lower, &self.upper);
            let (_, above) = tree.copy_out(path.leaf, bounds, &mut self.front_items)?;
            if !above {
                self.front = End::Beside(path);
            }
            if let Some((greatest, _)) = self.front_items.back() {
                self.lower = Bound::Excluded(greatest.clone());
            }
        }
        Ok(())
    }

    fn fill_back(&mut self) -> Result<(), IndexError> {
        let tree = self.tree;
        while self.back_items.is_empty() {
            let path = match std::mem::replace(&mut self.back, End::Over) {
                End::Over => return Ok(()),
                End::Beside(mut path) => {
                    if !tree.retreat(&mut path)? {
                        return Ok(());
                    }
                    path
                }
                End::Bound => match &self.upper {
                    Bound::Included(key) | Bound::Excluded(key) => {
                        tree.trace(tree.top()?, &Route::to(&Probe::of_stored(key)))?
                    }
                    Bound::Unbounded => tree.trace_last()?,
                },
            };
            let bounds = (&self.lower, &self.upper);
            let (below, _) = tree.copy_out(path.leaf, bounds, &mut self.back_items)?;
            if !below {
                self.back = End::Beside(path);
            }
            if let Some((least, _)) = self.back_items.front() {
                self.upper = Bound::Excluded(least.clone());
            }
        }
        Ok(())
    }

    /// Tells nobody of damage: readers that race with a writer validate first.
    #[inline]
    fn take_front(&mut self) -> Option<Result<(K, V), IndexError>> {
        if let Some(item) = self.front_items.pop_front() {
            return Some(Ok(item));
        }
        if let Err(error) = self.fill_front() {
            return Some(self.fail(error));
        }
        self.front_items.pop_front().or_else(|| self.back_items.pop_front()).map(Ok)
    }

    /// Tells nobody of damage: readers that race with a writer validate first.
    #[inline]
    fn take_back(&mut self) -> Option<Result<(K, V), IndexError>> {
        if let Some(item) = self.back_items.pop_back() {
            return Some(Ok(item));
        }
        if let Err(error) = self.fill_back() {
            return Some(self.fail(error));
        }
        self.back_items.pop_back().or_else(|| self.front_items.pop_back()).map(Ok)
    }

    #[cold]
    fn fail(&mut self, error: IndexError) -> Result<(K, V), IndexError> {
        self.front = End::Over;
        self.back = End::Over;
        self.front_items.clear();
        self.back_items.clear();
        Err(error)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> Iterator
    for Range<'_, K, V, M, LEAF, INNER>
{
    type Item = Result<(K, V), IndexError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.take_front().map(|item| item.noted(&self.tree.pool))
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> DoubleEndedIterator
    for Range<'_, K, V, M, LEAF, INNER>
{
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take_back().map(|item| item.noted(&self.tree.pool))
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> std::iter::FusedIterator
    for Range<'_, K, V, M, LEAF, INNER>
{
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
