//! A range of a map at a moment, from both ends: the records of the index, the old values of records that
//! changed since, and a transaction's own changes.

use std::collections::VecDeque;
use std::ops::Bound;

use pmindex_core::Medium;
use pmindex_index::{Key, RangeIter, Value};

use crate::error::StoreError;
use crate::map::Shared;
use crate::moments::Reader;

/// Records read at once: few at first, for callers that need the first one only.
const FIRST: usize = 4;
const MOST: usize = 256;

/// A transaction's own changes between two bounds, by key.
pub(crate) type Own<'r, K, V> =
    Box<dyn Fn(&Bound<K>, &Bound<K>) -> Vec<(K, Option<V>)> + Send + 'r>;

/// A range of a map at a moment.
pub(crate) struct Range<'r, K: Key, V: Value, M: Medium> {
    map: &'r Shared<K, V, M>,
    reader: &'r Reader,
    own: Option<Own<'r, K, V>>,
    index: RangeIter<'r, K, V>,
    /// The records that are neither returned nor in `front` or `back` are between these.
    lower: Bound<K>,
    upper: Bound<K>,
    /// Records that were read from the front, ascending.
    front: VecDeque<(K, V)>,
    back: VecDeque<(K, V)>,
    /// `true` if everything was read.
    is_read: bool,
    next: usize,
}

impl<'r, K: Key, V: Value, M: Medium> Range<'r, K, V, M> {
    /// Returns the records between bounds.
    ///
    /// # Panics
    /// Like `BTreeMap::range`.
    pub(crate) fn new(
        map: &'r Shared<K, V, M>,
        reader: &'r Reader,
        own: Option<Own<'r, K, V>>,
        lower: Bound<&K::Ref>,
        upper: Bound<&K::Ref>,
    ) -> Self {
        let index = map.index.range_bounds(lower, upper);
        let (lower, upper) = (lower.map(K::owned), upper.map(K::owned));
        let (front, back) = (VecDeque::new(), VecDeque::new());
        Self { map, reader, own, index, lower, upper, front, back, is_read: false, next: FIRST }
    }

    /// Reads some records from one end of the index; the remaining bounds are the far one and the last key
    /// read.
    fn read(&mut self, forward: bool) -> Result<(), StoreError> {
        let mut found = Vec::new();
        for _ in 0..self.next {
            let next = if forward { self.index.next() } else { self.index.next_back() };
            let Some(record) = next else {
                self.is_read = true;
                break;
            };
            found.push(record?);
        }
        self.next = (2 * self.next).min(MOST);
        let (mut lower, mut upper) = (self.lower.clone(), self.upper.clone());
        if !self.is_read
            && let Some((last, _)) = found.last()
        {
            if forward {
                self.lower = Bound::Excluded(last.clone());
                upper = Bound::Included(last.clone());
            } else {
                self.upper = Bound::Excluded(last.clone());
                lower = Bound::Included(last.clone());
            }
        }
        if !forward {
            found.reverse();
        }
        let moment = self.reader.moment();
        self.map.core.pm().yield_point();
        // Read after the index: a commit that changed a record since has noted its old value before.
        if self.map.versions.was_empty(moment) {
            found.clear();
        }
        found = laid_over(found, self.map.versions.between(moment, &lower, &upper));
        if self.reader.is_ended() {
            return Err(StoreError::SnapshotEnded { limit: self.map.core.moments.limit() });
        }
        if let Some(own) = &self.own {
            found = laid_over(found, own(&lower, &upper));
        }
        if forward {
            self.front.extend(found);
        } else {
            found.extend(self.back.drain(..));
            self.back = found.into();
        }
        Ok(())
    }

    fn step(&mut self, forward: bool) -> Option<Result<(K, V), StoreError>> {
        loop {
            let near = if forward { &mut self.front } else { &mut self.back };
            let record = if forward { near.pop_front() } else { near.pop_back() };
            if record.is_some() {
                return record.map(Ok);
            }
            if self.is_read {
                let far = if forward { &mut self.back } else { &mut self.front };
                return if forward { far.pop_front() } else { far.pop_back() }.map(Ok);
            }
            if let Err(error) = self.read(forward) {
                self.is_read = true;
                self.front.clear();
                self.back.clear();
                return Some(Err(error));
            }
        }
    }
}

/// Merges records with changes, both ordered by key.
fn laid_over<K: Ord, V>(records: Vec<(K, V)>, changes: Vec<(K, Option<V>)>) -> Vec<(K, V)> {
    if changes.is_empty() {
        return records;
    }
    let mut all = Vec::with_capacity(records.len() + changes.len());
    let mut records = records.into_iter().peekable();
    for (key, value) in changes {
        while let Some(record) = records.next_if(|record| record.0 < key) {
            all.push(record);
        }
        records.next_if(|record| record.0 == key);
        all.extend(value.map(|value| (key, value)));
    }
    all.extend(records);
    all
}

impl<K: Key, V: Value, M: Medium> Iterator for Range<'_, K, V, M> {
    type Item = Result<(K, V), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl<K: Key, V: Value, M: Medium> DoubleEndedIterator for Range<'_, K, V, M> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}
