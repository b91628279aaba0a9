//! What the records of a map were, for those who read the past.
//!
//! A commit notes what each record it changes *was* before it, under its number, and then changes the
//! index. Who reads moment `m` reads the index first and this after it: the first version of a number
//! above `m` says what the record was at `m`; if there is none, nobody has changed it since, and what the
//! index said holds. A version stays as long as somebody may read a moment before it.
//!
//! The same table says whether anything that a transaction has read was changed since: each commit that
//! began after it noted what it changes.
//!
//! The lock of a table is held for moments without a wait in between, also under that of the moments; so it
//! needs no medium.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use parking_lot::Mutex;
use pmindex_index::{Key, Shape, Storable, Value};

use crate::moments::{Commit, Past};

/// Bytes of a version beside its key and value, about.
const OVERHEAD: usize = 96;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Versions<K, V> {
    table: Mutex<Table<K, V>>,
    /// Whether there are any.
    any: AtomicBool,
}

#[derive(Debug)]
struct Table<K, V> {
    /// Of each key, by number, what it was before that commit.
    keys: BTreeMap<K, Vec<Version<V>>>,
    /// All of them, by number.
    order: VecDeque<(u64, K)>,
    /// The map was empty until this commit loaded it.
    loaded: u64,
}

#[derive(Debug)]
struct Version<V> {
    number: u64,
    was: Option<V>,
    bytes: u64,
}

/// What is known of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known<V> {
    /// Nothing.
    Not,
    /// It was this, or was not there.
    Was(Option<V>),
}

impl<V: Clone> Version<V> {
    /// What a record with these versions was at a moment, if it was changed since; the map was empty until
    /// the commit `loaded`.
    fn at(versions: &[Self], moment: u64, loaded: u64) -> Known<V> {
        let first = versions.iter().find(|version| version.number > moment);
        match first {
            Some(first) if loaded <= moment || first.number < loaded => {
                Known::Was(first.was.clone())
            }
            _ if loaded > moment => Known::Was(None),
            _ => Known::Not,
        }
    }
}

/// Whether no key can be between the bounds.
pub(crate) fn is_empty<K: Ord>(lower: &Bound<K>, upper: &Bound<K>) -> bool {
    match (lower, upper) {
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => lower >= upper,
        _ => false,
    }
}

fn bytes_of<T: Storable>(value: &T) -> usize {
    size_of::<T>()
        + match T::SHAPE {
            Shape::Inline(_) => 0,
            Shape::Bytes => T::to_bytes(value.borrowed()).len(),
        }
}

impl<K: Key, V: Value> Versions<K, V> {
    pub(crate) fn new() -> Self {
        let table = Table { keys: BTreeMap::new(), order: VecDeque::new(), loaded: 0 };
        Self { table: Mutex::new(table), any: AtomicBool::new(false) }
    }

    /// Notes what a record was before a commit that is about to change it; the bytes that it takes.
    /// Nobody else changes the record meanwhile.
    pub(crate) fn note(&self, commit: Commit, key: &K, was: Option<V>) -> u64 {
        let Some(newest) = commit.newest_reader else { return 0 };
        let mut table = self.table.lock();
        let versions = table.keys.entry(key.clone()).or_default();
        if versions.last().is_some_and(|last| last.number > newest) {
            return 0; // nobody reads a moment between that commit and this one
        }
        let value = was.as_ref().map_or(0, bytes_of);
        let bytes = (OVERHEAD + 2 * bytes_of(key) + value) as u64;
        versions.push(Version { number: commit.number, was, bytes });
        table.order.push_back((commit.number, key.clone()));
        self.any.store(true, Release);
        bytes
    }

    /// Notes that the map was empty before a commit that is about to fill it.
    pub(crate) fn note_loaded(&self, commit: Commit) {
        self.table.lock().loaded = commit.number;
        self.any.store(true, Release);
    }

    /// What a record was at a moment, if it was changed since: asked after the index.
    pub(crate) fn at(&self, moment: u64, key: &K::Ref) -> Known<V> {
        if !self.any.load(Acquire) {
            return Known::Not;
        }
        let key = K::owned(key);
        let table = self.table.lock();
        let versions = table.keys.get(&key).map_or(&[][..], |versions| versions);
        Version::at(versions, moment, table.loaded)
    }

    /// Whether what the index has is to be left out: the map was empty at the moment.
    pub(crate) fn was_empty(&self, moment: u64) -> bool {
        self.any.load(Acquire) && self.table.lock().loaded > moment
    }

    /// What the records between the bounds that were changed since a moment were then, by key.
    pub(crate) fn between(
        &self,
        moment: u64,
        lower: &Bound<K>,
        upper: &Bound<K>,
    ) -> Vec<(K, Option<V>)> {
        if !self.any.load(Acquire) || is_empty(lower, upper) {
            return Vec::new();
        }
        let table = self.table.lock();
        let range = table.keys.range((lower.as_ref(), upper.as_ref()));
        let changed =
            range.filter_map(|(key, versions)| match Version::at(versions, moment, table.loaded) {
                Known::Was(was) => Some((key.clone(), was)),
                Known::Not => None,
            });
        changed.collect()
    }

    /// Whether a record was changed since a moment.
    pub(crate) fn is_changed(&self, moment: u64, key: &K) -> bool {
        if !self.any.load(Acquire) {
            return false;
        }
        let table = self.table.lock();
        let versions = table.keys.get(key).map_or(&[][..], |versions| versions);
        matches!(Version::at(versions, moment, table.loaded), Known::Was(_))
    }

    /// Whether any record between the bounds was changed since a moment.
    pub(crate) fn is_range_changed(
        &self,
        moment: u64,
        (lower, upper): &(Bound<K>, Bound<K>),
    ) -> bool {
        if !self.any.load(Acquire) || is_empty(lower, upper) {
            return false;
        }
        let table = self.table.lock();
        let mut range = table.keys.range((lower.as_ref(), upper.as_ref()));
        let since = |versions: &[Version<V>]| versions.iter().any(|noted| noted.number > moment);
        table.loaded > moment || range.any(|(_, versions)| since(versions))
    }
}

impl<K: Key, V: Value> Past for Versions<K, V> {
    fn forget(&self, oldest: u64) -> u64 {
        if !self.any.load(Acquire) {
            return 0;
        }
        let mut table = self.table.lock();
        let mut bytes = 0;
        while let Some((_, key)) = table.order.pop_front_if(|(number, _)| *number <= oldest) {
            if let Some(versions) = table.keys.get_mut(&key) {
                bytes += versions.remove(0).bytes; // the oldest of the key is the oldest in the order
                if versions.is_empty() {
                    table.keys.remove(&key);
                }
            }
        }
        if table.order.is_empty() && table.loaded <= oldest {
            self.any.store(false, Release);
        }
        bytes
    }
}
