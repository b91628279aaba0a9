//! Scans in both directions, over any source that reads one leaf at a time.
//!
//! The two ends share the [`Bounds`]: each leaf that one end copies moves its bound past the copied records,
//! so the other end never copies them. When nothing is left between the bounds, an end takes the records that
//! the other one has copied and not returned.

use std::collections::VecDeque;
use std::fmt;
use std::iter::FusedIterator;
use std::ops::{Bound, ControlFlow};

use pmindex_core::sync::VersionLock;
use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, KeyRange, Noted, Records, Value};

use crate::sink::Sink;

/// The keys that a scan has not copied yet lie between these.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<B> {
    /// Keys below have been copied by the front, or are not wanted.
    pub lower: Bound<B>,
    /// Keys above have been copied by the back, or are not wanted.
    pub upper: Bound<B>,
    /// Memory for the lower bound, if it has none yet.
    pub spare: Option<B>,
}

/// The records of a leaf that a scan did not take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outside {
    /// Some are below the bounds.
    pub below: bool,
    /// Some are above the bounds.
    pub above: bool,
    /// Some may be within the bounds, and were not needed yet.
    pub cut: bool,
}

impl<K> Bounds<K> {
    /// Gives the memory of the keys back to `records`.
    pub fn keep<V>(self, records: &mut Records<K, V>)
    where
        K: Key,
    {
        let unused = self.spare.map_or(Bound::Unbounded, Bound::Included);
        records.keep((unused, Bound::Unbounded));
        records.keep((self.lower, self.upper));
    }
}

impl<K: Key> Bounds<K> {
    /// Returns the bounds of a range.
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    #[track_caller]
    #[allow(clippy::needless_pass_by_value, reason = "as ranges are passed everywhere")]
    pub fn of(range: impl KeyRange<K>) -> Self {
        let (lower, upper) = range.bounds();
        Self { lower: lower.map(K::owned), upper: upper.map(K::owned), spare: None }.checked()
    }

    /// Returns the bounds of a range, in memory that `records` keeps.
    ///
    /// # Panics
    /// As [`of`](Self::of).
    #[track_caller]
    pub fn of_kept<V>(range: impl KeyRange<K>, records: &mut Records<K, V>) -> Self {
        let (lower, upper) = records.bounds(range);
        let spare = if matches!(lower, Bound::Unbounded) { records.spare_key() } else { None };
        Self { lower, upper, spare }.checked()
    }

    #[track_caller]
    #[inline]
    fn checked(self) -> Self {
        match (&self.lower, &self.upper) {
            (Bound::Excluded(s), Bound::Excluded(e)) => {
                assert!(s != e, "range start and end are equal and excluded");
                assert!(s <= e, "range start is greater than range end");
            }
            (Bound::Included(s) | Bound::Excluded(s), Bound::Included(e) | Bound::Excluded(e)) => {
                assert!(s <= e, "range start is greater than range end");
            }
            _ => {}
        }
        self
    }
}

impl<B: Ord> Bounds<B> {
    /// Returns `true` if `key` lies below the lower bound.
    #[inline(always)]
    pub fn is_below(&self, key: &B) -> bool {
        match &self.lower {
            Bound::Included(bound) => key < bound,
            Bound::Excluded(bound) => key <= bound,
            Bound::Unbounded => false,
        }
    }

    /// Returns `true` if `key` lies above the upper bound.
    #[inline(always)]
    pub fn is_above(&self, key: &B) -> bool {
        match &self.upper {
            Bound::Included(bound) => key > bound,
            Bound::Excluded(bound) => key >= bound,
            Bound::Unbounded => false,
        }
    }

    /// Returns `true` if no key can lie between the bounds, which may have met.
    pub fn have_met(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Included(s), Bound::Included(e)) => s > e,
            (Bound::Included(s) | Bound::Excluded(s), Bound::Included(e) | Bound::Excluded(e)) => {
                s >= e
            }
            _ => false,
        }
    }

    /// Moves the lower bound past the last of these records, which are in order.
    #[inline]
    pub fn pass_up<V>(&mut self, items: &[(B, V)])
    where
        B: Clone,
    {
        if let Some((greatest, _)) = items.last() {
            pass(&mut self.lower, greatest, &mut self.spare);
        }
    }

    /// Moves the upper bound past the first of these records, which are in order.
    #[inline]
    pub fn pass_down<V>(&mut self, items: &[(B, V)])
    where
        B: Clone,
    {
        if let Some((least, _)) = items.first() {
            pass(&mut self.upper, least, &mut None);
        }
    }
}

/// Moves a bound past a key, in the memory of the bound's key or of a spare one.
#[inline]
fn pass<B: Clone>(bound: &mut Bound<B>, key: &B, spare: &mut Option<B>) {
    let old = match std::mem::replace(bound, Bound::Unbounded) {
        Bound::Included(old) | Bound::Excluded(old) => Some(old),
        Bound::Unbounded => spare.take(),
    };
    *bound = Bound::Excluded(match old {
        Some(mut old) => {
            old.clone_from(key);
            old
        }
        None => key.clone(),
    });
}

/// Counts consecutive leaves without a wanted record: an intact list never has more than its number of
/// leaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Barren(u64);

impl Barren {
    /// Counts the leaf at `offset`, of which a scan took `taken` records.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if there are more than `limit`.
    #[inline]
    pub fn count(&mut self, taken: usize, offset: u64, limit: u64) -> Result<(), PmError> {
        self.0 = if taken == 0 { self.0 + 1 } else { 0 };
        if self.0 <= limit {
            return Ok(());
        }
        Err(PmError::Corrupt { what: "the list of leaves has no end", offset })
    }
}

/// The leaves that reads took no record of, each at a version, for a source that is
/// [watched](LeafSource::watch).
#[derive(Debug, Default)]
pub struct Skipped<'t> {
    watched: bool,
    leaves: Vec<(&'t VersionLock, u64)>,
}

impl<'t> Skipped<'t> {
    /// Notes leaves from now on.
    pub fn watch(&mut self) {
        self.watched = true;
    }

    /// Notes the leaf of this lock and version, of which a read took `taken` records.
    #[inline]
    pub fn note(&mut self, taken: usize, lock: &'t VersionLock, version: u64) {
        if self.watched && taken == 0 {
            self.leaves.push((lock, version));
        }
    }

    /// Returns whether all of them are unchanged.
    pub fn stay(&self, pm: &impl Medium) -> bool {
        self.leaves.iter().all(|(lock, version)| lock.validate(pm, *version))
    }
}

/// Implements [`watch`](LeafSource::watch) and [`stays`](LeafSource::stays) of a source with the fields `tree` and
/// `skipped`, which is [`Skipped`].
#[doc(hidden)]
#[macro_export]
macro_rules! watches_skipped {
    () => {
        fn watch(&mut self) {
            self.skipped.watch();
        }

        fn stays(&self) -> bool {
            self.skipped.stay(self.tree.pm())
        }
    };
}

/// An index as the source of scans: one leaf after another, from both ends.
///
/// A read appends records of the next leaf, ascending, that lie between the bounds, and moves its bound past
/// them. It returns whether there may be more between the bounds. It may append nothing: the leaf has changed
/// meanwhile, or none of its records is wanted. The records of one read all existed, durably, during it.
pub trait LeafSource {
    /// Keys.
    type Key: Key;
    /// Values.
    type Value: Value;
    /// The pool's medium.
    type Medium: Medium;
    /// The form in which the bounds are kept.
    type Bound;
    /// `true` if [`stays`](Self::stays) can tell only while the pool is pinned, unless the first leaf had a
    /// record.
    const PINNED: bool = false;

    /// Returns the pool to which a scan reports damage.
    fn pool(&self) -> &Pool<Self::Medium>;

    /// Reads at the front. Records beyond `most` are held for later, so a source that can stop there saves
    /// copying them.
    ///
    /// # Errors
    /// Those of a scan; the scan ends.
    fn read_front(
        &mut self,
        bounds: &mut Bounds<Self::Bound>,
        most: usize,
        items: &mut impl Sink<Self::Key, Self::Value>,
    ) -> Result<bool, IndexError>;

    /// Notes from now on what reads without a record have seen, for [`stays`](Self::stays).
    fn watch(&mut self) {}

    /// Returns whether everything that reads have seen since [`watch`](Self::watch), up to the first record, was
    /// there at one moment. The default is for a source whose every read is of one moment and skips what is
    /// empty.
    fn stays(&self) -> bool {
        true
    }

    /// Gives the memory of bounds back to `records`, if they are keys.
    fn keep(bounds: Bounds<Self::Bound>, records: &mut Records<Self::Key, Self::Value>) {
        drop(bounds);
        let _ = records;
    }

    /// Reads at the back, into `items`, which is empty.
    ///
    /// # Errors
    /// Those of a scan; the scan ends.
    fn read_back(
        &mut self,
        bounds: &mut Bounds<Self::Bound>,
        most: usize,
        items: &mut Vec<(Self::Key, Self::Value)>,
    ) -> Result<bool, IndexError>;
}

/// A key and its value.
type Record<S> = (<S as LeafSource>::Key, <S as LeafSource>::Value);

/// Items of a range scan, from both ends.
pub struct Scan<S: LeafSource> {
    source: S,
    bounds: Bounds<S::Bound>,
    /// `true` if nothing is left between the bounds.
    done: bool,
    /// The records that the front has copied, ascending.
    front: VecDeque<Record<S>>,
    /// The records that the back has copied, ascending, all greater.
    back: VecDeque<Record<S>>,
}

impl<S: LeafSource> fmt::Debug for Scan<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").finish_non_exhaustive()
    }
}

impl<S: LeafSource> Scan<S> {
    /// Makes the scan of the keys between the bounds.
    pub fn new(source: S, bounds: Bounds<S::Bound>) -> Self {
        Self { source, bounds, done: false, front: VecDeque::new(), back: VecDeque::new() }
    }

    /// Appends up to `limit` records, ascending, and reports no damage to the pool.
    ///
    /// # Errors
    /// Those of the index. Records appended before stay.
    pub fn append_to(&mut self, limit: usize, out: &mut Vec<Record<S>>) -> Result<(), IndexError> {
        let end = out.len().saturating_add(limit);
        out.extend(self.front.drain(..limit.min(self.front.len())));
        while out.len() < end && !self.done {
            let most = end - out.len();
            self.done = !self.source.read_front(&mut self.bounds, most, out)?;
        }
        if out.len() > end {
            self.front.extend(out.drain(end..));
        }
        let missing = end - out.len();
        out.extend(self.back.drain(..missing.min(self.back.len())));
        Ok(())
    }

    /// Reads up to `limit` records, ascending, in place of the contents of `out`, and reports no damage to
    /// the pool; returns their number.
    ///
    /// # Errors
    /// Those of the index. Records read before stay.
    pub fn fill(
        mut self,
        limit: usize,
        out: &mut Records<S::Key, S::Value>,
    ) -> Result<usize, IndexError> {
        out.clear();
        while out.len() < limit && !self.done {
            let most = limit - out.len();
            self.done = !self.source.read_front(&mut self.bounds, most, out)?;
        }
        out.truncate(limit);
        S::keep(self.bounds, out);
        Ok(out.len())
    }

    /// Returns the first record of the scan that `begin` makes, and reports no damage to the pool. It was the
    /// first at one moment, whatever other threads did to the leaves before it.
    ///
    /// # Errors
    /// Those of the index.
    pub fn least(begin: impl Fn() -> Self) -> Result<Option<Record<S>>, IndexError> {
        Self::end(begin, true)
    }

    /// Returns the last record, as [`least`](Self::least) returns the first.
    ///
    /// # Errors
    /// Those of the index.
    pub fn greatest(begin: impl Fn() -> Self) -> Result<Option<Record<S>>, IndexError> {
        Self::end(begin, false)
    }

    fn end(begin: impl Fn() -> Self, up: bool) -> Result<Option<Record<S>>, IndexError> {
        if let ControlFlow::Break(end) = begin().try_end(up, S::PINNED)? {
            return Ok(end);
        }
        let other = begin();
        let pool = other.source.pool();
        let _pin = S::PINNED.then(|| pool.pin());
        loop {
            if let ControlFlow::Break(end) = begin().try_end(up, false)? {
                return Ok(end);
            }
            pool.pm().spin();
        }
    }

    /// Returns the record at an end, unless a leaf that was read before it has changed; with `first`, unless
    /// the first leaf had no record.
    fn try_end(
        mut self,
        up: bool,
        first: bool,
    ) -> Result<ControlFlow<Option<Record<S>>>, IndexError> {
        self.source.watch();
        let mut items = Vec::new();
        let mut more = true;
        while items.is_empty() && more {
            more = if up {
                self.source.read_front(&mut self.bounds, 1, &mut items)?
            } else {
                self.source.read_back(&mut self.bounds, 1, &mut items)?
            };
            if first && items.is_empty() {
                return Ok(ControlFlow::Continue(()));
            }
        }
        if !self.source.stays() {
            return Ok(ControlFlow::Continue(()));
        }
        Ok(ControlFlow::Break(if up { items.into_iter().next() } else { items.pop() }))
    }

    /// Copies leaves at the front until there is a record, or nothing is left.
    fn fill_front(&mut self) -> Result<(), IndexError> {
        if !self.front.is_empty() || self.done {
            return Ok(());
        }
        let mut items = Vec::from(std::mem::take(&mut self.front));
        while items.is_empty() && !self.done {
            self.done = !self.source.read_front(&mut self.bounds, usize::MAX, &mut items)?;
        }
        self.front = items.into();
        Ok(())
    }

    /// Copies leaves at the back until there is a record, or nothing is left.
    fn fill_back(&mut self) -> Result<(), IndexError> {
        if !self.back.is_empty() || self.done {
            return Ok(());
        }
        let mut items = Vec::from(std::mem::take(&mut self.back));
        while items.is_empty() && !self.done {
            self.done = !self.source.read_back(&mut self.bounds, usize::MAX, &mut items)?;
        }
        self.back = items.into();
        Ok(())
    }

    #[cold]
    fn fail(&mut self, error: IndexError) -> Result<Record<S>, IndexError> {
        self.done = true;
        self.front.clear();
        self.back.clear();
        Err(error).noted(self.source.pool())
    }
}

impl<S: LeafSource> Iterator for Scan<S> {
    type Item = Result<Record<S>, IndexError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(item) = self.front.pop_front() {
            return Some(Ok(item));
        }
        match self.fill_front() {
            Ok(()) => self.front.pop_front().or_else(|| self.back.pop_front()).map(Ok),
            Err(error) => Some(self.fail(error)),
        }
    }
}

impl<S: LeafSource> DoubleEndedIterator for Scan<S> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if let Some(item) = self.back.pop_back() {
            return Some(Ok(item));
        }
        match self.fill_back() {
            Ok(()) => self.back.pop_back().or_else(|| self.front.pop_back()).map(Ok),
            Err(error) => Some(self.fail(error)),
        }
    }
}

impl<S: LeafSource> FusedIterator for Scan<S> {}
