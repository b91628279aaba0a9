//! Scans, in both directions.
//!
//! A scan takes one leaf at a time: a private, sorted copy, validated as a whole, so its items were
//! all present and durable at one moment. Going on to the right it follows the leaf's link, if the
//! leaf has not changed since, or descends again; to the left it descends to the separator on the
//! leaf's left. Either way the next leaf starts exactly where the last one ended, whatever split or
//! vanished in between: nothing is seen twice, nothing that stayed is missed.

use std::ops::{Bound, RangeBounds};

use pmindex_core::{Mapped, Medium, PmError};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{Probe, Slot};

use super::access::At;
use super::inner::{OwnedRoute, Route};
use super::layout::bits;
use super::leaf::Leaf;
use super::tree::FpTree;

/// Items of a range scan, from both ends.
pub struct Range<'t, K, V, M: Medium = Mapped, const LEAF: usize = 55, const INNER: usize = 30> {
    tree: &'t FpTree<K, V, M, LEAF, INNER>,
    /// Nothing below is left: moved up by every item taken from the front.
    lower: Bound<K>,
    /// Nothing above is left: moved down by every item taken from the back.
    upper: Bound<K>,
    front: Front<'t>,
    back: Back,
    /// Items of the front's leaf, the next one last.
    front_items: Vec<(K, V)>,
    /// Items of the back's leaf, the next one last.
    back_items: Vec<(K, V)>,
}

/// Which leaf the front reads next.
enum Front<'t> {
    /// That of the lower bound.
    Bound,
    /// The one after this, if this has not changed; else that of the lower bound.
    After(At<'t>),
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

/// Which records of a leaf a scan did not take.
struct Outside {
    below: bool,
    above: bool,
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
            front_items: Vec::new(),
            back_items: Vec::new(),
        }
    }

    /// All records, in order.
    pub fn iter(&self) -> Range<'_, K, V, M, LEAF, INNER> {
        self.range(..)
    }

    /// The least record.
    pub fn first(&self) -> Result<Option<(K, V)>, IndexError> {
        self.iter().next().transpose()
    }

    /// The greatest record.
    pub fn last(&self) -> Result<Option<(K, V)>, IndexError> {
        self.iter().next_back().transpose()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> Result<bool, IndexError> {
        Ok(self.first()?.is_none())
    }

    /// Appends the records of a leaf that lie between the bounds. Racing: validate.
    fn copy_out(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        (lower, upper): (&Bound<K>, &Bound<K>),
        items: &mut Vec<(K, V)>,
    ) -> Result<Outside, PmError> {
        let mut outside = Outside { below: false, above: false };
        for i in bits(leaf.state(self.pm()).slots()).filter(|&i| i < LEAF) {
            let key = Slot::<K, V>::key(&self.pool, leaf.slot(i))?;
            if above(&key, upper) {
                outside.above = true;
            } else if below(&key, lower) {
                outside.below = true;
            } else {
                items.push((key, Slot::<K, V>::value(&self.pool, leaf.slot(i))?));
            }
        }
        Ok(outside)
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

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    Range<'t, K, V, M, LEAF, INNER>
{
    /// The leaf to read next at the front, or `None` after the last.
    fn front_leaf(&self) -> Result<Option<At<'t>>, PmError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        match &self.front {
            Front::End => return Ok(None),
            Front::After(last) => {
                let leaf = tree.leaf(last.leaf)?.next(pm);
                let lock = tree.lock_of(leaf);
                let version = lock.begin_read(pm);
                if last.validate(pm) {
                    return Ok((leaf != 0).then_some(At { leaf, lock, version }));
                }
            }
            Front::Bound => {}
        }
        Ok(Some(match &self.lower {
            Bound::Included(key) | Bound::Excluded(key) => {
                tree.locate(&Route::to(&Probe::of_stored(key)))
            }
            Bound::Unbounded => tree.locate(&Route::LEAST),
        }))
    }

    fn fill_front(&mut self) -> Result<(), IndexError> {
        while self.front_items.is_empty() {
            let Some(at) = self.front_leaf()? else {
                self.front = Front::End;
                return Ok(());
            };
            let bounds = (&self.lower, &self.upper);
            let items = &mut self.front_items;
            let copied =
                self.tree.leaf(at.leaf).and_then(|leaf| self.tree.copy_out(&leaf, bounds, items));
            if !at.validate(self.tree.pm()) {
                self.front_items.clear();
                self.tree.pm().spin();
                continue;
            }
            self.front = if copied?.above { Front::End } else { Front::After(at) };
            self.front_items.sort_unstable_by(|a, b| b.0.cmp(&a.0));
        }
        Ok(())
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
        while self.back_items.is_empty() {
            let Some((at, low)) = self.back_leaf() else { return Ok(()) };
            let bounds = (&self.lower, &self.upper);
            let items = &mut self.back_items;
            let copied =
                self.tree.leaf(at.leaf).and_then(|leaf| self.tree.copy_out(&leaf, bounds, items));
            // The separator on a leaf's left is the same all its life, so it belongs to the copy.
            if !at.validate(self.tree.pm()) {
                self.back_items.clear();
                self.tree.pm().spin();
                continue;
            }
            self.back = match low {
                Some(low) if !copied?.below => Back::Below(low),
                _ => Back::End,
            };
            self.back_items.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        }
        Ok(())
    }

    fn end(&mut self) {
        self.front = Front::End;
        self.back = Back::End;
        self.front_items.clear();
        self.back_items.clear();
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> Iterator
    for Range<'_, K, V, M, LEAF, INNER>
{
    type Item = Result<(K, V), IndexError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.front_items.is_empty()
            && let Err(error) = self.fill_front()
        {
            self.end();
            return Some(Err(error));
        }
        let item = self.front_items.pop()?;
        if above(&item.0, &self.upper) {
            self.end(); // the back has been here
            return None;
        }
        self.lower = Bound::Excluded(item.0.clone());
        Some(Ok(item))
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> DoubleEndedIterator
    for Range<'_, K, V, M, LEAF, INNER>
{
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.back_items.is_empty()
            && let Err(error) = self.fill_back()
        {
            self.end();
            return Some(Err(error));
        }
        let item = self.back_items.pop()?;
        if below(&item.0, &self.lower) {
            self.end(); // the front has been here
            return None;
        }
        self.upper = Bound::Excluded(item.0.clone());
        Some(Ok(item))
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
