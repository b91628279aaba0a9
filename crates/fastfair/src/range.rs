//! Scans, in both directions.
//!
//! A scan takes one leaf at a time: a private copy, validated as a whole, so its items were all
//! present and durable at one moment. Going on to the right it follows the leaf's link, if the leaf
//! has not changed since, or descends again; to the left it descends to the leaf's low, which belongs
//! to the leaf before. Either way the next leaf starts exactly where the last one ended, whatever
//! split or vanished in between: nothing is seen twice, nothing that stayed is missed.
//!
//! The two ends share the bounds: each leaf that one end copies moves its bound past the records
//! copied, so the other end never copies them; when an end has nothing left to copy, it takes what
//! the other has copied and not given out.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

use pmindex_core::{Mapped, Medium, PmError};
use pmindex_index::{IndexError, Key, Noted, Value};

use super::access::At;
use super::entry::{Entry, Sought};
use super::layout::Form;
use super::tree::FastFair;

/// Items of a range scan, from both ends.
pub struct Range<'t, K, V, M: Medium = Mapped, const LEAF: usize = 30, const INNER: usize = 30> {
    tree: &'t FastFair<K, V, M, LEAF, INNER>,
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
    /// That of the low of the last one.
    Below(Sought<'static>),
    /// None.
    End,
}

/// Which records of a leaf a scan did not take.
struct Outside {
    below: bool,
    above: bool,
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

/// Leaves that gave nothing: of an intact list never more than there are.
#[derive(Default)]
struct Barren(u64);

impl Barren {
    fn one_more(&mut self, at: &At<'_>, limit: u64) -> Result<(), PmError> {
        self.0 += 1;
        if self.0 <= limit {
            return Ok(());
        }
        Err(PmError::Corrupt { what: "the list of leaves has no end", offset: at.leaf })
    }
}

/// How many leaves ahead a scan fetches.
const AHEAD: usize = 3;

impl<K, V, M: Medium, const LEAF: usize, const INNER: usize> std::fmt::Debug
    for Range<'_, K, V, M, LEAF, INNER>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
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
        let mut range = self.range(K::owned(from)..);
        let all = out.len().saturating_add(limit);
        while out.len() < all && range.append_leaf(all, out).noted(&self.pool)? {}
        Ok(())
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
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// The records of a leaf that lie between the bounds, ascending; `None` if it has changed.
    #[inline(always)]
    fn copy_out(
        &self,
        at: &At<'_>,
        (lower, upper): (&Bound<K>, &Bound<K>),
        items: &mut VecDeque<(K, V)>,
    ) -> Option<Result<Outside, PmError>> {
        let copied = self.copy_records(at, |key, entry| {
            let (low, high) = (below(&key, lower), above(&key, upper));
            if !(low || high) {
                items.push_back((key, Form::<K, V>::value(&self.pool, entry)?));
            }
            Ok(Outside { below: low, above: high })
        });
        if !at.validate(self.pm()) {
            items.clear();
            self.pm().spin();
            return None;
        }
        Some(copied)
    }

    /// Hands the records of a leaf to `take`. Racing: validate.
    #[inline(always)]
    fn copy_records(
        &self,
        at: &At<'_>,
        mut take: impl FnMut(K, Entry) -> Result<Outside, PmError>,
    ) -> Result<Outside, PmError> {
        let leaf = self.leaf(at.leaf)?;
        let image = leaf.image(self.pm());
        let mut outside = Outside { below: false, above: false };
        let mut each = |i: usize| {
            let entry = image.entry(i);
            let key = Form::<K, V>::key(&self.pool, entry)?;
            let Outside { below, above } = take(key, entry)?;
            outside.below |= below;
            outside.above |= above;
            Ok::<(), PmError>(())
        };
        if image.state().is_of(self.era) {
            for i in image.records(LEAF) {
                each(i)?;
            }
        } else {
            for i in self.records_of(&leaf)? {
                each(i)?;
            }
        }
        Ok(outside)
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
                    let hint = last.hint.next();
                    if let Some(leaf) = tree.sibling(hint, AHEAD) {
                        tree.prefetch_leaf(leaf);
                    }
                    return Ok((leaf != 0).then_some(At { leaf, lock, version, hint }));
                }
            }
            Front::Bound => {}
        }
        let at = match &self.lower {
            Bound::Included(key) | Bound::Excluded(key) => {
                tree.locate(&Sought::of_bound::<K>(key.borrowed()))?
            }
            Bound::Unbounded => tree.locate(&Sought::LEAST)?,
        };
        for distance in 1..=AHEAD {
            if let Some(leaf) = tree.sibling(at.hint, distance) {
                tree.prefetch_leaf(leaf);
            }
        }
        Ok(Some(at))
    }

    fn fill_front(&mut self) -> Result<(), IndexError> {
        let tree = self.tree;
        let mut barren = Barren::default();
        while self.front_items.is_empty() {
            let Some(at) = self.front_leaf()? else {
                self.front = Front::End;
                return Ok(());
            };
            let bounds = (&self.lower, &self.upper);
            let Some(outside) = tree.copy_out(&at, bounds, &mut self.front_items) else { continue };
            barren.one_more(&at, tree.leaf_limit())?;
            self.front = if outside?.above { Front::End } else { Front::After(at) };
            if let Some((greatest, _)) = self.front_items.back() {
                self.lower = Bound::Excluded(greatest.clone());
            }
        }
        Ok(())
    }

    /// The leaf to read next at the back.
    fn back_leaf(&self) -> Result<Option<At<'t>>, PmError> {
        let tree = self.tree;
        match (&self.back, &self.upper) {
            (Back::End, _) => Ok(None),
            (Back::Below(low), _) => tree.locate(low).map(Some),
            (Back::Bound, Bound::Included(key) | Bound::Excluded(key)) => {
                tree.locate(&Sought::of_bound::<K>(key.borrowed())).map(Some)
            }
            (Back::Bound, Bound::Unbounded) => tree.locate(&Sought::GREATEST).map(Some),
        }
    }

    fn fill_back(&mut self) -> Result<(), IndexError> {
        let tree = self.tree;
        let mut barren = Barren::default();
        while self.back_items.is_empty() {
            let Some(at) = self.back_leaf()? else { return Ok(()) };
            let bounds = (&self.lower, &self.upper);
            let Some(outside) = tree.copy_out(&at, bounds, &mut self.back_items) else { continue };
            barren.one_more(&at, tree.leaf_limit())?;
            // A leaf's low is the same all its life, so it belongs to the copy.
            let Some(low) = tree.low_at(&at) else {
                self.back_items.clear();
                continue;
            };
            self.back = match low? {
                Some(low) if !outside?.below => Back::Below(low),
                _ => Back::End,
            };
            if let Some((least, _)) = self.back_items.front() {
                self.upper = Bound::Excluded(least.clone());
            }
        }
        Ok(())
    }

    /// Appends the records of the next leaf of a range without an upper bound of which nothing was
    /// given out otherwise, until there are `all`. Whether there may be more.
    fn append_leaf(&mut self, all: usize, out: &mut Vec<(K, V)>) -> Result<bool, IndexError> {
        let (tree, before) = (self.tree, out.len());
        let mut barren = Barren::default();
        while out.len() == before {
            let Some(at) = self.front_leaf()? else { return Ok(false) };
            let lower = &self.lower;
            let copied = tree.copy_records(&at, |key, entry| {
                if out.len() < all && !below(&key, lower) {
                    out.push((key, Form::<K, V>::value(&tree.pool, entry)?));
                }
                Ok(Outside { below: false, above: false })
            });
            if !at.validate(tree.pm()) {
                out.truncate(before);
                tree.pm().spin();
                continue;
            }
            if let Err(error) = copied {
                out.truncate(before);
                return Err(error.into());
            }
            barren.one_more(&at, tree.leaf_limit())?;
            self.front = Front::After(at);
        }
        if let Some((greatest, _)) = out.last() {
            self.lower = Bound::Excluded(greatest.clone());
        }
        Ok(true)
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
        if let Some(item) = self.front_items.pop_front() {
            return Some(Ok(item));
        }
        let item = self.back_items.pop_front()?;
        self.lower = Bound::Excluded(item.0.clone()); // the back may have leaves to read yet
        Some(Ok(item))
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
        if let Some(item) = self.back_items.pop_back() {
            return Some(Ok(item));
        }
        let item = self.front_items.pop_back()?;
        self.upper = Bound::Excluded(item.0.clone()); // the front may have leaves to read yet
        Some(Ok(item))
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> std::iter::FusedIterator
    for Range<'_, K, V, M, LEAF, INNER>
{
}

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> IntoIterator
    for &'t FastFair<K, V, M, LEAF, INNER>
{
    type Item = Result<(K, V), IndexError>;
    type IntoIter = Range<'t, K, V, M, LEAF, INNER>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
