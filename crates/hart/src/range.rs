//! Scans, in both directions, walking from tree to tree.
//!
//! A scan takes some records at a time: their places, in order, from as many trees as that takes, then
//! each record, whose place is validated after it is read. Where something has changed it goes on from
//! the last key that it has. Records lie anywhere in PM: a walk fetches each as soon as it knows of it,
//! so the cache misses of a batch overlap each other and the rest of the walk.
//!
//! The two ends share the bounds: each batch that one end copies moves its bound past the records
//! copied, so the other end never copies them; when an end has nothing left to copy, it takes what
//! the other has copied and not given out.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

use pmindex_art::{Direction, KeyBuf, Place, Root, Scratch};
use pmindex_core::{Mapped, Medium, PmError};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::Probe;

use crate::directory::Directory;
use crate::layout::SlotRef;
use crate::record::KeyBytes;
use crate::tree::Hart;

/// The most records that are read at a time.
const BATCH: usize = 128;
/// From how many records on the next tree is walked together with the first.
const SEVERAL: usize = 16;
/// The most trees that are walked together, but for the first.
const MOST_TREES: usize = 32;
/// How far ahead of the record that is read the objects of another one are fetched.
const AHEAD: usize = 12;

/// Items of a range scan, from both ends.
pub struct Range<'t, K, V, M: Medium = Mapped, const CHUNK: usize = 56, const PREFIX: usize = 2> {
    tree: &'t Hart<K, V, M, CHUNK, PREFIX>,
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
    /// The roots of the trees that are walked together, but for the first.
    beyond: Vec<&'t Root>,
    scratch: Scratch<'t>,
}

/// A directory entry, and from where in its tree on.
type From = (usize, Bound<KeyBuf>);

/// Where one end reads next. `None`: nowhere.
struct End {
    next: Option<From>,
    /// Records of the next batch.
    batch: usize,
}

impl<K, V, M: Medium, const CHUNK: usize, const PREFIX: usize> std::fmt::Debug
    for Range<'_, K, V, M, CHUNK, PREFIX>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
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

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Hart<K, V, M, CHUNK, PREFIX>
{
    /// The records with keys in `bounds`, in order, from both ends.
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    pub fn range(&self, bounds: impl RangeBounds<K>) -> Range<'_, K, V, M, CHUNK, PREFIX> {
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
            front: End { next: self.scan_from(&lower, true), batch: 4 },
            back: End { next: self.scan_from(&upper, false), batch: 4 },
            tree: self,
            lower,
            upper,
            front_items: VecDeque::new(),
            back_items: VecDeque::new(),
            beyond: Vec::new(),
            scratch: Scratch::new(),
        }
    }

    /// The directory entry of a key, and the rest of it.
    fn home_of(key: &K) -> (usize, KeyBuf) {
        let probe = Probe::of_stored(key);
        let bytes = KeyBytes::of(&probe);
        let home = Self::home(bytes.bytes());
        let mut rest = KeyBuf::new();
        rest.push(home.rest);
        (home.entry, rest)
    }

    /// Where a scan begins.
    fn scan_from(&self, bound: &Bound<K>, up: bool) -> Option<From> {
        match bound {
            Bound::Included(key) => {
                let (entry, rest) = Self::home_of(key);
                Some((entry, Bound::Included(rest)))
            }
            Bound::Excluded(key) => {
                let (entry, rest) = Self::home_of(key);
                Some((entry, Bound::Excluded(rest)))
            }
            Bound::Unbounded => {
                let from = if up { 0 } else { Directory::<PREFIX>::ENTRIES - 1 };
                Some((self.directory.next(from, up)?, Bound::Unbounded))
            }
        }
    }

    /// All records, in order.
    pub fn iter(&self) -> Range<'_, K, V, M, CHUNK, PREFIX> {
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
        let enough = out.len() + limit;
        while out.len() < enough {
            range.front.batch = (enough - out.len()).min(BATCH);
            let read = range.read_batch(true, |key, value| out.push((key, value)));
            if !read.noted(&self.pool)? {
                break;
            }
        }
        Ok(())
    }

    /// The least record.
    pub fn first(&self) -> Result<Option<(K, V)>, IndexError> {
        let mut range = self.iter();
        range.front.batch = 1;
        range.next().transpose()
    }

    /// The greatest record.
    pub fn last(&self) -> Result<Option<(K, V)>, IndexError> {
        let mut range = self.iter();
        range.back.batch = 1;
        range.next_back().transpose()
    }

    /// The record at a place with its key; `None` if it is not linked there any more.
    #[inline(always)]
    fn read_record(&self, place: &Place<'_>) -> Option<Result<(K, V), PmError>> {
        let slot = SlotRef::from_number(place.leaf);
        let key = match self.records.key(slot) {
            Ok(key) => key,
            Err(error) => return place.validate(self.pm()).then_some(Err(error)),
        };
        // The key is believed if the place holds, which `read_at` validates.
        let hash = Probe::<K>::of_stored(&key).hash();
        let value = self.read_at(place, hash, |slot| self.records.value(slot))?;
        Some(value.map(|value| (key, value)))
    }
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Range<'_, K, V, M, CHUNK, PREFIX>
{
    /// Takes up to `limit` places from `from` on, from as many trees as that takes; returns whether
    /// there may be more.
    fn take_places(&mut self, from: &From, up: bool, limit: usize) -> Result<bool, PmError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        let direction = if up { Direction::Ascending } else { Direction::Descending };
        let fetch = |leaf| tree.records.prefetch(SlotRef::from_number(leaf));
        // The last entry that is not beyond the other end's bound.
        let last = match if up { &self.upper } else { &self.lower } {
            Bound::Included(key) | Bound::Excluded(key) => {
                Some(Hart::<K, V, M, CHUNK, PREFIX>::home_of(key).0)
            }
            Bound::Unbounded => None,
        };
        let after = |entry: usize| {
            let after = tree.directory.next(Directory::<PREFIX>::step(entry, up)?, up)?;
            let inside = last.is_none_or(|last| if up { after <= last } else { after >= last });
            inside.then_some(after)
        };
        let (mut entry, mut bound) = (from.0, from.1.as_ref().map(KeyBuf::bytes));
        let mut trees = usize::from(limit >= SEVERAL);
        self.scratch.clear();
        loop {
            let art = tree.tree(entry);
            self.beyond.clear();
            for _ in 0..trees {
                let Some(next) = after(entry) else { break };
                self.beyond.push(tree.directory.root(next));
                entry = next;
            }
            let (scratch, beyond) = (&mut self.scratch, &self.beyond);
            let left = limit - scratch.places().len();
            if art.walk_on(pm, (bound, direction), beyond, left, scratch, fetch)? {
                return Ok(true);
            }
            let Some(next) = after(entry) else { return Ok(false) };
            (entry, bound) = (next, Bound::Unbounded);
            trees = (2 * trees).clamp(1, MOST_TREES);
        }
    }

    /// Reads some records at one end and moves that end on; `false` if there are none left.
    fn read_batch(&mut self, up: bool, mut take: impl FnMut(K, V)) -> Result<bool, IndexError> {
        let tree = self.tree;
        let end = if up { &mut self.front } else { &mut self.back };
        let Some(from) = end.next.take() else { return Ok(false) };
        let limit = end.batch;
        end.batch = (4 * limit).min(BATCH);
        let more = self.take_places(&from, up, limit)?;
        // Given out when the next one is there: of the last one the key is kept.
        let mut held: Option<(K, V)> = None;
        let mut changed = false;
        let mut ended = false;
        let objects = |place: &Place<'_>| {
            tree.records.prefetch_objects(SlotRef::from_number(place.leaf));
        };
        let places = self.scratch.places();
        places.iter().take(AHEAD).for_each(objects);
        for (at, place) in places.iter().enumerate() {
            places.get(at + AHEAD).into_iter().for_each(objects);
            let Some(record) = tree.read_record(place) else {
                changed = true;
                break;
            };
            let (key, value) = record?;
            // What is not beyond what this end has read is no tree's: nothing would end it.
            if if up { below(&key, &self.lower) } else { above(&key, &self.upper) } {
                let offset = SlotRef::from_number(place.leaf).offset();
                return Err(PmError::Corrupt { what: "a record out of order", offset }.into());
            }
            let outside = if up { above(&key, &self.upper) } else { below(&key, &self.lower) };
            if outside {
                ended = true;
                break;
            }
            if let Some((key, value)) = held.replace((key, value)) {
                take(key, value);
            }
        }
        let last = held.map(|(key, value)| {
            let last = key.clone();
            take(key, value);
            last
        });
        let next = if ended || !more && !changed {
            None
        } else if let Some(key) = &last {
            let (entry, rest) = Hart::<K, V, M, CHUNK, PREFIX>::home_of(key);
            Some((entry, Bound::Excluded(rest)))
        } else {
            Some(from)
        };
        if up {
            self.front.next = next;
        } else {
            self.back.next = next;
        }
        self.moved(up, last);
        Ok(true)
    }

    /// Moves the bound of an end past what it has read.
    fn moved(&mut self, up: bool, last: Option<K>) {
        if let Some(key) = last {
            let bound = if up { &mut self.lower } else { &mut self.upper };
            *bound = Bound::Excluded(key);
        }
    }

    fn fill_front(&mut self) -> Result<(), IndexError> {
        let mut items = std::mem::take(&mut self.front_items);
        while items.is_empty()
            && self.read_batch(true, |key, value| items.push_back((key, value)))?
        {}
        self.front_items = items;
        Ok(())
    }

    fn fill_back(&mut self) -> Result<(), IndexError> {
        let mut items = std::mem::take(&mut self.back_items);
        while items.is_empty()
            && self.read_batch(false, |key, value| items.push_front((key, value)))?
        {}
        self.back_items = items;
        Ok(())
    }

    #[cold]
    fn fail(&mut self, error: IndexError) -> Result<(K, V), IndexError> {
        self.front.next = None;
        self.back.next = None;
        self.front_items.clear();
        self.back_items.clear();
        Err(error).noted(&self.tree.pool)
    }
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> Iterator
    for Range<'_, K, V, M, CHUNK, PREFIX>
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
            self.back.next = None;
        }
        self.front_items.pop_front().or_else(|| self.back_items.pop_front()).map(Ok)
    }
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> DoubleEndedIterator
    for Range<'_, K, V, M, CHUNK, PREFIX>
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
            self.front.next = None;
        }
        self.back_items.pop_back().or_else(|| self.front_items.pop_back()).map(Ok)
    }
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> std::iter::FusedIterator
    for Range<'_, K, V, M, CHUNK, PREFIX>
{
}

impl<'t, K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> IntoIterator
    for &'t Hart<K, V, M, CHUNK, PREFIX>
{
    type Item = Result<(K, V), IndexError>;
    type IntoIter = Range<'t, K, V, M, CHUNK, PREFIX>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
