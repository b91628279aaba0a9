//! An index with batches and compare-and-swap.

use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pmindex_core::sync::{VersionGuard, VersionLock, VersionTable};
use pmindex_core::{Mapped, Medium, Pool};
use pmindex_index::{
    Index, IndexError, InsertMany, Key, Missing, Occupied, RangeIter, Records, RecoveryReport,
    Stats, Value, hash_of, same_encoding,
};

use super::changes::{self, WriteBatch};
use super::log::Log;

/// There are `2^LOCKS` locks of keys.
const LOCKS: u32 = 8;

/// The outcome of [`Batched::compare_exchange`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exchange<V> {
    /// The record was as expected, and now has the new value, durably.
    Done,
    /// The record differed and is unchanged; this is its value.
    Found(Option<V>),
}

/// An index with [`write`](Self::write), which changes several records or none, and
/// [`compare_exchange`](Self::compare_exchange). It wraps an index of any kind, and is an index itself.
///
/// # How it works
///
/// Writers lock the keys that they write, in DRAM: one key, or all keys of a batch. A batch
///
/// | step | what | durable before |
/// |------|------|----------------|
/// | 1 | locks its keys | |
/// | 2 | adds its record to the log, an index named `NAME.batch` (DUR) | 3 |
/// | 3 | makes its changes one by one | 4 |
/// | 4 | removes its record from the log | 5 |
/// | 5 | unlocks its keys | |
///
/// Wrapping the index again after a crash repeats the changes of each record in the log. This is correct
/// because the keys stay locked until the record is removed: no later write can have changed them.
///
/// # Durability
/// A batch is durable as a whole when `write` returns. After a crash before that, all of its changes are
/// there or none is. A reader never sees a change of a batch that a crash could take back.
///
/// Batches are *failure-atomic*, not isolated: readers take no lock, so a reader of two records may see one
/// changed and the other not yet. (Keep data that must be seen together in one record.)
///
/// # Errors
/// A batch with too long a key or value, or whose record is longer than
/// [`MAX_VALUE_BYTES`](crate::MAX_VALUE_BYTES) or does not fit into the pool, is refused and changes
/// nothing. If a change fails after that, for lack of space or otherwise, `write` returns the error, and
/// the batch is durable but *unfinished*: its changes are made before the next write of any kind, or when
/// the index is wrapped again. While a batch cannot be finished, every write fails except
/// [`remove`](Index::remove) of keys that are not in such a batch, which can make room.
///
/// # Cost
/// A single write takes an uncontended lock in DRAM. A batch costs its changes, an insertion of a byte
/// string into the log, and a removal from the log: with FPTree 2 + 1 fences more than the changes.
///
/// Once an index has batches, write to it only through `Batched`: after a crash, the next [`Batched::new`]
/// makes the changes of interrupted batches, and overwrites later values.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use pmindex::{Batched, Exchange, FpTree, Index, Pool, WriteBatch};
///
/// let pool = Arc::new(Pool::emulated(4 << 20)?);
/// let index = FpTree::<String, u64>::create(&pool, "accounts")?;
/// let accounts = Batched::new(&pool, "accounts", index)?;
/// accounts.write(WriteBatch::new().put("Ada", &70).put("Bob", &30))?;
/// // Moves 20, or nothing, whatever happens.
/// accounts.write(WriteBatch::new().put("Ada", &50).put("Bob", &50))?;
///
/// let paid = accounts.compare_exchange("Ada", Some(&50), Some(&45))?;
/// assert_eq!(paid, Exchange::Done);
/// assert_eq!(accounts.compare_exchange("Ada", Some(&50), None)?, Exchange::Found(Some(45)));
/// assert_eq!(accounts.get_or_insert_with("Eve", || 0)?, 0);
/// # Ok(())
/// # }
/// ```
pub struct Batched<K, V, I, M: Medium = Mapped> {
    pool: Arc<Pool<M>>,
    index: I,
    pub(super) log: Log,
    keys: VersionTable,
    /// Durable batches whose changes could not all be made.
    unfinished: Mutex<Vec<Unfinished<K, V>>>,
    /// `true` if there are any.
    is_unfinished: AtomicBool,
    #[cfg(test)]
    pub(super) faulty: super::tests::Faulty,
}

/// A durable batch whose changes are not all made.
struct Unfinished<K, V> {
    number: u64,
    changes: Vec<(K, Option<V>)>,
}

impl<K, V, I: fmt::Debug, M: Medium> fmt::Debug for Batched<K, V, I, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batched").field("index", &self.index).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, I: Index<K, V>, M: Medium> Batched<K, V, I, M> {
    /// Wraps the index that is called `name` in the pool, and finishes the batches that a crash
    /// interrupted. Creates the log if it does not exist; the name may have up to 58 bytes, and does not end in
    /// [`BATCH_LOG`](crate::BATCH_LOG).
    ///
    /// In a pool that is open for reading only it serves reads, which also see the changes of interrupted
    /// batches; every write fails with [`PmError::ReadOnly`](pmindex_core::PmError).
    ///
    /// # Errors
    /// [`IndexError::ReservedName`] if the name, or that of an index which is no log, is in the way; the errors of
    /// the pool: full, corrupt. A batch that cannot be finished is no error here; see above.
    pub fn new(pool: &Arc<Pool<M>>, name: &str, index: I) -> Result<Self, IndexError> {
        let log = Log::open(pool, name)?;
        let mut unfinished = Vec::new();
        for (number, record) in log.records()? {
            let changes = changes::from_record(&record)?;
            unfinished.push(Unfinished { number, changes });
        }
        let batched = Self {
            pool: Arc::clone(pool),
            index,
            log,
            keys: VersionTable::new(LOCKS),
            is_unfinished: AtomicBool::new(!unfinished.is_empty()),
            unfinished: Mutex::new(unfinished),
            #[cfg(test)]
            faulty: super::tests::Faulty::default(),
        };
        let _recovery = pool.recovery();
        // If this fails, the next write tries again.
        let _ = batched.finish();
        Ok(batched)
    }

    /// Returns `true` if the index that is called `name` in the pool has been wrapped before: then every
    /// writer must wrap it.
    ///
    /// # Errors
    /// [`IndexError::ReservedName`] if the name is that of a log; the errors of the pool.
    pub fn has_log(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, IndexError> {
        Log::exists(pool, name)
    }

    /// Returns the number of batches of the index that is called `name` which a crash interrupted. Any types of
    /// keys and values may ask. The index is not wrapped now.
    ///
    /// # Errors
    /// Those of [`has_log`](Self::has_log).
    pub fn interrupted(pool: &Arc<Pool<M>>, name: &str) -> Result<u64, IndexError> {
        Log::len(pool, name)
    }

    /// Removes the log of a removed index, with the batches that a crash interrupted; returns `true` if it
    /// existed. Removes nothing that is no such log.
    ///
    /// # Errors
    /// [`IndexError::ReservedName`] if the name is that of a log, or an index of the log's types has other records;
    /// those of [`AnyIndex::destroy`](crate::AnyIndex::destroy).
    pub fn destroy_log(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, IndexError> {
        Log::destroy(pool, name)
    }

    /// Makes all changes of a batch, or none of them.
    ///
    /// # Errors
    /// See [`Batched`]; the errors of the pool.
    pub fn write(&self, batch: &WriteBatch<K, V>) -> Result<(), IndexError> {
        self.pool.check_writable()?;
        let changes = batch.settled();
        if changes.is_empty() {
            return Ok(());
        }
        changes::check(&changes)?;
        let record = changes::to_record(&changes)?;
        let locked = self.lock(changes.iter().map(|(key, _)| key.borrowed())); // 1
        self.finish()?;
        #[cfg(test)]
        if self.faulty != super::tests::Faulty::Not {
            return self.write_faultily(&changes, &record, locked);
        }
        // 2, durable before: any change. LIN(write) for crashes, DUR(write).
        let number = self.log.put(&record)?;
        let unfinished = Some(Unfinished { number, changes });
        let mut under_way = UnderWay { batched: self, unfinished };
        under_way.go_on()?;
        drop(locked); // 5
        Ok(())
    }

    /// Replaces a record if it is as expected; `None` stands for a missing record. Values are equal if
    /// their encodings are. Linearizable, like every other operation.
    ///
    /// # Errors
    /// Those of the index.
    pub fn compare_exchange(
        &self,
        key: &K::Ref,
        expected: Option<&V>,
        wanted: Option<&V>,
    ) -> Result<Exchange<V>, IndexError> {
        let _locked = self.lock_to_write(key)?;
        let found = self.index.get(key)?;
        let is_expected = match (&found, expected) {
            (Some(found), Some(expected)) => {
                same_encoding::<V>(found.borrowed(), expected.borrowed())
            }
            (None, None) => true,
            _ => false,
        };
        if !is_expected {
            return Ok(Exchange::Found(found));
        }
        match (expected, wanted) {
            (_, Some(wanted)) => self.index.put(key, wanted.borrowed()).map(drop)?,
            (Some(_), None) => self.index.remove(key).map(drop)?,
            (None, None) => {}
        }
        Ok(Exchange::Done)
    }

    /// Replaces a record by the result of `change`; `None` stands for a missing record. If another thread
    /// changes the record meanwhile, `change` runs again. Returns its last result.
    ///
    /// # Errors
    /// Those of the index.
    pub fn update_with(
        &self,
        key: &K::Ref,
        mut change: impl FnMut(Option<&V>) -> Option<V>,
    ) -> Result<Option<V>, IndexError> {
        let mut found = self.index.get(key)?;
        loop {
            let wanted = change(found.as_ref());
            match self.compare_exchange(key, found.as_ref(), wanted.as_ref())? {
                Exchange::Done => return Ok(wanted),
                Exchange::Found(other) => found = other,
            }
        }
    }

    /// Returns the value of a key; if it is missing, inserts the value of `create` and returns that.
    ///
    /// # Errors
    /// Those of the index.
    pub fn get_or_insert_with(
        &self,
        key: &K::Ref,
        create: impl FnOnce() -> V,
    ) -> Result<V, IndexError> {
        if let Some(found) = self.index.get(key)? {
            return Ok(found);
        }
        let made = create();
        match self.compare_exchange(key, None, Some(&made))? {
            Exchange::Found(Some(found)) => Ok(found),
            _ => Ok(made),
        }
    }

    /// Returns the offsets of the blocks of the log, for the allocator's audit.
    ///
    /// # Errors
    /// The errors of the pool.
    pub fn log_blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.log.blocks()
    }

    /// Returns the wrapped index.
    pub fn inner(&self) -> &I {
        &self.index
    }

    /// Closes the log and returns the index, which the caller closes.
    ///
    /// # Errors
    /// The errors of the pool.
    pub fn into_inner(self) -> Result<I, IndexError> {
        self.log.close()?;
        Ok(self.index)
    }

    fn make(&self, changes: &[(K, Option<V>)]) -> Result<(), IndexError> {
        for (key, value) in changes {
            match value {
                Some(value) => self.index.put(key.borrowed(), value.borrowed()).map(drop)?,
                None => self.index.remove(key.borrowed()).map(drop)?,
            }
        }
        Ok(())
    }

    /// Locks these keys, in the order of the locks, which prevents deadlock.
    fn lock<'k>(&self, keys: impl Iterator<Item = &'k K::Ref>) -> Vec<VersionGuard<'_>>
    where
        K: 'k,
    {
        let mut places: Vec<usize> =
            keys.map(|key| self.keys.index_of(hash_of::<K>(key))).collect();
        places.sort_unstable();
        places.dedup();
        let lock = |place: usize| self.keys.all()[place].lock(self.pool.pm());
        places.into_iter().map(lock).collect()
    }

    fn lock_one(&self, key: &K::Ref) -> VersionGuard<'_> {
        self.keys.of(hash_of::<K>(key)).lock(self.pool.pm())
    }

    /// Locks a key for a single write, when no batch is unfinished.
    fn lock_to_write(&self, key: &K::Ref) -> Result<VersionGuard<'_>, IndexError> {
        let locked = self.lock_one(key);
        self.finish()?;
        Ok(locked)
    }

    /// Locks a key for a removal, which may free the missing space. Batches may be unfinished, but not one
    /// with this key.
    fn lock_to_remove(&self, key: &K::Ref) -> Result<VersionGuard<'_>, IndexError> {
        let locked = self.lock_one(key);
        match self.finish() {
            Err(error) if self.is_awaited(key) => Err(error),
            _ => Ok(locked),
        }
    }

    fn unfinished(&self) -> MutexGuard<'_, Vec<Unfinished<K, V>>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the changes of unfinished batches. Their keys need no locks: every write of them first comes
    /// through here.
    fn finish(&self) -> Result<(), IndexError> {
        if !self.is_unfinished.load(Relaxed) {
            return Ok(());
        }
        let mut unfinished = self.unfinished();
        while let Some(batch) = unfinished.last() {
            self.make(&batch.changes)?;
            self.log.retire(batch.number)?;
            unfinished.pop();
        }
        self.is_unfinished.store(false, Relaxed);
        Ok(())
    }

    /// Returns `true` if a key belongs to an unfinished batch.
    fn is_awaited(&self, key: &K::Ref) -> bool {
        let key = K::owned(key);
        let unfinished = self.unfinished();
        unfinished.iter().any(|batch| batch.changes.iter().any(|(of, _)| *of == key))
    }

    /// Writes a batch in a wrong order, which the crash simulator must find.
    #[cfg(test)]
    fn write_faultily(
        &self,
        changes: &[(K, Option<V>)],
        record: &[u8],
        locked: Vec<VersionGuard<'_>>,
    ) -> Result<(), IndexError> {
        use super::tests::Faulty;
        if self.faulty == Faulty::ChangesFirst {
            self.make(changes)?;
        }
        let number = self.log.put(record)?;
        if self.faulty == Faulty::RetiredFirst {
            self.log.retire(number)?;
        }
        self.make(changes)?;
        if self.faulty == Faulty::UnlockedFirst {
            drop(locked);
        }
        self.log.retire(number)
    }
}

/// A batch in the log. If its changes are not all made when this is dropped, the batch becomes unfinished.
struct UnderWay<'b, K: Key, V: Value, I: Index<K, V>, M: Medium> {
    batched: &'b Batched<K, V, I, M>,
    unfinished: Option<Unfinished<K, V>>,
}

impl<K: Key, V: Value, I: Index<K, V>, M: Medium> UnderWay<'_, K, V, I, M> {
    /// Performs steps 3 and 4.
    fn go_on(&mut self) -> Result<(), IndexError> {
        if let Some(batch) = &self.unfinished {
            self.batched.make(&batch.changes)?; // 3, durable before: the record is gone
            self.batched.log.retire(batch.number)?; // 4, durable before: anybody else writes the keys
            self.unfinished = None;
        }
        Ok(())
    }
}

impl<K: Key, V: Value, I: Index<K, V>, M: Medium> Drop for UnderWay<'_, K, V, I, M> {
    fn drop(&mut self) {
        if let Some(batch) = self.unfinished.take() {
            self.batched.unfinished().push(batch);
            // The next thread that locks these keys sees it.
            self.batched.is_unfinished.store(true, Relaxed);
        }
    }
}

impl<K: Key, V: Value, I: Index<K, V>, M: Medium> Index<K, V> for Batched<K, V, I, M> {
    fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.index.get(key)
    }
    fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        self.index.get_into(key, value)
    }
    fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        self.index.contains_key(key)
    }
    fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        let _locked = self.lock_to_write(key)?;
        self.index.insert(key, value)
    }
    fn try_insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Occupied>, IndexError> {
        let _locked = self.lock_to_write(key)?;
        self.index.try_insert(key, value)
    }
    fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        let _locked = self.lock_to_write(key)?;
        self.index.update(key, value)
    }
    fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let _locked = self.lock_to_write(key)?;
        self.index.put(key, value)
    }
    fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        let _locked = self.lock_to_remove(key)?;
        self.index.remove(key)
    }
    fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        let _locked = self.lock_to_remove(key)?;
        self.index.remove_exact(key, value)
    }
    fn range_bounds(&self, lower: Bound<&K::Ref>, upper: Bound<&K::Ref>) -> RangeIter<'_, K, V> {
        self.index.range_bounds(lower, upper)
    }
    fn scan(&self, from: &K::Ref, limit: usize, out: &mut Vec<(K, V)>) -> Result<(), IndexError> {
        self.index.scan(from, limit, out)
    }
    fn scan_bounds_into(
        &self,
        lower: Bound<&K::Ref>,
        upper: Bound<&K::Ref>,
        limit: usize,
        out: &mut Records<K, V>,
    ) -> Result<usize, IndexError> {
        self.index.scan_bounds_into(lower, upper, limit, out)
    }
    fn first_key_value(&self) -> Result<Option<(K, V)>, IndexError> {
        self.index.first_key_value()
    }
    fn last_key_value(&self) -> Result<Option<(K, V)>, IndexError> {
        self.index.last_key_value()
    }
    fn len(&self) -> Result<u64, IndexError> {
        self.index.len()
    }
    fn is_empty(&self) -> Result<bool, IndexError> {
        self.index.is_empty()
    }
    fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        let locks = self.keys.all().iter();
        let _locked: Vec<_> = locks.map(|lock| lock.lock(self.pool.pm())).collect();
        self.finish()?;
        let _lent = VersionLock::lend(self.keys.all());
        self.index.bulk_load(records)
    }
    fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        self.index.get_many(keys, out)
    }
    fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany {
        let _locked = self.lock(records.iter().map(|(key, _)| key.borrowed()));
        match self.finish() {
            Ok(()) => self.index.try_insert_many(records),
            Err(error) => InsertMany { inserted: Vec::new(), stopped: Some(error) },
        }
    }
    fn put_many(&self, records: &[(K, V)]) -> Result<(), IndexError> {
        let _locked = self.lock(records.iter().map(|(key, _)| key.borrowed()));
        self.finish()?;
        self.index.put_many(records)
    }
    fn stats(&self) -> Result<Stats, IndexError> {
        self.index.stats()
    }
    fn check(&self) -> Result<u64, IndexError> {
        self.log.check()?;
        self.index.check()
    }
    fn recovery_report(&self) -> RecoveryReport {
        self.index.recovery_report()
    }
}
