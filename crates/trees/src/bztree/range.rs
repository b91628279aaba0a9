//! Scans, in both directions.
//!
//! A scan copies one leaf at a time, outside any epoch: its live records between the bounds, in
//! order. Each was there, durably, at some moment of the copy. Going on it descends to the keys
//! right after the separator on the leaf's right, or to those up to the separator on its left: the
//! next leaf starts exactly where the last one ended, whatever split or merged in between.
//!
//! The two ends share the bounds: each leaf that one end copies moves its bound past it, so the
//! other end never copies the same records; when nothing is left to copy, an end takes what the
//! other has copied and not given out.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

use pmindex_core::{LINE, Mapped, Medium, PPtr, PmError};
use pmindex_index::{IndexError, Key, Noted, Shape, Value};
use pmindex_record::Probe;

use super::access::Path;
use super::inner::Target;
use super::layout::{Geometry, MAX_LEAF};
use super::leaf::{Leaf, bits, corrupt};
use super::record::{Raw, Record, key_from};
use super::tree::BzTree;

/// Items of a range scan, from both ends.
pub struct Range<'t, K, V, M: Medium = Mapped, const LEAF: usize = 60, const INNER: usize = 64> {
    tree: &'t BzTree<K, V, M, LEAF, INNER>,
    /// What is below has been copied by the front.
    lower: Bound<Raw>,
    /// What is above has been copied by the back.
    upper: Bound<Raw>,
    /// Nothing is left between the two.
    done: bool,
    /// What the front has copied, ascending.
    front: VecDeque<(K, V)>,
    /// What the back has copied, ascending, all greater.
    back: VecDeque<(K, V)>,
}

impl<K, V, M: Medium, const LEAF: usize, const INNER: usize> std::fmt::Debug
    for Range<'_, K, V, M, LEAF, INNER>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    BzTree<K, V, M, LEAF, INNER>
{
    /// The records with keys in `bounds`, in order, from both ends.
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    pub fn range(&self, bounds: impl RangeBounds<K>) -> Range<'_, K, V, M, LEAF, INNER> {
        let (lower, upper) = (bounds.start_bound(), bounds.end_bound());
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
        let raw = |key: &K| Raw::of(&Probe::<K>::of_stored(key));
        let (lower, upper) = (lower.map(raw), upper.map(raw));
        let (front, back) = (VecDeque::new(), VecDeque::new());
        Range { tree: self, lower, upper, done: false, front, back }
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

    /// Fetches the leaf after that of `path`, if both have one parent. A hint.
    fn prefetch_next(&self, path: &Path<'_>) -> Result<(), PmError> {
        let Some(step) = path.steps().last() else { return Ok(()) };
        let parent = self.inner(step.node)?;
        if step.index < parent.separators(self.pm())? {
            let next = parent.child(&self.mwcas, step.index + 1)?;
            for line in (0..8 * next.words()).step_by(LINE) {
                self.pool.prefetch(PPtr::<u64>::new(next.offset() + line as u64));
            }
        }
        Ok(())
    }

    /// The records of a leaf between the bounds, ascending.
    fn copy_out(
        &self,
        leaf: &Leaf<'_, K, V, LEAF, INNER>,
        bounds: (&Bound<Raw>, &Bound<Raw>),
        items: &mut VecDeque<(K, V)>,
    ) -> Result<(), PmError> {
        let status = leaf.status(&self.mwcas)?;
        let live = leaf.live(&self.mwcas, status)?;
        let pm = self.pm();
        let mut later = [(0, 0); MAX_LEAF];
        let mut count = 0;
        if Geometry::<K, V, LEAF, INNER>::FIXED && K::SHAPE == Shape::Inline(1) {
            let low = match bounds.0 {
                Bound::Included(raw) => Some(raw.words[0]),
                Bound::Excluded(raw) => match raw.words[0].checked_add(1) {
                    None => return Ok(()),
                    low => low,
                },
                Bound::Unbounded => None,
            };
            let high = match bounds.1 {
                Bound::Included(raw) => Some(raw.words[0]),
                Bound::Excluded(raw) => match raw.words[0].checked_sub(1) {
                    None => return Ok(()),
                    high => high,
                },
                Bound::Unbounded => None,
            };
            let within = low.unwrap_or(0)..=high.unwrap_or(u64::MAX);
            for i in bits(live.later) {
                let at = leaf.record(live.entries[i].place())?;
                let key = pm.load_word(&at.words[0]);
                if within.contains(&key) {
                    later[count] = (key, i);
                    count += 1;
                }
            }
            let later = &mut later[..count];
            later.sort_unstable();
            let mut next = 0;
            let mut push = |key: u64, record: Record<'_, K, V>| -> Result<(), PmError> {
                items.push_back((K::from_words(&[key]), record.value(&self.mwcas)?));
                Ok(())
            };
            for number in bits(live.sorted) {
                let record = leaf.record(leaf.place(pm, number))?;
                let key = pm.load_word(&record.words[0]);
                if !within.contains(&key) {
                    continue;
                }
                while let Some(&(before, i)) = later.get(next).filter(|(other, _)| *other <= key) {
                    // The same key twice: it was replaced while this read. Either was there.
                    if before < key {
                        push(before, leaf.record(live.entries[i].place())?)?;
                    }
                    next += 1;
                }
                push(key, record)?;
            }
            let mut last = None;
            for &(key, i) in &later[next..] {
                if last != Some(key) {
                    push(key, leaf.record(live.entries[i].place())?)?;
                }
                last = Some(key);
            }
            return Ok(());
        }
        self.copy_any(leaf, &live, bounds, items)
    }

    /// The same for any types, record by record.
    fn copy_any(
        &self,
        leaf: &Leaf<'_, K, V, LEAF, INNER>,
        live: &super::leaf::Live,
        (lower, upper): (&Bound<Raw>, &Bound<Raw>),
        items: &mut VecDeque<(K, V)>,
    ) -> Result<(), PmError> {
        let pm = self.pm();
        let mut found = Vec::new();
        let sorted = bits(live.sorted).map(|number| leaf.place(pm, number));
        let later = bits(live.later).map(|i| live.entries[i].place());
        for place in sorted.chain(later) {
            let record = leaf.record(place)?;
            let key = record.raw_key(&self.mwcas)?;
            let above = match lower {
                Bound::Included(raw) => key.compare(K::SHAPE, raw).is_ge(),
                Bound::Excluded(raw) => key.compare(K::SHAPE, raw).is_gt(),
                Bound::Unbounded => true,
            };
            let below = match upper {
                Bound::Included(raw) => key.compare(K::SHAPE, raw).is_le(),
                Bound::Excluded(raw) => key.compare(K::SHAPE, raw).is_lt(),
                Bound::Unbounded => true,
            };
            if above && below {
                found.push((key, record));
            }
        }
        found.sort_by(|a, b| a.0.compare(K::SHAPE, &b.0));
        // The same key twice: it was replaced while this read. Either was there.
        found.dedup_by(|a, b| a.0.compare(K::SHAPE, &b.0).is_eq());
        for (key, record) in found {
            items.push_back((key_from(&key, leaf.offset())?, record.value(&self.mwcas)?));
        }
        Ok(())
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    Range<'_, K, V, M, LEAF, INNER>
{
    /// Copies leaves from the front until there is an item, or nothing left.
    fn fill_front(&mut self) -> Result<(), IndexError> {
        while self.front.is_empty() && !self.done {
            let (tree, lower, upper) = (self.tree, &self.lower, &self.upper);
            let items = &mut self.front;
            let high = tree.optimistic(|| {
                items.clear();
                let target = match lower {
                    Bound::Included(raw) => Target::Key(raw.borrowed()),
                    Bound::Excluded(raw) => Target::After(raw.borrowed()),
                    Bound::Unbounded => Target::First,
                };
                let path = tree.path(tree.anchor()?, &target)?;
                tree.prefetch_next(&path)?;
                tree.copy_out(&tree.leaf(path.leaf)?, (lower, upper), items)?;
                Ok(tree.fences(&path)?.1)
            })?;
            let Some(high) = high else {
                self.done = true;
                continue;
            };
            if let Bound::Excluded(last) = &self.lower
                && last.compare(K::SHAPE, &high).is_ge()
            {
                return Err(corrupt("separators out of order", 0).into());
            }
            if let Bound::Included(last) | Bound::Excluded(last) = &self.upper {
                self.done = last.compare(K::SHAPE, &high).is_le();
            }
            self.lower = Bound::Excluded(high);
        }
        Ok(())
    }

    /// Copies leaves from the back until there is an item, or nothing left.
    fn fill_back(&mut self) -> Result<(), IndexError> {
        while self.back.is_empty() && !self.done {
            let (tree, lower, upper) = (self.tree, &self.lower, &self.upper);
            let items = &mut self.back;
            let low = tree.optimistic(|| {
                items.clear();
                let target = match upper {
                    Bound::Included(raw) | Bound::Excluded(raw) => Target::Key(raw.borrowed()),
                    Bound::Unbounded => Target::Last,
                };
                let path = tree.path(tree.anchor()?, &target)?;
                tree.copy_out(&tree.leaf(path.leaf)?, (lower, upper), items)?;
                Ok(tree.fences(&path)?.0)
            })?;
            let Some(low) = low else {
                self.done = true;
                continue;
            };
            if let Bound::Included(last) | Bound::Excluded(last) = &self.upper
                && last.compare(K::SHAPE, &low).is_le()
            {
                return Err(corrupt("separators out of order", 0).into());
            }
            if let Bound::Included(first) | Bound::Excluded(first) = &self.lower {
                self.done = match first.compare(K::SHAPE, &low) {
                    std::cmp::Ordering::Less => false,
                    std::cmp::Ordering::Equal => matches!(self.lower, Bound::Excluded(_)),
                    std::cmp::Ordering::Greater => true,
                };
            }
            self.upper = Bound::Included(low);
        }
        Ok(())
    }

    /// Appends up to `limit` records.
    pub(super) fn append_to(
        &mut self,
        limit: usize,
        out: &mut Vec<(K, V)>,
    ) -> Result<(), IndexError> {
        let mut left = limit;
        while left > 0 {
            self.fill_front()?;
            let taken = left.min(self.front.len());
            if taken == 0 {
                break;
            }
            out.extend(self.front.drain(..taken));
            left -= taken;
        }
        Ok(())
    }

    #[cold]
    fn fail(&mut self, error: IndexError) -> Result<(K, V), IndexError> {
        self.done = true;
        self.front.clear();
        self.back.clear();
        Err(error).noted(&self.tree.pool)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> Iterator
    for Range<'_, K, V, M, LEAF, INNER>
{
    type Item = Result<(K, V), IndexError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(item) = self.front.pop_front() {
            return Some(Ok(item));
        }
        if let Err(error) = self.fill_front() {
            return Some(self.fail(error));
        }
        self.front.pop_front().or_else(|| self.back.pop_front()).map(Ok)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> DoubleEndedIterator
    for Range<'_, K, V, M, LEAF, INNER>
{
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if let Some(item) = self.back.pop_back() {
            return Some(Ok(item));
        }
        if let Err(error) = self.fill_back() {
            return Some(self.fail(error));
        }
        self.back.pop_back().or_else(|| self.front.pop_back()).map(Ok)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> std::iter::FusedIterator
    for Range<'_, K, V, M, LEAF, INNER>
{
}

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> IntoIterator
    for &'t BzTree<K, V, M, LEAF, INNER>
{
    type Item = Result<(K, V), IndexError>;
    type IntoIter = Range<'t, K, V, M, LEAF, INNER>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
