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
//! A record's versions are found by the hash of its key, in one of [`SHARDS`] tables with a lock each. For
//! ranges the keys are sorted, too, but only when somebody asks for one: a commit adds its keys to the end of
//! a queue, and who reads a range sorts what came since.
//!
//! The locks are held for moments without a wait in between, also under that of the moments; so they need
//! no medium. That of a table may be taken under that of the queue.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Bound;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use pmindex_index::{Key, Shape, Storable, Value, hash_of, same_encoding};

use crate::moments::{Commit, Past};

/// Bytes of a version beside its key and value, about.
const OVERHEAD: usize = 144;
/// Tables of versions.
const SHARDS: usize = 64;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Versions<K, V> {
    shards: Box<[Shard<K, V>]>,
    order: Mutex<Order<K>>,
    /// The map was empty until this commit loaded it. Read after the versions of a record: those of later
    /// commits come with it.
    loaded: AtomicU64,
    /// Whether there are any.
    any: AtomicBool,
}

/// Records whose keys have some bits of their hash in common; on a line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Shard<K, V>(Mutex<ByHash<K, V>>);

type ByHash<K, V> = HashMap<u64, SameHash<K, V>, BuildHasherDefault<AsItIs>>;

/// A hash is its own.
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

/// The records whose keys have one hash: but for the rarest of cases one.
#[derive(Debug)]
struct SameHash<K, V> {
    first: Changed<K, V>,
    others: Vec<Changed<K, V>>,
}

/// A record that was changed: what it was before each commit, by number.
#[derive(Debug)]
struct Changed<K, V> {
    key: K,
    first: Version<V>,
    later: Vec<Version<V>>,
}

/// The keys in other orders than by hash.
#[derive(Debug)]
struct Order<K> {
    /// One for each version, by number.
    by_number: VecDeque<(u64, K)>,
    /// The keys of all but the last ones of these.
    sorted: BTreeSet<K>,
    /// How many of the last ones are not sorted.
    unsorted: usize,
}

#[derive(Debug)]
struct Version<V> {
    number: u64,
    was: Option<V>,
}

/// What is known of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known<V> {
    /// Nothing.
    Not,
    /// It was this, or was not there.
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
        Self { key, first, later: Vec::new() }
    }

    fn last(&self) -> &Version<V> {
        self.later.last().unwrap_or(&self.first)
    }

    /// What the record was before the first change since a moment.
    fn since(&self, moment: u64) -> Option<&Version<V>> {
        std::iter::once(&self.first).chain(&self.later).find(|version| version.number > moment)
    }
}

impl<V: Storable> Version<V> {
    /// The bytes that it takes, about.
    fn bytes<K: Storable>(&self, key: &K) -> u64 {
        (OVERHEAD + 3 * bytes_of(key) + self.was.as_ref().map_or(0, bytes_of)) as u64
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

impl<K, V> Shard<K, V> {
    fn new() -> Self {
        Self(Mutex::new(HashMap::default()))
    }
}

impl<K: Key> Order<K> {
    fn new() -> Self {
        Self { by_number: VecDeque::new(), sorted: BTreeSet::new(), unsorted: 0 }
    }

    /// The keys between the bounds that have versions, and perhaps some that had.
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
            loaded: AtomicU64::new(0),
            any: AtomicBool::new(false),
        }
    }

    /// The table of a hash. The bits are none of those that its map looks at first.
    fn shard(&self, hash: u64) -> &Mutex<ByHash<K, V>> {
        &self.shards[(hash >> 40) as usize % SHARDS].0
    }

    /// Notes what a record was before a commit that is about to change it; the bytes that it takes.
    /// Nobody else changes the record meanwhile, and commits do this one after another.
    pub(crate) fn note(&self, commit: Commit, key: &K, was: Option<V>) -> u64 {
        let Some(newest) = commit.newest_reader else { return 0 };
        let version = Version { number: commit.number, was };
        let bytes = version.bytes(key);
        if !self.add(newest, key, version) {
            return 0; // nobody reads a moment between the last change of the record and this one
        }
        let mut order = self.order.lock();
        order.by_number.push_back((commit.number, key.clone()));
        order.unsorted += 1;
        self.any.store(true, Release);
        bytes
    }

    /// Adds a version if its record has none that is later than a moment.
    fn add(&self, moment: u64, key: &K, version: Version<V>) -> bool {
        let hash = hash_of::<K>(key.borrowed());
        match self.shard(hash).lock().entry(hash) {
            Entry::Vacant(place) => {
                let first = Changed::new(key.clone(), version);
                place.insert(SameHash { first, others: Vec::new() });
            }
            Entry::Occupied(mut place) => {
                let same = place.get_mut();
                if let Some(changed) = same.of(key) {
                    if changed.last().number > moment {
                        return false;
                    }
                    changed.later.push(version);
                } else {
                    same.others.push(Changed::new(key.clone(), version));
                }
            }
        }
        true
    }

    /// Notes that the map was empty before a commit that is about to fill it.
    pub(crate) fn note_loaded(&self, commit: Commit) {
        let _order = self.order.lock();
        self.loaded.store(commit.number, Release);
        self.any.store(true, Release);
    }

    /// Reads what a record was before the first change since a moment, if there was one.
    fn look<R>(&self, moment: u64, key: &K::Ref, read: impl FnOnce(Option<&Version<V>>) -> R) -> R {
        let hash = hash_of::<K>(key);
        let shard = self.shard(hash).lock();
        let is_it = |changed: &&Changed<K, V>| same_encoding::<K>(changed.key.borrowed(), key);
        let changed = shard.get(&hash).and_then(|same| same.all().find(is_it));
        read(changed.and_then(|changed| changed.since(moment)))
    }

    /// What a record was at a moment, if it was changed since: asked after the index.
    pub(crate) fn at(&self, moment: u64, key: &K::Ref) -> Known<V> {
        if !self.any.load(Acquire) {
            return Known::Not;
        }
        self.look(moment, key, |first| {
            let loaded = self.loaded.load(Acquire);
            match first {
                Some(first) if loaded <= moment || first.number < loaded => {
                    Known::Was(first.was.clone())
                }
                _ if loaded > moment => Known::Was(None),
                _ => Known::Not,
            }
        })
    }

    /// Whether what the index has is to be left out: the map was empty at the moment.
    pub(crate) fn was_empty(&self, moment: u64) -> bool {
        self.loaded.load(Acquire) > moment
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
        let keys = self.order.lock().between(lower, upper);
        let was = |key: K| match self.at(moment, key.borrowed()) {
            Known::Was(was) => Some((key, was)),
            Known::Not => None,
        };
        keys.into_iter().filter_map(was).collect()
    }

    /// Whether a record was changed since a moment.
    pub(crate) fn is_changed(&self, moment: u64, key: &K) -> bool {
        matches!(self.at(moment, key.borrowed()), Known::Was(_))
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
        let keys = self.order.lock().between(lower, upper);
        let is_changed = |key: &K| self.look(moment, key.borrowed(), |first| first.is_some());
        self.was_empty(moment) || keys.iter().any(is_changed)
    }

    /// Forgets the oldest version of a record; the bytes that were, and whether it was the last one.
    fn forget_version(&self, key: &K) -> (u64, bool) {
        let hash = hash_of::<K>(key.borrowed());
        let mut shard = self.shard(hash).lock();
        let Some(same) = shard.get_mut(&hash) else { return (0, true) };
        let Some(changed) = same.of(key) else { return (0, true) };
        let bytes = changed.first.bytes(key);
        if !changed.later.is_empty() {
            changed.first = changed.later.remove(0);
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
    fn forget(&self, oldest: u64) -> u64 {
        let (mut bytes, mut is_done) = (0, !self.any.load(Acquire));
        while !is_done {
            let mut order = self.order.lock();
            // A few at a time: commits want the lock.
            for _ in 0..64 {
                let Some((_, key)) = order.by_number.pop_front_if(|(number, _)| *number <= oldest)
                else {
                    is_done = true;
                    break;
                };
                order.unsorted = order.unsorted.min(order.by_number.len());
                // The oldest of the key is the oldest in the order. Under the lock: a commit that notes
                // the key meanwhile adds it to the queue after this.
                let (forgotten, was_last) = self.forget_version(&key);
                bytes += forgotten;
                if was_last {
                    order.sorted.remove(&key);
                }
            }
            if order.by_number.is_empty() && self.loaded.load(Acquire) <= oldest {
                self.any.store(false, Release);
            }
        }
        bytes
    }
}
