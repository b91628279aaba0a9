//! Scans, in both directions.
//!
//! A scan takes one leaf at a time: a private, sorted copy, validated as a whole, so its items were
//! all present and durable at one moment. Going on to the right it follows the leaf's link, if the
//! leaf has not changed since, or descends again; to the left it descends to the separator on the
//! leaf's left. Either way the next leaf starts exactly where the last one ended, whatever split or
//! vanished in between: nothing is seen twice, nothing that stayed is missed.
//!
//! The two ends share the bounds: each leaf that one end copies moves its bound past the records
//! copied, so the other end never copies them; when an end has nothing left to copy, it takes what
//! the other has copied and not given out.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

use pmindex_core::{Mapped, Medium, PmError};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::Probe;

use super::access::At;
use super::copy::{Outside, Scratch, Wanted};
use super::inner::{OwnedRoute, Route, Siblings};
use super::tree::FpTree;

/// Items of a range scan, from both ends.
pub struct Range<'t, K, V, M: Medium = Mapped, const LEAF: usize = 54, const INNER: usize = 14> {
    tree: &'t FpTree<K, V, M, LEAF, INNER>,
    /// What is below has been copied by the front.
    lower: Bound<K>,
    /// What is above has been copied by the back.
    upper: Bound<K>,
    front: Front<'t>,
    back: Back,
    /// What the front has copied, ascending.
    front_items: VecDeque<(K, V)>,
    /// What the back has copied, ascending, all greater.
    back_items: VecDeque<(K, V)>,
    scratch: Scratch,
}

/// Which leaf the front reads next.
enum Front<'t> {
    /// That of the lower bound.
    Bound,
    /// The one after this, if this has not changed; else that of the lower bound. With the place of
    /// this among its siblings, to prefetch by.
    After(At<'t>, Siblings),
    /// None.
    End,
}

/// Which leaf the back reads next.
enum Back {
    /// That of the upper bound.
    Bound,
    /// That of the separator on the left of the last one.
    Below(OwnedRoute),
    /// None.
    End,
}

impl<K, V, M: Medium, const LEAF: usize, const INNER: usize> std::fmt::Debug
    for Range<'_, K, V, M, LEAF, INNER>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
{
    /// The records with keys in `bounds`, in order, from both ends.
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    pub fn range(&self, bounds: impl RangeBounds<K>) -> Range<'_, K, V, M, LEAF, INNER> {
        let (lower, upper) = (bounds.start_bound().cloned(), bounds.end_bound().cloned());
        match (&lower, &upper) {
            (Bound::Excluded(s), Bound::Excluded(e)) => {
                assert!(s != e, "range start and end are equal and excluded");
                assert!(s <= e, "range start is greater than range end");
            }
            (Bound::Included(s) | Bound::Excluded(s), Bound::Included(e) | Bound::Excluded(e)) => {
                assert!(s <= e, "range start is greater than range end");
            }
            _ => {}
        }
        Range {
            tree: self,
            lower,
            upper,
            front: Front::Bound,
            back: Back::Bound,
            front_items: VecDeque::new(),
            back_items: VecDeque::new(),
            scratch: Scratch::default(),
        }
    }

    /// All records, in order.
    pub fn iter(&self) -> Range<'_, K, V, M, LEAF, INNER> {
        self.range(..)
    }

    /// Up to `limit` records from `from` on, ascending, appended to `out`.
    pub fn scan(
        &self,
        from: &K::Ref,
        limit: usize,
        out: &mut Vec<(K, V)>,
    ) -> Result<(), IndexError> {
        self.range(K::owned(from)..).append_to(limit, out).noted(&self.pool)
    }

    /// The least record.
    pub fn first(&self) -> Result<Option<(K, V)>, IndexError> {
        let mut first = Vec::with_capacity(1);
        self.iter().append_to(1, &mut first).noted(&self.pool)?;
        Ok(first.pop())
    }

    /// The greatest record.
    pub fn last(&self) -> Result<Option<(K, V)>, IndexError> {
        self.iter().next_back().transpose()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> Result<bool, IndexError> {
        Ok(self.first()?.is_none())
    }
}

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    Range<'t, K, V, M, LEAF, INNER>
{
    /// The leaf to read next at the front, or `None` after the last.
    fn front_leaf(&self) -> Result<Option<(At<'t>, Siblings)>, PmError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        match &self.front {
            Front::End => return Ok(None),
            Front::After(last, siblings) => {
                let leaf = tree.leaf(last.leaf)?.next(pm);
                let lock = tree.lock_of(leaf);
                let version = lock.begin_read(pm);
                if last.validate(pm) {
                    let siblings = siblings.next();
                    tree.prefetch_leaf(tree.inner.sibling(siblings, 1));
                    return Ok((leaf != 0).then_some((At { leaf, lock, version }, siblings)));
                }
            }
            Front::Bound => {}
        }
        Ok(Some(match &self.lower {
            Bound::Included(key) | Bound::Excluded(key) => {
                tree.locate_to_scan(&Route::to(&Probe::of_stored(key)))
            }
            Bound::Unbounded => tree.locate_to_scan(&Route::LEAST),
        }))
    }

    /// Appends what is next at the front, `most` records at most; nothing at the end.
    fn copy_front(&mut self, most: usize, items: &mut Vec<(K, V)>) -> Result<(), IndexError> {
        let (tree, before) = (self.tree, items.len());
        // Leaves that give nothing: of an intact list never more than there are.
        let mut barren = 0;
        while items.len() == before {
            let Some((at, siblings)) = self.front_leaf()? else {
                self.front = Front::End;
                return Ok(());
            };
            if barren > FpTree::<K, V, M, LEAF, INNER>::leaf_limit(&tree.pool) {
                let what = "the list of leaves has no end";
                return Err(PmError::Corrupt { what, offset: at.leaf }.into());
            }
            let wanted = Wanted { lower: &self.lower, upper: &self.upper, most };
            let copied = tree.copy_out(&at, &wanted, &mut self.scratch, items);
            let Some(outside) = copied else { continue };
            barren += 1;
            self.front = match outside? {
                Outside { cut: true, .. } => Front::Bound,
                Outside { above: true, .. } => Front::End,
                _ => Front::After(at, siblings),
            };
            if let Some((greatest, _)) = items[before..].last() {
                self.lower = Bound::Excluded(greatest.clone());
            }
        }
        Ok(())
    }

    fn fill_front(&mut self) -> Result<(), IndexError> {
        let mut items = Vec::from(std::mem::take(&mut self.front_items));
        let copied = self.copy_front(usize::MAX, &mut items);
        self.front_items = items.into();
        copied
    }

    /// The leaf to read next at the back, with the separator on its left.
    fn back_leaf(&self) -> Option<(At<'t>, Option<OwnedRoute>)> {
        let find = |route: &Route<'_>| {
            let at = self.tree.locate(route);
            (at, self.tree.inner.find_low(self.tree.pm(), route))
        };
        Some(match (&self.back, &self.upper) {
            (Back::End, _) => return None,
            (Back::Below(low), _) => find(&low.route::<K>()),
            (Back::Bound, Bound::Included(key) | Bound::Excluded(key)) => {
                find(&Route::to(&Probe::of_stored(key)))
            }
            (Back::Bound, Bound::Unbounded) => find(&Route::GREATEST),
        })
    }

    fn fill_back(&mut self) -> Result<(), IndexError> {
        let tree = self.tree;
        let mut items = Vec::from(std::mem::take(&mut self.back_items));
        while items.is_empty() {
            let Some((at, low)) = self.back_leaf() else { return Ok(()) };
            let wanted = Wanted { lower: &self.lower, upper: &self.upper, most: usize::MAX };
            // The separator on a leaf's left is the same all its life, so it belongs to the copy.
            let copied = tree.copy_out(&at, &wanted, &mut self.scratch, &mut items);
            let Some(outside) = copied else { continue };
            self.back = match low {
                Some(low) if !outside?.below => Back::Below(low),
                _ => Back::End,
            };
            if let Some((least, _)) = items.first() {
                self.upper = Bound::Excluded(least.clone());
            }
        }
        self.back_items = items.into();
        Ok(())
    }

    /// Appends up to `limit` records.
    pub(super) fn append_to(
        &mut self,
        limit: usize,
        out: &mut Vec<(K, V)>,
    ) -> Result<(), IndexError> {
        let end = out.len().saturating_add(limit);
        out.extend(self.front_items.drain(..limit.min(self.front_items.len())));
        while out.len() < end {
            let before = out.len();
            self.copy_front(end - before, out)?;
            if out.len() == before {
                break;
            }
        }
        Ok(())
    }

    #[cold]
    fn fail(&mut self, error: IndexError) -> Result<(K, V), IndexError> {
        self.front = Front::End;
        self.back = Back::End;
        self.front_items.clear();
        self.back_items.clear();
        Err(error).noted(&self.tree.pool)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> Iterator
    for Range<'_, K, V, M, LEAF, INNER>
{
    type Item = Result<(K, V), IndexError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(item) = self.front_items.pop_front() {
            return Some(Ok(item));
        }
        if let Err(error) = self.fill_front() {
            return Some(self.fail(error));
        }
        if self.front_items.is_empty() {
            // Nothing was left between the ends: what comes there now is not part of this scan.
            self.back = Back::End;
        }
        self.front_items.pop_front().or_else(|| self.back_items.pop_front()).map(Ok)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> DoubleEndedIterator
    for Range<'_, K, V, M, LEAF, INNER>
{
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if let Some(item) = self.back_items.pop_back() {
            return Some(Ok(item));
        }
        if let Err(error) = self.fill_back() {
            return Some(self.fail(error));
        }
        if self.back_items.is_empty() {
            self.front = Front::End;
        }
        self.back_items.pop_back().or_else(|| self.front_items.pop_back()).map(Ok)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> std::iter::FusedIterator
    for Range<'_, K, V, M, LEAF, INNER>
{
}

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> IntoIterator
    for &'t FpTree<K, V, M, LEAF, INNER>
{
    type Item = Result<(K, V), IndexError>;
    type IntoIter = Range<'t, K, V, M, LEAF, INNER>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
