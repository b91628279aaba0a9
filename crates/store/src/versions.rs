//! The old values of the records of a map, for readers of the past.
//!
//! A commit notes the old value of each record that it changes, under its number, and then changes the index.
//! A reader of moment `m` reads the index first and these versions after it: the first version with a number
//! above `m` has the value at `m`; if there is none, the record has not changed since, and the value of the
//! index is right. A version is kept as long as a reader may have a moment before it, and, once its record changes
//! again, only as long as one has a moment between the version before and it: so a record that changes often takes
//! little memory under an old snapshot.
//!
//! The same table tells whether something that a transaction has read was changed since: each commit that
//! began after it has noted its changes.
//!
//! The versions of a record are found by the hash of its key, in one of [`SHARDS`] tables, each with a lock.
//! For ranges the keys are also sorted, but only when a range is read: a commit appends its keys to a queue,
//! and the reader of a range sorts the new ones.
//!
//! The locks are held briefly and without waiting, also under the lock of the moments, so they need no
//! medium. The lock of a table may be taken under that of the queue.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Bound;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use pmindex_index::{Key, Shape, Storable, Value, hash_of, same_encoding};

use crate::moments::{Commit, Past};

/// The approximate bytes of a version besides its key and value.
const OVERHEAD: usize = 144;
/// The number of dropped versions that the queue may have in any case.
const STALE: usize = 32;
/// The number of tables of versions.
const SHARDS: usize = 64;

/// The old values of a map.
#[derive(Debug)]
pub(crate) struct Versions<K, V> {
    shards: Box<[Shard<K, V>]>,
    order: Mutex<Order<K>>,
    /// The map was empty until each of these commits loaded it: ascending, as far as readers need them. Locked after
    /// all others.
    loads: Mutex<Vec<u64>>,
    /// The last of them. Read after the versions of a record, since those of later commits depend on it.
    loaded: AtomicU64,
    /// `true` if there are any.
    any: AtomicBool,
}

/// The records whose keys share some bits of their hash; on a line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Shard<K, V>(Mutex<ByHash<K, V>>);

type ByHash<K, V> = HashMap<u64, SameHash<K, V>, BuildHasherDefault<AsItIs>>;

/// The hash of a hash is itself.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("a hash is a u64");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The records whose keys have the same hash, almost always one.
#[derive(Debug)]
struct SameHash<K, V> {
    first: Changed<K, V>,
    others: Vec<Changed<K, V>>,
}

/// A changed record: its value before each commit, by number.
#[derive(Debug)]
struct Changed<K, V> {
    key: K,
    first: Version<V>,
    /// Many if the record is changed often under an old reader.
    later: VecDeque<Version<V>>,
}

/// The keys in other orders than by hash.
#[derive(Debug)]
struct Order<K> {
    /// A key for each version, by number.
    by_number: VecDeque<(u64, K)>,
    /// The keys of all but the last of these.
    sorted: BTreeSet<K>,
    /// The number of the last ones that are not sorted.
    unsorted: usize,
    /// The number of those whose version was dropped because no reader needs it.
    stale: usize,
}

#[derive(Debug)]
struct Version<V> {
    number: u64,
    /// Its approximate bytes.
    bytes: u64,
    was: Option<V>,
}

/// The knowledge about a record at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueAt<V> {
    /// It has not changed since.
    Unchanged,
    /// It had this value, or was absent.
    Was(Option<V>),
}

impl<K: Key, V: Value> SameHash<K, V> {
    fn all(&self) -> impl Iterator<Item = &Changed<K, V>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn of(&mut self, key: &K) -> Option<&mut Changed<K, V>> {
        let mut all = std::iter::once(&mut self.first).chain(&mut self.others);
        all.find(|changed| changed.key == *key)
    }
}

impl<K: Key, V: Value> Changed<K, V> {
    fn new(key: K, first: Version<V>) -> Self {
        Self { key, first, later: VecDeque::new() }
    }

    fn versions(&self) -> impl Iterator<Item = &Version<V>> {
        std::iter::once(&self.first).chain(&self.later)
    }

    fn last(&self) -> &Version<V> {
        self.later.back().unwrap_or(&self.first)
    }

    /// Drops the versions that no reader needs, but not the last one; returns their number and bytes.
    fn drop_unneeded(&mut self, readers: &[(u64, u32)]) -> (usize, u64) {
        let (mut before, mut dropped) = (0, (0, 0));
        let mut is_needed = |version: &Version<V>| {
            let first = readers.partition_point(|(moment, _)| *moment < before);
            before = version.number;
            let needs = readers.get(first).is_some_and(|(moment, _)| *moment < version.number);
            if !needs {
                dropped = (dropped.0 + 1, dropped.1 + version.bytes);
            }
            needs
        };
        let Some(last) = self.later.pop_back() else { return (0, 0) };
        let first = is_needed(&self.first);
        self.later.retain(is_needed);
        self.later.push_back(last);
        if !first && let Some(next) = self.later.pop_front() {
            self.first = next;
        }
        dropped
    }

    /// Returns the value of the record before the first change since a moment.
    fn since(&self, moment: u64) -> Option<&Version<V>> {
        if self.first.number > moment {
            return Some(&self.first);
        }
        self.later.get(self.later.partition_point(|version| version.number <= moment))
    }
}

impl<V: Storable> Version<V> {
    fn new<K: Storable>(number: u64, key: &K, was: Option<V>) -> Self {
        let bytes = OVERHEAD + 3 * bytes_of(key) + was.as_ref().map_or(0, bytes_of);
        Self { number, bytes: bytes as u64, was }
    }
}

/// Returns `true` if no key can be between the bounds.
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

impl<K, V> Shard<K, V> {
    fn new() -> Self {
        Self(Mutex::new(HashMap::default()))
    }
}

impl<K: Key> Order<K> {
    fn new() -> Self {
        Self { by_number: VecDeque::new(), sorted: BTreeSet::new(), unsorted: 0, stale: 0 }
    }

    /// Drops those whose version does not exist.
    fn drop_stale(&mut self, exists: impl Fn(u64, &K) -> bool) {
        let sorted = self.by_number.len() - self.unsorted;
        let (mut at, mut unsorted) = (0, 0);
        // Before any is dropped: it hashes and compares keys, which may panic.
        let exist: Vec<bool> =
            self.by_number.iter().map(|(number, key)| exists(*number, key)).collect();
        self.by_number.retain(|_| {
            let stays = exist[at];
            unsorted += usize::from(stays && at >= sorted);
            at += 1;
            stays
        });
        (self.unsorted, self.stale) = (unsorted, 0);
    }

    /// Returns the keys between the bounds that have, and perhaps some that had, versions.
    fn between(&mut self, lower: &Bound<K>, upper: &Bound<K>) -> Vec<K> {
        let sorted = self.by_number.len() - self.unsorted;
        self.sorted.extend(self.by_number.range(sorted..).map(|(_, key)| key.clone()));
        self.unsorted = 0;
        self.sorted.range((lower.as_ref(), upper.as_ref())).cloned().collect()
    }
}

impl<K: Key, V: Value> Versions<K, V> {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::new()).collect(),
            order: Mutex::new(Order::new()),
            loads: Mutex::default(),
            loaded: AtomicU64::new(0),
            any: AtomicBool::new(false),
        }
    }

    /// Returns the table of a hash. It uses other bits than the table itself uses first.
    fn shard(&self, hash: u64) -> &Mutex<ByHash<K, V>> {
        &self.shards[(hash >> 40) as usize % SHARDS].0
    }

    /// Notes the old value of a record before a commit that is about to change it, and drops those that no reader
    /// needs. No other thread changes the record meanwhile, and commits call this one after another. A panic of the key
    /// or the value ends it before anything is noted, or after.
    pub(crate) fn note(&self, commit: Commit<'_>, key: &K, was: Option<V>) {
        let Some(newest) = commit.newest_reader else { return };
        let version = Version::new(commit.number, key, was);
        let (bytes, queued) = (version.bytes, (commit.number, key.clone()));
        let Some((dropped, less)) = self.add(newest, commit.readers, key.clone(), version) else {
            return; // no reader has a moment between the last change of the record and this one
        };
        commit.kept.fetch_add(bytes, Relaxed);
        commit.kept.fetch_sub(less, Relaxed);
        let mut order = self.order.lock();
        order.by_number.push_back(queued);
        order.unsorted += 1;
        order.stale += dropped;
        self.any.store(true, Release);
        if order.stale > STALE && order.stale > order.by_number.len() / 2 {
            order.drop_stale(|number, key| self.has_version(number, key));
        }
    }

    /// Adds a version unless its record has one that is later than a moment. Returns the number of those that it
    /// dropped, and their bytes.
    fn add(
        &self,
        moment: u64,
        readers: &[(u64, u32)],
        key: K,
        version: Version<V>,
    ) -> Option<(usize, u64)> {
        let hash = hash_of::<K>(key.borrowed());
        match self.shard(hash).lock().entry(hash) {
            Entry::Vacant(place) => {
                let first = Changed::new(key, version);
                place.insert(SameHash { first, others: Vec::new() });
            }
            Entry::Occupied(mut place) => {
                let same = place.get_mut();
                if let Some(changed) = same.of(&key) {
                    if changed.last().number > moment {
                        return None;
                    }
                    changed.later.push_back(version);
                    return Some(changed.drop_unneeded(readers));
                }
                same.others.push(Changed::new(key, version));
            }
        }
        Some((0, 0))
    }

    fn has_version(&self, number: u64, key: &K) -> bool {
        self.look(number - 1, key.borrowed(), |first| {
            first.is_some_and(|version| version.number == number)
        })
    }

    /// Returns the number of versions that the queue has.
    #[cfg(test)]
    pub(crate) fn noted(&self) -> usize {
        self.order.lock().by_number.len()
    }

    /// Notes that the map was empty before a commit that is about to fill it.
    pub(crate) fn note_loaded(&self, commit: Commit<'_>) {
        let _order = self.order.lock();
        self.loads.lock().push(commit.number); // before: a reader looks for it
        self.loaded.store(commit.number, Release);
        self.any.store(true, Release);
    }

    /// Reads the value of a record before the first change since a moment, if there was one.
    fn look<R>(&self, moment: u64, key: &K::Ref, read: impl FnOnce(Option<&Version<V>>) -> R) -> R {
        let hash = hash_of::<K>(key);
        let shard = self.shard(hash).lock();
        let is_it = |changed: &&Changed<K, V>| same_encoding::<K>(changed.key.borrowed(), key);
        let changed = shard.get(&hash).and_then(|same| same.all().find(is_it));
        read(changed.and_then(|changed| changed.since(moment)))
    }

    /// Returns the value of a record at a moment, if it was changed since. Called after reading the index.
    pub(crate) fn at(&self, moment: u64, key: &K::Ref) -> ValueAt<V> {
        if !self.any.load(Acquire) {
            return ValueAt::Unchanged;
        }
        self.look(moment, key, |first| match (first, self.first_load(moment)) {
            (Some(first), load) if load.is_none_or(|load| first.number < load) => {
                ValueAt::Was(first.was.clone())
            }
            (None, None) => ValueAt::Unchanged,
            _ => ValueAt::Was(None),
        })
    }

    /// Returns the first load of the map since a moment.
    fn first_load(&self, moment: u64) -> Option<u64> {
        if self.loaded.load(Acquire) <= moment {
            return None;
        }
        self.loads.lock().iter().copied().find(|load| *load > moment)
    }

    /// Returns `true` if the records of the index must be ignored: the map has been loaded since the moment, so all
    /// that it had at the moment was removed before.
    pub(crate) fn was_empty(&self, moment: u64) -> bool {
        self.loaded.load(Acquire) > moment
    }

    /// Returns the values at a moment of the records between the bounds that were changed since, by key.
    pub(crate) fn between(
        &self,
        moment: u64,
        lower: &Bound<K>,
        upper: &Bound<K>,
    ) -> Vec<(K, Option<V>)> {
        if !self.any.load(Acquire) || is_empty(lower, upper) {
            return Vec::new();
        }
        let keys = self.order.lock().between(lower, upper);
        let was = |key: K| match self.at(moment, key.borrowed()) {
            ValueAt::Was(was) => Some((key, was)),
            ValueAt::Unchanged => None,
        };
        keys.into_iter().filter_map(was).collect()
    }

    /// Returns `true` if a record was changed since a moment.
    pub(crate) fn is_changed(&self, moment: u64, key: &K) -> bool {
        matches!(self.at(moment, key.borrowed()), ValueAt::Was(_))
    }

    /// Returns `true` if any record between the bounds was changed since a moment.
    pub(crate) fn is_range_changed(
        &self,
        moment: u64,
        (lower, upper): &(Bound<K>, Bound<K>),
    ) -> bool {
        if !self.any.load(Acquire) || is_empty(lower, upper) {
            return false;
        }
        let keys = self.order.lock().between(lower, upper);
        let is_changed = |key: &K| self.look(moment, key.borrowed(), |first| first.is_some());
        self.was_empty(moment) || keys.iter().any(is_changed)
    }

    /// Drops the version of a record with this number, which is its oldest one if it exists; returns its bytes, and
    /// `true` if the record has no other one.
    fn forget_version(&self, number: u64, key: &K) -> (Option<u64>, bool) {
        let hash = hash_of::<K>(key.borrowed());
        let mut shard = self.shard(hash).lock();
        let Some(same) = shard.get_mut(&hash) else { return (None, true) };
        let Some(changed) = same.of(key) else { return (None, true) };
        if changed.first.number != number {
            return (None, false); // no reader needed it, so it was dropped
        }
        let bytes = Some(changed.first.bytes);
        if let Some(next) = changed.later.pop_front() {
            changed.first = next;
            return (bytes, false);
        }
        if let Some(at) = same.others.iter().position(|changed| changed.key == *key) {
            same.others.swap_remove(at);
        } else if let Some(other) = same.others.pop() {
            same.first = other;
        } else {
            shard.remove(&hash);
        }
        (bytes, true)
    }
}

impl<K: Key, V: Value> Past for Versions<K, V> {
    fn forget(&self, oldest: u64, kept: &AtomicU64) {
        let mut is_done = !self.any.load(Acquire);
        while !is_done {
            let order = &mut *self.order.lock();
            // A few at a time: commits need the lock.
            for _ in 0..64 {
                let Some((number, key)) =
                    order.by_number.front().filter(|(number, _)| *number <= oldest)
                else {
                    is_done = true;
                    break;
                };
                // The oldest version of the key is the oldest in the queue. Under the lock: a commit that
                // notes the key meanwhile adds it to the queue afterwards.
                let (forgotten, was_last) = self.forget_version(*number, key);
                // Under the lock, and before `any`: a thread that finds nothing to drop here finds the bytes taken.
                kept.fetch_sub(forgotten.unwrap_or(0), Relaxed);
                if was_last {
                    order.sorted.remove(key);
                }
                // After: all that a key's hash or comparison may interrupt.
                order.by_number.pop_front();
                order.unsorted = order.unsorted.min(order.by_number.len());
                order.stale -= usize::from(forgotten.is_none()).min(order.stale);
            }
            if is_done {
                self.loads.lock().retain(|load| *load > oldest);
            }
            if order.by_number.is_empty() && self.loaded.load(Acquire) <= oldest {
                self.any.store(false, Release);
            }
        }
    }

    fn clear(&self, kept: &AtomicU64) {
        let mut order = self.order.lock();
        for shard in &self.shards {
            let all: Vec<SameHash<K, V>> = shard.0.lock().drain().map(|(_, same)| same).collect();
            let versions = all.iter().flat_map(SameHash::all).flat_map(Changed::versions);
            kept.fetch_sub(versions.map(|version| version.bytes).sum(), Relaxed);
        }
        *order =
            Order { by_number: VecDeque::new(), sorted: BTreeSet::new(), unsorted: 0, stale: 0 };
    }
}
