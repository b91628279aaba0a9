//! A buffer of records for scans, whose memory is used again.

use std::fmt;
use std::ops::{Bound, Deref};

use crate::key::Key;
use crate::range::KeyRange;

/// The records that [`scan_into`](crate::Index::scan_into) has read. It dereferences to a slice, and keeps its
/// memory, that of strings and vectors included, for the next scan.
///
/// ```
/// # mod pmindex { pub use pmindex_index::*; }
/// use pmindex::{Index, IndexError, Records};
///
/// /// Adds up all values, a page of records at a time: what the first pages allocate serves the others.
/// fn sum(index: &dyn Index<String, u64>) -> Result<u64, IndexError> {
///     let (mut page, mut last, mut sum) = (Records::new(), String::new(), 0);
///     let mut from = std::ops::Bound::Unbounded;
///     while index.scan_bounds_into(from, std::ops::Bound::Unbounded, 100, &mut page)? > 0 {
///         sum += page.iter().map(|(_, value)| value).sum::<u64>();
///         if let Some((key, _)) = page.last() {
///             last.clone_from(key);
///         }
///         from = std::ops::Bound::Excluded(&*last);
///     }
///     Ok(sum)
/// }
/// ```
pub struct Records<K, V> {
    /// The records, and behind them those of earlier scans, whose memory is used again.
    slots: Vec<(K, V)>,
    len: usize,
    /// Memory for copies of a range's bounds.
    spare: [Option<K>; 2],
}

impl<K, V> Records<K, V> {
    /// Makes an empty buffer without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { slots: Vec::new(), len: 0, spare: [None, None] }
    }

    /// Removes the records, and keeps their memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Takes the records out, with their memory.
    #[must_use]
    pub fn into_vec(mut self) -> Vec<(K, V)> {
        self.slots.truncate(self.len);
        self.slots
    }

    /// Keeps the first `len` records, if there are more.
    #[doc(hidden)]
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Returns the records.
    #[doc(hidden)]
    pub fn as_mut_slice(&mut self) -> &mut [(K, V)] {
        &mut self.slots[..self.len]
    }

    /// Adds a record.
    #[doc(hidden)]
    pub fn push(&mut self, record: (K, V)) {
        match self.slots.get_mut(self.len) {
            Some(slot) => *slot = record,
            None => self.slots.push(record),
        }
        self.len += 1;
    }

    /// Returns a record of an earlier scan, into which the next one may be read; then call
    /// [`grow`](Self::grow).
    #[doc(hidden)]
    #[inline]
    pub fn spare(&mut self) -> Option<&mut (K, V)> {
        self.slots.get_mut(self.len)
    }

    /// Makes what [`spare`](Self::spare) returned a record of this scan.
    #[doc(hidden)]
    #[inline]
    pub fn grow(&mut self) {
        self.len = self.slots.len().min(self.len + 1);
    }
}

impl<K: Key, V> Records<K, V> {
    /// Copies a range's bounds into memory of earlier ones.
    #[doc(hidden)]
    #[allow(clippy::needless_pass_by_value, reason = "as ranges are passed everywhere")]
    pub fn bounds(&mut self, range: impl KeyRange<K>) -> (Bound<K>, Bound<K>) {
        let [lower, upper] = &mut self.spare;
        let copy = |spare: &mut Option<K>, key: &K::Ref| match spare.take() {
            Some(mut spare) => {
                spare.assign(key);
                spare
            }
            None => K::owned(key),
        };
        let (low, high) = range.bounds();
        (low.map(|key| copy(lower, key)), high.map(|key| copy(upper, key)))
    }

    /// Memory for a lower bound.
    #[doc(hidden)]
    pub fn spare_key(&mut self) -> Option<K> {
        self.spare[0].take()
    }

    /// Keeps the memory of bounds.
    #[doc(hidden)]
    pub fn keep(&mut self, bounds: (Bound<K>, Bound<K>)) {
        for (spare, bound) in self.spare.iter_mut().zip([bounds.0, bounds.1]) {
            if let Bound::Included(key) | Bound::Excluded(key) = bound {
                *spare = Some(key);
            }
        }
    }
}

impl<K, V> Default for Records<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> Deref for Records<K, V> {
    type Target = [(K, V)];

    fn deref(&self) -> &[(K, V)] {
        &self.slots[..self.len]
    }
}

impl<'r, K, V> IntoIterator for &'r Records<K, V> {
    type Item = &'r (K, V);
    type IntoIter = std::slice::Iter<'r, (K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Records<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
