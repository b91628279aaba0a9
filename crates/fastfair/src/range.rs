//! Scans, in both directions.
//!
//! A scan takes one leaf at a time: a private copy, validated as a whole, so its items were all
//! present and durable at one moment. Going on to the right it follows the leaf's link, if the leaf
//! has not changed since, or descends again; to the left it descends to the leaf's low, which belongs
//! to the leaf before. Either way the next leaf starts exactly where the last one ended, whatever
//! split or vanished in between: nothing is seen twice, nothing that stayed is missed.

use std::ops::Bound;

use pmindex_core::{Mapped, Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, Records, Value};
use pmindex_record::{Barren, Bounds, LeafSource, Outside, Scan, Sink, Skipped};

use super::access::At;
use super::entry::{Entry, Sought};
use super::layout::Form;
use super::tree::FastFair;

/// The number of leaves that a scan prefetches ahead.
const AHEAD: usize = 3;

/// Items of a range scan, from both ends.
pub type Range<'t, K, V, M = Mapped, const LEAF: usize = 30, const INNER: usize = 30> =
    Scan<Leaves<'t, K, V, M, LEAF, INNER>>;

/// The source of a [`Range`].
pub struct Leaves<'t, K, V, M: Medium, const LEAF: usize, const INNER: usize> {
    tree: &'t FastFair<K, V, M, LEAF, INNER>,
    front: Front<'t>,
    back: Back,
    barren: Barren,
    skipped: Skipped<'t>,
}

/// The leaf that the front reads next.
enum Front<'t> {
    /// That of the lower bound.
    Bound,
    /// The one after this, if this has not changed; else that of the lower bound.
    After(At<'t>),
}

/// The leaf that the back reads next.
enum Back {
    /// That of the upper bound.
    Bound,
    /// That of the low of the last one.
    Below(Sought<'static>),
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    fn scan_of(&self, bounds: Bounds<K>) -> Range<'_, K, V, M, LEAF, INNER> {
        let (front, back, barren) = (Front::Bound, Back::Bound, Barren::default());
        let skipped = Skipped::default();
        Scan::new(Leaves { tree: self, front, back, barren, skipped }, bounds)
    }

    /// Appends the records of a leaf that lie between the bounds, the least `most`, ascending; `None` if
    /// it has changed. Whatever goes wrong, nothing is appended.
    #[inline(always)]
    fn copy_out(
        &self,
        at: &At<'_>,
        bounds: &Bounds<K>,
        most: usize,
        items: &mut impl Sink<K, V>,
    ) -> Option<Result<Outside, PmError>> {
        let before = items.count();
        let copied = self.copy_records(at, bounds, most, items);
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

    /// As [`copy_out`](Self::copy_out). Racing: validate.
    #[inline(always)]
    fn copy_records(
        &self,
        at: &At<'_>,
        bounds: &Bounds<K>,
        most: usize,
        items: &mut impl Sink<K, V>,
    ) -> Result<Outside, PmError> {
        let leaf = self.leaf(at.leaf)?;
        let image = leaf.image(self.pm());
        if image.state().is_of(self.era) {
            let entries = image.records(LEAF).map(|i| image.entry(i));
            self.copy_entries(at, entries, bounds, most, items)
        } else {
            let entries = self.records_of(&leaf)?.into_iter().map(|i| image.entry(i));
            self.copy_entries(at, entries, bounds, most, items)
        }
    }

    #[inline(always)]
    fn copy_entries(
        &self,
        at: &At<'_>,
        mut entries: impl Iterator<Item = Entry>,
        bounds: &Bounds<K>,
        most: usize,
        items: &mut impl Sink<K, V>,
    ) -> Result<Outside, PmError> {
        let (before, full) = (items.count(), items.count().saturating_add(most));
        let mut outside = Outside::default();
        let lower = bounds.lower.as_ref().map(|key| Sought::of_bound::<K>(key.borrowed()));
        let is_below = |entry| {
            Ok::<_, PmError>(match &lower {
                Bound::Included(key) => Form::<K, V>::cmp_key(&self.pool, entry, key)?.is_lt(),
                Bound::Excluded(key) => Form::<K, V>::cmp_key(&self.pool, entry, key)?.is_le(),
                Bound::Unbounded => false,
            })
        };
        let mut next = entries.next();
        while let Some(entry) = next
            && is_below(entry)?
        {
            outside.below = true;
            next = entries.next();
        }
        while let Some(entry) = next {
            if items.count() >= full {
                outside.cut = true;
                break;
            }
            let added = items.add_if(&Form::<K, V>::readable(&self.pool, entry), |key| {
                outside.above = bounds.is_above(key);
                !outside.above
            });
            if !added? {
                break;
            }
            if let [.., (last, _), (key, _)] = &items.records()[before..]
                && last >= key
            {
                let what = "keys of a leaf out of order";
                return Err(PmError::Corrupt { what, offset: at.leaf });
            }
            next = entries.next();
        }
        Ok(outside)
    }
}

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    Leaves<'t, K, V, M, LEAF, INNER>
{
    /// Returns the leaf to read next at the front, or `None` after the last.
    fn front_leaf(&self, lower: &Bound<K>) -> Result<Option<At<'t>>, PmError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        if let Front::After(last) = &self.front {
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
        let at = match lower {
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

    /// Returns the leaf to read next at the back.
    fn back_leaf(&self, upper: &Bound<K>) -> Result<At<'t>, PmError> {
        match (&self.back, upper) {
            (Back::Below(low), _) => self.tree.locate(low),
            (Back::Bound, Bound::Included(key) | Bound::Excluded(key)) => {
                self.tree.locate(&Sought::of_bound::<K>(key.borrowed()))
            }
            (Back::Bound, Bound::Unbounded) => self.tree.locate(&Sought::GREATEST),
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
        let Some(at) = self.front_leaf(&bounds.lower)? else { return Ok(false) };
        let Some(outside) = tree.copy_out(&at, bounds, most, items) else { return Ok(true) };
        let (outside, taken) = (outside?, &items.records()[before..]);
        self.barren.count(taken.len(), at.leaf, tree.leaf_limit())?;
        self.skipped.note(taken.len(), at.lock, at.version);
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
        let at = self.back_leaf(&bounds.upper)?;
        let Some(outside) = tree.copy_out(&at, bounds, usize::MAX, items) else { return Ok(true) };
        let outside = outside?;
        self.barren.count(items.len(), at.leaf, tree.leaf_limit())?;
        // A leaf's low is the same all its life, so it belongs to the copy.
        let Some(low) = tree.low_at(&at) else {
            items.clear();
            return Ok(true);
        };
        let low = low?;
        let more = low.is_some() && !outside.below;
        self.skipped.note(items.len(), at.lock, at.version);
        bounds.pass_down(items);
        if let Some(low) = low {
            self.back = Back::Below(low);
        }
        Ok(more)
    }
}

pmindex_record::scans!(FastFair<K, V, M, LEAF: usize, INNER: usize>, Range);
