//! Maps whose records expire.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pmindex_core::{Mapped, Medium};
use pmindex_index::{Index, IndexError, Key, KeyRange, Occupied, Value};

use crate::error::StoreError;
use crate::handles::Handle;
use crate::map::Map;
use crate::transaction::Transaction;

/// A record of an [`ExpiringMap`]: its expiry in milliseconds since 1970, and its value.
pub type Expiring<V> = (u64, V);

/// Returns the time.
type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// A map whose records expire, each at a time of its own; an expired record is never returned. See
/// [`Store::expiring_map`](crate::Store::expiring_map).
///
/// The expiry is stored with the value, by the clock of the system: setting the clock back prolongs records,
/// setting it forward shortens them. An expired record takes space until it is written again or a [`Sweeper`]
/// removes it.
///
/// The records are those of a [`Map`] of values with their expiry: use [`map`](Self::map) in transactions and
/// snapshots.
///
/// # Durability
/// That of the map.
pub struct ExpiringMap<K: Key, V: Value, M: Medium = Mapped> {
    map: Map<K, Expiring<V>, M>,
    clock: Clock,
}

impl<K: Key, V: Value, M: Medium> Clone for ExpiringMap<K, V, M> {
    fn clone(&self) -> Self {
        Self { map: self.map.clone(), clock: Arc::clone(&self.clock) }
    }
}

impl<K: Key, V: Value, M: Medium> fmt::Debug for ExpiringMap<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringMap").field("map", &self.map).finish_non_exhaustive()
    }
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl<K: Key, V: Value, M: Medium> ExpiringMap<K, V, M> {
    pub(crate) fn new(map: Map<K, Expiring<V>, M>) -> Self {
        Self { map, clock: Arc::new(SystemTime::now) }
    }

    /// Uses another clock, for tests.
    #[must_use]
    pub fn with_clock(self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// Returns the map of the records, including expired ones.
    #[must_use]
    pub fn map(&self) -> &Map<K, Expiring<V>, M> {
        &self.map
    }

    fn now(&self) -> u64 {
        millis((self.clock)())
    }

    /// Returns the value of a record that has not expired.
    #[must_use]
    pub fn live(&self, record: Option<Expiring<V>>) -> Option<V> {
        record.filter(|(until, _)| *until > self.now()).map(|(_, value)| value)
    }

    /// Makes a record that expires after this time.
    fn record(&self, value: &V::Ref, lives: Duration) -> Expiring<V> {
        let lives = u64::try_from(lives.as_millis()).unwrap_or(u64::MAX);
        (self.now().saturating_add(lives), V::owned(value))
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// Those of the index.
    pub fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        Ok(self.live(self.map.get(key)?))
    }

    /// Returns the value of `key`, and its expiry.
    ///
    /// # Errors
    /// Those of the index.
    pub fn get_with_end(&self, key: &K::Ref) -> Result<Option<(V, SystemTime)>, IndexError> {
        let found = self.map.get(key)?;
        let end = found.as_ref().map(|(until, _)| *until);
        let end = end.and_then(|until| UNIX_EPOCH.checked_add(Duration::from_millis(until)));
        Ok(self.live(found).zip(end))
    }

    /// Adds or replaces a record, which expires after this time; returns the old value unless it had expired.
    ///
    /// # Errors
    /// Those of the index.
    pub fn insert(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        lives: Duration,
    ) -> Result<Option<V>, IndexError> {
        Ok(self.live(self.map.insert(key, &self.record(value, lives))?))
    }

    /// Adds or replaces a record, which expires after this time, without reading the old one.
    ///
    /// # Errors
    /// Those of the index.
    pub fn put(&self, key: &K::Ref, value: &V::Ref, lives: Duration) -> Result<(), IndexError> {
        self.map.put(key, &self.record(value, lives)).map(drop)
    }

    /// Adds a record, which expires after this time; returns [`Occupied`] and changes nothing if the key has
    /// one that has not expired.
    ///
    /// # Errors
    /// The index's.
    pub fn try_insert(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        lives: Duration,
    ) -> Result<Result<(), Occupied>, IndexError> {
        let record = self.record(value, lives);
        loop {
            if self.map.try_insert(key, &record)?.is_ok() {
                return Ok(Ok(()));
            }
            if let Some(there) = self.map.get(key)? {
                if there.0 > self.now() {
                    return Ok(Err(Occupied));
                }
                self.map.remove_if(key, &mut |there| there.0 <= self.now())?; // no thread reads it
            }
        }
    }

    /// Prolongs a record to this time from now; returns `true` if it had not expired.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if other threads changed it at each try; those of the index.
    pub fn renew(&self, key: &K::Ref, lives: Duration) -> Result<bool, StoreError> {
        Transaction::run(&Handle::new(&self.map.shared.core), |tx| {
            let Some(value) = self.get_in(tx, key)? else { return Ok(false) };
            self.put_in(tx, key, value.borrowed(), lives)?;
            Ok(true)
        })
    }

    /// Removes a record and returns its value, unless it had expired.
    ///
    /// # Errors
    /// Those of the index.
    pub fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        Ok(self.live(self.map.remove(key)?))
    }

    /// Returns the records with keys in `range` that have not expired, in order, from both ends.
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    pub fn range(
        &self,
        range: impl KeyRange<K>,
    ) -> impl DoubleEndedIterator<Item = Result<(K, V), IndexError>> + Send + '_ {
        let items = self.map.range(range);
        items.filter_map(move |item| match item {
            Ok((key, record)) => self.live(Some(record)).map(|value| Ok((key, value))),
            Err(error) => Some(Err(error)),
        })
    }

    /// Does the same as [`get`](Self::get), in a transaction.
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub fn get_in(&self, tx: &Transaction<M>, key: &K::Ref) -> Result<Option<V>, StoreError> {
        Ok(self.live(tx.get(&self.map, key)?))
    }

    /// Does the same as [`put`](Self::put), in a transaction.
    ///
    /// # Errors
    /// Those of [`Transaction::put`].
    pub fn put_in(
        &self,
        tx: &mut Transaction<M>,
        key: &K::Ref,
        value: &V::Ref,
        lives: Duration,
    ) -> Result<(), StoreError> {
        tx.put(&self.map, key, &self.record(value, lives))
    }

    /// Returns a sweeper, which removes expired records; nothing else does.
    #[must_use]
    pub fn sweeper(&self) -> Sweeper<K, V, M> {
        Sweeper { map: self.clone(), behind: None }
    }
}

/// Removes the expired records of an [`ExpiringMap`], a few in each step. One sweeper for a map is enough.
///
/// A record that is written again meanwhile stays, since only the value that was seen to be expired is
/// removed. Each removal is a write of the map like others.
#[derive(Debug)]
pub struct Sweeper<K: Key, V: Value, M: Medium = Mapped> {
    map: ExpiringMap<K, V, M>,
    /// The key after which it continues; `None` at the start.
    behind: Option<K>,
}

/// The results of a step of a [`Sweeper`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// The number of records that it read.
    pub seen: usize,
    /// The number of records that it removed.
    pub removed: usize,
    /// It has come to the end of the map; the next step begins anew.
    pub at_end: bool,
}

impl<K: Key, V: Value, M: Medium> Sweeper<K, V, M> {
    /// Looks at up to so many records, and removes those that are over.
    ///
    /// # Errors
    /// The index's.
    pub fn step(&mut self, records: usize) -> Result<Swept, IndexError> {
        let (map, now) = (&self.map.map, self.map.now());
        let from =
            self.behind.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.borrowed()));
        let (mut swept, mut last, mut over) = (Swept::default(), None, Vec::new());
        for item in map.range_bounds(from, Bound::Unbounded).take(records) {
            let (key, record) = item?;
            swept.seen += 1;
            last = Some(key.clone());
            if record.0 <= now {
                over.push((key, record));
            }
        }
        for (key, record) in over {
            swept.removed += usize::from(self.remove(&key, &record)?);
        }
        swept.at_end = swept.seen < records;
        self.behind = last.filter(|_| !swept.at_end);
        Ok(swept)
    }

    fn remove(&self, key: &K, record: &Expiring<V>) -> Result<bool, IndexError> {
        let (map, key) = (&self.map.map, key.borrowed());
        #[cfg(test)]
        if map.shared.core.goes_wrong(crate::wrong::Wrong::SweptBlindly) {
            return Ok(map.remove(key)?.is_some());
        }
        let is_over = &mut |there: &Expiring<V>| there.0 <= self.map.now();
        Ok(map.remove_exact(key, record)?.is_some() || map.remove_if(key, is_over)?.is_some())
    }

    /// Goes through the map again and again, so many records a step, with a pause after each, until `stop`
    /// says so: for a thread of the caller's. How many it removed. Who sets `stop` unparks the thread
    /// ([`Thread::unpark`](std::thread::Thread::unpark)), so that it does not wait for the end of the pause.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn run(
        &mut self,
        records: usize,
        pause: Duration,
        stop: &AtomicBool,
    ) -> Result<u64, IndexError> {
        let mut removed = 0;
        while !stop.load(Relaxed) {
            removed += self.step(records)?.removed as u64;
            std::thread::park_timeout(pause);
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::atomic::AtomicU64;

    use pmindex_core::Pool;
    use pmindex_index::{Shape, Storable, Words};

    use super::*;
    use crate::tests::store::Small;
    use crate::{Store, StoreOptions};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn records_are_over_in_time_and_swept() {
        let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
        let store = Store::<Small>::in_pool(&pool, &StoreOptions::new()).unwrap();
        let time = Arc::new(AtomicU64::new(1000));
        let clock = Arc::clone(&time);
        let clock = move || UNIX_EPOCH + Duration::from_secs(clock.load(Relaxed));
        let map = store.expiring_map::<u64, u64>("sessions").unwrap().with_clock(clock);
        for key in 0..10u64 {
            map.put(&key, &1, (key as u32 + 1) * SECOND).unwrap();
        }
        assert_eq!(map.get_with_end(&3).unwrap(), Some((1, UNIX_EPOCH + 1004 * SECOND)));
        map.put(&100, &9, Duration::MAX).unwrap();
        let view = store.snapshot().unwrap();
        time.store(1005, Relaxed);
        let live = |map: &ExpiringMap<u64, u64>| {
            map.range(..).map(|item| item.unwrap().0).collect::<Vec<_>>()
        };
        assert_eq!(live(&map), [5, 6, 7, 8, 9, 100], "a record that ends now is over");
        assert_eq!(map.range(..=6).rev().count(), 2);
        assert_eq!(map.live(map.map().at(&view).get(&4).unwrap()), None);
        assert_eq!((map.get(&4).unwrap(), map.remove(&3).unwrap()), (None, None));
        assert!(!map.renew(&4, SECOND).unwrap() && map.renew(&5, 9 * SECOND).unwrap());
        assert!(map.try_insert(&5, &2, SECOND).unwrap().is_err());
        assert!(map.try_insert(&2, &2, SECOND).unwrap().is_ok());
        assert_eq!(map.insert(&1, &2, SECOND).unwrap(), None);
        assert_eq!(map.insert(&1, &3, SECOND).unwrap(), Some(2));
        let mut tx = store.begin().unwrap();
        assert_eq!(map.get_in(&tx, &1).unwrap(), Some(3));
        map.put_in(&mut tx, &4, &4, SECOND).unwrap();
        tx.commit().unwrap();
        drop(view);
        // 0 is over and there, 3 is gone.
        assert_eq!(map.map().len().unwrap(), 10);
        let mut sweeper = map.sweeper();
        assert_eq!(sweeper.step(4).unwrap(), Swept { seen: 4, removed: 1, at_end: false });
        time.store(1010, Relaxed);
        assert_eq!(sweeper.step(4).unwrap(), Swept { seen: 4, removed: 3, at_end: false });
        assert_eq!(sweeper.step(4).unwrap(), Swept { seen: 2, removed: 1, at_end: true });
        assert_eq!(live(&map), [5, 100]);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sweeping =
                scope.spawn(|| sweeper.run(100, Duration::from_secs(60), &stop).unwrap());
            while map.map().len().unwrap() > 2 {
                std::thread::yield_now();
            }
            stop.store(true, Relaxed);
            sweeping.thread().unpark();
            assert_eq!(sweeping.join().unwrap(), 3);
        });
        assert_eq!(live(&map), [5, 100]);
    }

    /// A value that is encoded in this many ways, by turns that seem random.
    #[derive(Clone, Debug, PartialEq)]
    struct Odd<const WAYS: u64>(u64);

    impl<const WAYS: u64> Storable for Odd<WAYS> {
        type Ref = Self;
        const SHAPE: Shape = Shape::Bytes;

        fn type_name() -> String {
            "odd".into()
        }
        fn borrowed(&self) -> &Self {
            self
        }
        fn to_words(_: &Self) -> Words {
            unreachable!("bytes")
        }
        fn from_words(_: &[u64]) -> Self {
            unreachable!("bytes")
        }
        fn to_bytes(value: &Self) -> Cow<'_, [u8]> {
            static TIMES: AtomicU64 = AtomicU64::new(0);
            let turn = pmindex_testkit::crash::Rng::new(TIMES.fetch_add(1, Relaxed)).next_u64();
            Cow::Owned([value.0.to_le_bytes(), (turn % WAYS).to_le_bytes()].concat())
        }
        fn from_bytes(bytes: &[u8]) -> Option<Self> {
            Some(Self(u64::from_le_bytes(*bytes.first_chunk()?)))
        }
    }

    #[test]
    fn a_value_that_is_encoded_in_several_ways_is_removed_or_not() {
        for is_logged in [false, true] {
            let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
            let store = Store::<Small>::in_pool(&pool, &StoreOptions::new()).unwrap();
            let map = store.map::<u64, Odd<4>>("odd").unwrap();
            let mut watch = is_logged.then(|| store.watch().unwrap());
            for key in 0..50u64 {
                map.put(&key, &Odd(key)).unwrap();
                if let Some(watch) = &mut watch {
                    assert!(watch.try_next().unwrap().is_some());
                }
                let view = store.snapshot().unwrap();
                let mut is_gone = false;
                while !is_gone {
                    is_gone = map.remove_exact(&key, &Odd(key)).unwrap().is_some();
                    assert_eq!(map.get(&key).unwrap().is_none(), is_gone, "{key}");
                    assert_eq!(map.at(&view).get(&key).unwrap(), Some(Odd(key)), "{key}");
                    if let Some(watch) = &mut watch {
                        let change = watch.try_next().unwrap();
                        assert_eq!(change.is_some(), is_gone, "{key}: {change:?}");
                    }
                }
                assert_eq!(map.remove_exact(&key, &Odd(key)).unwrap(), None);
            }
        }
    }

    #[test]
    fn an_expired_value_that_is_encoded_in_several_ways_is_replaced_and_swept() {
        /// The same encoding hardly ever comes again.
        type Never = Odd<{ u64::MAX }>;

        let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
        let store = Store::<Small>::in_pool(&pool, &StoreOptions::new()).unwrap();
        let time = Arc::new(AtomicU64::new(1000));
        let clock = Arc::clone(&time);
        let clock = move || UNIX_EPOCH + Duration::from_secs(clock.load(Relaxed));
        let map = store.expiring_map::<u64, Never>("never").unwrap().with_clock(clock);
        for key in 0..10 {
            map.put(&key, &Odd(1), SECOND).unwrap();
        }
        time.store(1005, Relaxed);
        for key in 0..5 {
            assert!(map.try_insert(&key, &Odd(2), SECOND).unwrap().is_ok(), "{key}");
            assert_eq!(map.get(&key).unwrap(), Some(Odd(2)));
            assert!(map.try_insert(&key, &Odd(3), SECOND).unwrap().is_err(), "{key}");
        }
        assert!(map.map().remove_if(&3, &mut |_| true).unwrap().is_some());
        assert!(map.map().remove_if(&4, &mut |_| false).unwrap().is_none());
        let swept = map.sweeper().step(100).unwrap();
        assert_eq!(swept, Swept { seen: 9, removed: 5, at_end: true });
        assert_eq!(map.map().retain(&mut |key, _| *key < 1), Ok(3));
        assert_eq!(map.map().len().unwrap(), 1);
    }
}
