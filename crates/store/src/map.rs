//! A typed map of a store and its single operations.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::sync::VersionLock;
use pmindex_core::{Mapped, Medium};
use pmindex_index::{
    ErasedIndex, Index, IndexError, InsertMany, Key, Missing, Occupied, RangeIter, Records,
    RecoveryReport, Reserved, Stats, Value, hash_of, same_encoding,
};

use crate::changes::Late;
use crate::core::{Changes, Core};
use crate::durable::Durable;
use crate::error::StoreError;
use crate::gate::{Gate, WatchedWriter, Write};
use crate::handles::{Handle, Handles};
use crate::moments::{Commit, Past, Reader, Refused, Unfinished};
use crate::range::Range;
use crate::record::Record;
use crate::snapshot::{MapAt, Snapshot};
use crate::transaction::Transaction;
use crate::versions::Versions;
use crate::wrong::Wrong;

/// The number of times that many records are read without locks, while writers change them.
const TRIES: usize = 8;

/// The state that the handles of a map share.
pub(crate) struct Shared<K: Key, V: Value, M: Medium> {
    gate: Arc<Gate>,
    pub(crate) core: Arc<Core<M>>,
    pub(crate) name: String,
    /// Unique among the maps of the store.
    pub(crate) number: u64,
    /// It does not know what it had at earlier moments: it was dropped since, or could not be opened completely.
    begins: AtomicU64,
    pub(crate) index: Box<dyn ErasedIndex<K, V>>,
    pub(crate) versions: Arc<Versions<K, V>>,
    _past: Registered<M>,
}

/// While this exists, the moments tell the map's old values when they can be dropped.
struct Registered<M: Medium> {
    core: Arc<Core<M>>,
    past: Arc<dyn Past>,
}

impl<M: Medium> Drop for Registered<M> {
    fn drop(&mut self) {
        self.core.moments.remove(&self.past);
    }
}

/// A typed map of a [`Store`](crate::Store): an index that takes part in the store's transactions and
/// snapshots. A handle: clones are the same map.
///
/// # Durability
/// That of the index: a write is durable when it returns.
///
/// # Isolation
/// Each single operation is a transaction of its own, and so are `first_key_value`, `last_key_value` and `is_empty`,
/// which wait for commits in progress as a snapshot does. A range that is read here, and `len`, may see some
/// changes of a commit in progress and not others; through a snapshot or in a transaction they see one
/// moment. `get_many` sees all changes of a commit or none; single writes may come between its reads.
///
/// # Cost
/// While the store has no snapshots or transactions: that of the index, a call through a table, and for
/// writes two stores to a line of the thread's own. Otherwise a write also locks its key, reads
/// the record, and keeps its old value in memory.
pub struct Map<K: Key, V: Value, M: Medium = Mapped> {
    pub(crate) shared: Arc<Shared<K, V, M>>,
    /// Handles for transactions.
    pub(crate) handles: Arc<Handles<Shared<K, V, M>>>,
}

impl<K: Key, V: Value, M: Medium> Clone for Map<K, V, M> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), handles: Arc::clone(&self.handles) }
    }
}

impl<K: Key, V: Value, M: Medium> fmt::Debug for Map<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, M: Medium> Shared<K, V, M> {
    pub(crate) fn new(
        core: Arc<Core<M>>,
        name: &str,
        number: u64,
        index: Box<dyn ErasedIndex<K, V>>,
    ) -> Self {
        let versions = Arc::new(Versions::new());
        let past = Arc::clone(&versions) as Arc<dyn Past>;
        core.moments.add(Arc::clone(&past));
        let registered = Registered { core: Arc::clone(&core), past };
        let gate = Arc::clone(&core.moments.gate);
        let begins = AtomicU64::new(core.begins(name));
        Self { gate, core, name: name.into(), number, begins, index, versions, _past: registered }
    }

    /// Refuses the readers of present moments, before it has handles.
    pub(crate) fn begin_now(&self) {
        let now = self.core.moments.take_number(self.core.pm());
        self.begins.store(now.number(), Relaxed);
    }

    /// Returns an error if it does not know what it had at the moment of a reader.
    pub(crate) fn check_moment(&self, reader: &Reader) -> Result<(), StoreError> {
        if reader.moment() < self.begins.load(Relaxed) {
            return Err(StoreError::Dropped { name: self.name.clone() });
        }
        Ok(())
    }

    /// Closes the index.
    pub(crate) fn close(self) -> Result<(), IndexError> {
        self.index.close()
    }

    /// Returns the lock of a key.
    pub(crate) fn place(&self, key: &K::Ref) -> usize {
        self.core.keys.index_of(hash_of::<K>(key).wrapping_add(self.number))
    }

    fn lock_of(&self, key: &K::Ref) -> &VersionLock {
        self.core.keys.of(hash_of::<K>(key).wrapping_add(self.number))
    }

    /// Returns `true` if changes that will be made later include a key of this map.
    fn is_awaited(&self, changes: &dyn Changes, key: &K::Ref) -> bool {
        let late = changes.as_any().downcast_ref::<Late<K, V, M>>();
        late.is_some_and(|late| late.concern(self, &K::owned(key)))
    }

    /// Writes a record, whose new value is `value`, by calling `write`. `changes` returns `true` if that
    /// changes the present record. A write that makes room may take place before commits that found none.
    #[inline]
    pub(crate) fn write<R>(
        self: &Arc<Self>,
        key: &K::Ref,
        value: Option<&V::Ref>,
        changes: impl FnOnce(Option<&V>) -> bool,
        write: impl FnOnce(&dyn ErasedIndex<K, V>) -> Result<R, IndexError>,
    ) -> Result<R, IndexError> {
        if let Some(_unwatched) = self.gate.enter_quickly(self.core.pm()) {
            return write(&*self.index);
        }
        self.write_watched(key, value, changes, write)
    }

    /// Makes a watched write, one soon after watched ones, or the first one of its thread.
    #[cold]
    fn write_watched<R>(
        self: &Arc<Self>,
        key: &K::Ref,
        value: Option<&V::Ref>,
        changes: impl FnOnce(Option<&V>) -> bool,
        write: impl FnOnce(&dyn ErasedIndex<K, V>) -> Result<R, IndexError>,
    ) -> Result<R, IndexError> {
        let (core, pm) = (&*self.core, self.core.pm());
        core.check_process()?;
        // Until the end: no unwatched write may come between reading the record and changing it.
        let _watched = match self.gate.begin(pm) {
            Write::Watched(watched) => watched,
            Write::Unwatched(_unwatched) => return write(&*self.index),
        };
        let _locked = self.lock_of(key).lock(pm);
        if value.is_none() {
            core.finish_stuck_of(|changes| self.is_awaited(changes, key))?;
        } else {
            core.finish_stuck()?;
        }
        let was = self.index.get(key)?;
        if !changes(was.as_ref()) {
            return write(&*self.index);
        }
        if core.goes_wrong(Wrong::NotedLate) {
            return write(&*self.index);
        }
        let owned = K::owned(key);
        let note = |commit: Commit<'_>| {
            self.versions.note(commit, &owned, was);
            Ok(())
        };
        let commit = core.moments.commit(pm, None, note); // nothing is durable before: it is in DRAM
        let unfinished = commit.map_err(never_refused)?;
        if unfinished.is_logged() {
            return self.write_logged(unfinished, owned, value.map(V::owned), write);
        }
        write(&*self.index)
    }

    /// Writes a record with a record of the log, which commits the write when it is durable.
    fn write_logged<R>(
        self: &Arc<Self>,
        unfinished: Unfinished<'_>,
        key: K,
        value: Option<V>,
        write: impl FnOnce(&dyn ErasedIndex<K, V>) -> Result<R, IndexError>,
    ) -> Result<R, IndexError> {
        let (redo, number) = (&self.core.redo, unfinished.number());
        let mut record = Record::default();
        record.add(&self.name, std::iter::once((&key, &value)));
        let logged = match redo.put_one(number, &record) {
            Err(IndexError::Pool(error)) if error.is_full() && value.is_none() => {
                // A write that makes room is not refused for lack of room. Watches have missed it.
                redo.raise_floor(number)?;
                return write(&*self.index);
            }
            logged => logged?,
        };
        let changes = vec![Late::boxed(self, BTreeMap::from([(key, value)]), Reserved::default())];
        let durable = Durable::new(&self.core, unfinished, changes, logged);
        let written = write(&*self.index); // durable before: its record in the log
        let said = if written.is_ok() { redo.retire(logged) } else { redo.cancel(logged) };
        if said.is_ok() {
            drop(durable.end());
        } // or the record cannot be withdrawn, so the change takes place now or later
        written
    }

    /// Waits until no commit holds a key, so that a read of it sees no commit in progress.
    fn wait_for(&self, key: &K::Ref) -> Result<(), IndexError> {
        self.core.check_process()?;
        if !self.core.goes_wrong(Wrong::ReadInBetween) {
            self.lock_of(key).begin_read(self.core.pm());
        }
        self.core.finish_stuck_of(|changes| self.is_awaited(changes, key))
    }

    #[cold]
    fn get_watched(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.wait_for(key)?;
        self.index.get(key)
    }

    /// Reads many records of one moment, while commits are watched. Single writes that are not may come in between.
    #[cold]
    fn get_many_watched(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        let (core, pm) = (&*self.core, self.core.pm());
        core.check_process()?;
        let finish_stuck = || {
            let is_any = |changes: &dyn Changes| {
                keys.iter().any(|key| self.is_awaited(changes, key.borrowed()))
            };
            core.finish_stuck_of(is_any)
        };
        if core.goes_wrong(Wrong::ReadInBetween) {
            return self.index.get_many(keys, out);
        }
        let mut versions = Vec::with_capacity(keys.len());
        for _ in 0..TRIES {
            versions.clear();
            versions.extend(keys.iter().map(|key| self.lock_of(key.borrowed()).begin_read(pm)));
            finish_stuck()?;
            self.index.get_many(keys, out)?;
            let mut read = keys.iter().zip(&versions);
            if read.all(|(key, version)| self.lock_of(key.borrowed()).validate(pm, *version)) {
                return Ok(());
            }
        }
        // Writers are faster.
        let _locked = core.lock(keys.iter().map(|key| self.place(key.borrowed())).collect());
        finish_stuck()?;
        self.index.get_many(keys, out)
    }

    /// Returns the record at the start or the end of the map, of one moment: `now` reads it from the index.
    fn end(
        &self,
        at_start: bool,
        now: impl Fn(&dyn ErasedIndex<K, V>) -> Result<Option<(K, V)>, IndexError>,
    ) -> Result<Option<(K, V)>, IndexError> {
        if let Some(period) = self.gate.unwatched() {
            let found = now(&*self.index)?;
            if self.gate.is_unwatched_since(period) {
                return Ok(found);
            } // or a commit may have been read in part
        }
        self.end_watched(at_start, now)
    }

    /// Does the same while commits are watched: as a transaction that reads it.
    #[cold]
    fn end_watched(
        &self,
        at_start: bool,
        now: impl Fn(&dyn ErasedIndex<K, V>) -> Result<Option<(K, V)>, IndexError>,
    ) -> Result<Option<(K, V)>, IndexError> {
        self.core.check_process()?;
        loop {
            let Ok(reader) = self.core.read() else { return self.end_locked(now) };
            let all = (Bound::Unbounded, Bound::Unbounded);
            let mut range = Range::new(self, &reader, None, all.0, all.1);
            let item = if at_start { range.next() } else { range.next_back() };
            match item.transpose() {
                Ok(found) => return Ok(found),
                Err(StoreError::Index(error)) => return Err(error),
                Err(_) => {} // the reader was ended, because others keep too many old values
            }
        }
    }

    /// Does the same while a commit is stuck, so that there is no moment to read: it may change other maps only.
    #[cold]
    fn end_locked(
        &self,
        now: impl Fn(&dyn ErasedIndex<K, V>) -> Result<Option<(K, V)>, IndexError>,
    ) -> Result<Option<(K, V)>, IndexError> {
        let core = &*self.core;
        // No other commit is in progress then.
        let _locked: Vec<_> = core.keys.all().iter().map(|lock| lock.lock(core.pm())).collect();
        core.finish_stuck_of(|changes| changes.map() == self.name)?;
        now(&*self.index)
    }

    #[inline]
    fn is_watched(&self) -> bool {
        self.gate.is_watched()
    }
}

/// A commit without a moment conflicts with nothing, and has read the values that it notes.
fn never_refused(refused: Refused) -> IndexError {
    unreachable!("{refused:?}")
}

impl<K: Key, V: Value, M: Medium> Map<K, V, M> {
    pub(crate) fn new(shared: Arc<Shared<K, V, M>>) -> Self {
        let handles = Arc::new(Handles::new(Arc::clone(&shared)));
        Self { shared, handles }
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns the map at the moment of the snapshot.
    #[must_use]
    pub fn at<'m>(&'m self, snapshot: &'m Snapshot<M>) -> MapAt<'m, K, V, M> {
        MapAt::new(&self.shared, snapshot)
    }

    /// Returns the offsets of the blocks of its index, for the allocator's audit.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.shared.index.blocks()
    }

    /// Notes, before anything can read the map, that it was created with its records: as if it had been loaded now. The
    /// index is durable, with its records: the record that is logged tells watches only, and readers of earlier moments
    /// are in this process.
    pub(crate) fn note_filled(&self) -> Result<(), IndexError> {
        let shared = &*self.shared;
        let core = &*shared.core;
        let note = |commit: Commit<'_>| {
            // Later readers have this number in their moments.
            if commit.newest_reader.is_some() {
                shared.versions.note_loaded(commit);
            }
            Ok(())
        };
        let unfinished = core.moments.commit(core.pm(), None, note).map_err(never_refused)?;
        if !unfinished.is_logged() {
            return Ok(());
        }
        let number = unfinished.number();
        match core.redo.put(number, &Record::of_load(&shared.name)) {
            Ok(logged) => {
                let changes = Vec::<Box<dyn Changes>>::new();
                let durable = Durable::new(core, unfinished, changes, logged);
                core.redo.retire(logged)?;
                drop(durable.end());
                Ok(())
            }
            Err(error) => {
                core.redo.raise_floor(number)?; // watches have missed it
                if matches!(&error, IndexError::Pool(error) if error.is_full()) {
                    return Ok(());
                }
                Err(error)
            }
        }
    }

    /// Loads an empty map. Readers of earlier moments find it empty.
    fn load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        let shared = &*self.shared;
        let (core, pm) = (&*shared.core, shared.core.pm());
        let _reader = core.read()?; // all writers are watched, so they wait for the locks
        let locks = core.keys.all();
        let _locked: Vec<_> = locks.iter().map(|lock| lock.lock(pm)).collect();
        core.finish_stuck()?;
        if !shared.index.is_empty()? {
            return Err(IndexError::NotEmpty);
        }
        let note = |commit: Commit<'_>| {
            shared.versions.note_loaded(commit);
            Ok(())
        };
        // No old values are noted; when `reader` ends, it is checked whether a reader needs this.
        let unfinished = core.moments.commit(pm, None, note).map_err(never_refused)?;
        let record = Record::of_load(&shared.name);
        let is_logged = unfinished.is_logged();
        let logged = is_logged.then(|| core.redo.put(unfinished.number(), &record)).transpose()?;
        let Some(logged) = logged else {
            let _lent = VersionLock::lend(locks);
            return shared.index.bulk_load(records);
        };
        // After a panic of `records` the next write retires the record.
        let durable = Durable::new(core, unfinished, Vec::<Box<dyn Changes>>::new(), logged);
        let _lent = VersionLock::lend(locks);
        let loaded = shared.index.bulk_load(records);
        // Also after a failure: then the map is empty, and watches find nothing.
        core.redo.retire(logged)?;
        drop(durable.end());
        loaded
    }

    /// Inserts records one by one, each with a record in the log.
    fn insert_one_by_one(&self, records: &[(K, V)]) -> InsertMany {
        let mut done = InsertMany { inserted: Vec::new(), stopped: None };
        for (key, value) in records {
            match self.try_insert(key.borrowed(), value.borrowed()) {
                Ok(inserted) => done.inserted.push(inserted.is_ok()),
                Err(error) => {
                    done.stopped = Some(error);
                    break;
                }
            }
        }
        done
    }

    /// Inserts records in one commit; returns `None` and changes nothing if the commit must have a record.
    fn insert_many_watched(
        &self,
        records: &[(K, V)],
        _watched: WatchedWriter<'_>,
    ) -> Result<Option<InsertMany>, IndexError> {
        let shared = &*self.shared;
        let (core, pm) = (&*shared.core, shared.core.pm());
        let places = records.iter().map(|(key, _)| shared.place(key.borrowed()));
        let _locked = core.lock(places.collect());
        core.finish_stuck()?;
        let (mut new, mut refused) = (Vec::new(), None);
        for (at, (key, _)) in records.iter().enumerate() {
            match shared.index.contains_key(key.borrowed()) {
                Ok(true) => {}
                Ok(false) => new.push(key),
                Err(error) => {
                    refused = Some((at, error));
                    break;
                }
            }
        }
        let good = &records[..refused.as_ref().map_or(records.len(), |(at, _)| *at)];
        let note = |commit: Commit<'_>| {
            for key in &new {
                shared.versions.note(commit, key, None);
            }
            Ok(())
        };
        let unfinished = core.moments.commit(pm, None, note).map_err(never_refused)?;
        let is_logged = unfinished.is_logged();
        Ok((!is_logged).then(|| {
            let mut done = shared.index.try_insert_many(good);
            done.stopped = done.stopped.or(refused.map(|(_, error)| error));
            done
        }))
    }
}

impl<K: Key, V: Value, M: Medium> Index<K, V> for Map<K, V, M> {
    #[inline]
    fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        if self.shared.is_watched() {
            return self.shared.get_watched(key);
        }
        self.shared.index.get(key)
    }
    #[inline]
    fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        if self.shared.is_watched() {
            self.shared.wait_for(key)?;
        }
        self.shared.index.get_into(key, value)
    }
    #[inline]
    fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        if self.shared.is_watched() {
            return Ok(self.shared.get_watched(key)?.is_some());
        }
        self.shared.index.contains_key(key)
    }
    #[inline]
    fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        self.shared.write(key, Some(value), |_| true, |index| index.insert(key, value))
    }
    #[inline]
    fn try_insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Occupied>, IndexError> {
        let insert = |index: &dyn ErasedIndex<K, V>| index.try_insert(key, value);
        self.shared.write(key, Some(value), |was| was.is_none(), insert)
    }
    #[inline]
    fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        let update = |index: &dyn ErasedIndex<K, V>| index.update(key, value);
        self.shared.write(key, Some(value), |was| was.is_some(), update)
    }
    #[inline]
    fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        self.shared.write(key, Some(value), |_| true, |index| index.put(key, value))
    }
    #[inline]
    fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.shared.write(key, None, |was| was.is_some(), |index| index.remove(key))
    }
    fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        // Decided once: a value may be encoded in several ways. While the write is watched, no other one comes between.
        let decided = Cell::new(None);
        let is_it = |was: Option<&V>| {
            let is_it = was.is_some_and(|was| same_encoding::<V>(was.borrowed(), value.borrowed()));
            decided.set(Some(is_it));
            is_it
        };
        self.shared.write(key, None, is_it, |index| match decided.get() {
            None => index.remove_exact(key, value),
            Some(true) => index.remove(key),
            Some(false) => Ok(None),
        })
    }
    fn remove_if(
        &self,
        key: &K::Ref,
        condition: &mut dyn FnMut(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        while let Some(value) = self.get(key)? {
            if !condition(&value) {
                break;
            }
            if let Some(removed) = self.remove_exact(key, &value)? {
                return Ok(Some(removed));
            }
            // Another thread has replaced it, or it is encoded in several ways, and this was another one.
            let done = Transaction::run(&Handle::new(&self.shared.core), |tx| {
                let is_it = tx.get(self, key)?.is_some_and(|value| condition(&value));
                if is_it { tx.remove(self, key) } else { Ok(None) }
            });
            match done {
                // It is durable in the second case, and not made yet.
                Err(StoreError::Index(error) | StoreError::Unfinished(error)) => return Err(error),
                Err(_) => {} // others write the record
                Ok(removed) => return Ok(removed),
            }
        }
        Ok(None)
    }
    fn range_bounds(&self, lower: Bound<&K::Ref>, upper: Bound<&K::Ref>) -> RangeIter<'_, K, V> {
        self.shared.index.range_bounds(lower, upper)
    }
    fn scan(&self, from: &K::Ref, limit: usize, out: &mut Vec<(K, V)>) -> Result<(), IndexError> {
        self.shared.index.scan(from, limit, out)
    }
    fn scan_bounds_into(
        &self,
        lower: Bound<&K::Ref>,
        upper: Bound<&K::Ref>,
        limit: usize,
        out: &mut Records<K, V>,
    ) -> Result<usize, IndexError> {
        self.shared.index.scan_bounds_into(lower, upper, limit, out)
    }
    fn first_key_value(&self) -> Result<Option<(K, V)>, IndexError> {
        self.shared.end(true, |index| index.first_key_value())
    }
    fn last_key_value(&self) -> Result<Option<(K, V)>, IndexError> {
        self.shared.end(false, |index| index.last_key_value())
    }
    fn len(&self) -> Result<u64, IndexError> {
        self.shared.index.len()
    }
    fn is_empty(&self) -> Result<bool, IndexError> {
        if let Some(period) = self.shared.gate.unwatched() {
            let is_empty = self.shared.index.is_empty()?;
            if self.shared.gate.is_unwatched_since(period) {
                return Ok(is_empty);
            } // or a commit may have been read in part
        }
        Ok(self.first_key_value()?.is_none())
    }
    fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        self.load(records)
    }
    fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        let shared = &*self.shared;
        if let Some(period) = shared.gate.unwatched() {
            shared.index.get_many(keys, out)?;
            if shared.gate.is_unwatched_since(period) {
                return Ok(());
            } // or a commit may have been read in part
        }
        shared.get_many_watched(keys, out)
    }
    fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany {
        if let Err(error) = self.shared.core.check_process() {
            return InsertMany { inserted: Vec::new(), stopped: Some(error.into()) };
        }
        let done = match self.shared.gate.begin(self.shared.core.pm()) {
            Write::Unwatched(_unwatched) => return self.shared.index.try_insert_many(records),
            Write::Watched(watched) => self.insert_many_watched(records, watched),
        };
        match done {
            Ok(Some(done)) => done,
            Ok(None) => self.insert_one_by_one(records),
            Err(error) => InsertMany { inserted: Vec::new(), stopped: Some(error) },
        }
    }
    fn put_many(&self, records: &[(K, V)]) -> Result<(), IndexError> {
        self.shared.core.check_process()?;
        if let Write::Unwatched(_unwatched) = self.shared.gate.begin(self.shared.core.pm()) {
            return self.shared.index.put_many(records);
        }
        records.iter().try_for_each(|(key, value)| {
            self.put(key.borrowed(), value.borrowed()).map(|_is_new| ())
        })
    }
    fn stats(&self) -> Result<Stats, IndexError> {
        self.shared.index.stats()
    }
    fn check(&self) -> Result<u64, IndexError> {
        self.shared.index.check()
    }
    fn recovery_report(&self) -> RecoveryReport {
        self.shared.index.recovery_report()
    }
    fn has_background(&self) -> bool {
        self.shared.index.has_background()
    }
    fn background(&self, stop: &std::sync::atomic::AtomicBool) -> Result<(), IndexError> {
        self.shared.index.background(stop)
    }
}
