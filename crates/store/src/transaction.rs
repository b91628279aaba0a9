//! Transactions: optimistic, in DRAM until they commit.
//!
//! A transaction reads the moment of its first read, with its own changes over it. It notes the keys and
//! ranges that it reads. A transaction that has read nothing and changes one record is a single write of its
//! map; any other one commits in these steps:
//!
//! | step | what | durable before |
//! |------|------|----------------|
//! | 1 | locks the keys it changes, in the order of the locks, and reads their records if anybody reads a moment | |
//! | 2 | in one step, under the lock of the moments: takes a number, refuses if a record that it read was changed since its moment, notes what its records were | |
//! | 3 | puts its record into the log (LIN for crashes, DUR) | 4 |
//! | 4 | makes its changes, map by map, those of a map with few fences | 5 |
//! | 5 | says in the log that they are made | 6 |
//! | 6 | is finished: moments that begin now have it; unlocks its keys | |
//!
//! **Waits.** Where a fence waits for the disk (modes `Msync` and `Journal`), a commit waits in step 3, in
//! step 4 like `put_many` of each map (in FPTree once where numbers are replaced, twice where records are new or
//! other values are replaced; removals, and values of several words of byte-string keys, one by one), and in step 5:
//! four times if numbers are replaced in two maps, and sometimes for a segment of the log. Threads share waits: with
//! eight threads the disk is waited for about twice per transaction. These waits cannot be replaced by the last
//! one. The record contains the new state of records, not the old contents of words. The kernel writes pages
//! of a mapped file back at any time, so if a phase of an index's change did not wait, a later phase might
//! reach the disk without it, and the index to which the changes of the record must be applied again would be
//! broken. In mode `Periodic` the kernel has no such pages: fences keep their order in the twin's log and
//! wait for nothing, and one [`Pool::sync`](pmindex_core::Pool::sync) after a commit is its only wait.
//!
//! A transaction that changes one record has no steps 3 and 5 unless the commits are watched: the index makes
//! one change atomically.
//!
//! **Serializable**, in the order of the numbers: in step 2 all commits with smaller numbers have noted their
//! changes, so a transaction that passes would have read the same at its own number. Phantoms are covered,
//! since ranges are noted as far as they were read. A transaction that changes nothing needs no check: it has
//! read one moment. **Strictly** so: a moment has every commit that returned before it began, and a read
//! outside of transactions waits for the lock of the key, so that no thread sees one change of a commit and
//! then misses another.

use std::any::Any;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::{Mutex, MutexGuard};
use pmindex_core::{Mapped, Medium};
use pmindex_index::{
    IndexError, Key, KeyRange, MAX_KEY_BYTES, MAX_VALUE_BYTES, Missing, Occupied, PrefixKey, Shape,
    Storable, Value,
};

use crate::changes::{AnyPart, Part};
use crate::core::Core;
use crate::durable::Durable;
use crate::error::StoreError;
use crate::handles::Handle;
use crate::map::{Map, Shared};
use crate::moments::{Commit, Moments, Reader, Refused, Unfinished};
use crate::observe;
use crate::range::Range;
use crate::record::Record;
use crate::savepoint::{Savepoint, Savepoints};
use crate::snapshot::{RangeAt, get_at};
use crate::versions::is_empty;
use crate::wrong::Wrong;

/// A transaction over the maps of a store: all of its changes take place, or none. See
/// [`Store::transaction`](crate::Store::transaction).
///
/// It reads one moment, that of its first read, and its own changes. Dropping it changes nothing.
pub struct Transaction<M: Medium = Mapped> {
    core: Handle<Core<M>>,
    /// From its first read on.
    reader: OnceLock<Reader>,
    parts: Mutex<Parts>,
    /// The part of each change, as long as a savepoint may take it back.
    changed: Vec<usize>,
    savepoints: Savepoints,
    /// It has met a map that is newer than its moment.
    is_late: AtomicBool,
}

/// The reads and changes of a transaction, by map.
struct Parts(Vec<(u64, Box<dyn AnyPart>)>);

impl<M: Medium> fmt::Debug for Transaction<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("reader", &self.reader).finish_non_exhaustive()
    }
}

impl Parts {
    fn at<K: Key, V: Value, M: Medium>(&self, map: &Shared<K, V, M>) -> Option<usize> {
        self.0.iter().position(|(number, _)| *number == map.number)
    }

    fn get<K: Key, V: Value, M: Medium>(&self, map: &Shared<K, V, M>) -> Option<&Part<K, V, M>> {
        self.0[self.at(map)?].1.as_any().downcast_ref()
    }

    /// Returns the part of a map, and creates it if needed. A number belongs to one map, and so to one type.
    fn of<K: Key, V: Value, M: Medium>(
        &mut self,
        map: &Map<K, V, M>,
    ) -> (usize, &mut Part<K, V, M>) {
        let at = self.at(&map.shared).unwrap_or_else(|| {
            self.0.push((map.shared.number, Box::new(Part::new(map.handles.handle()))));
            self.0.len() - 1
        });
        let part: &mut dyn Any = self.0[at].1.as_any_mut();
        let part = part.downcast_mut();
        (at, part.unwrap_or_else(|| unreachable!("the number is that of another map")))
    }
}

/// Refuses records that no index accepts, before the commit.
fn check_length<T: Storable>(
    value: &T::Ref,
    max: usize,
    too_long: impl FnOnce(usize) -> IndexError,
) -> Result<(), IndexError> {
    let len = if T::SHAPE == Shape::Bytes { T::to_bytes(value).len() } else { 0 };
    if len > max { Err(too_long(len)) } else { Ok(()) }
}

impl<M: Medium> Transaction<M> {
    pub(crate) fn new(core: Handle<Core<M>>) -> Self {
        let (parts, reader) = (Mutex::new(Parts(Vec::new())), OnceLock::new());
        let (savepoints, is_late) = (Savepoints::new(), AtomicBool::new(false));
        Self { core, reader, parts, changed: Vec::new(), savepoints, is_late }
    }

    /// Begins to read a moment, unless it does already.
    fn reader(&self) -> Result<&Reader, StoreError> {
        if let Some(reader) = self.reader.get() {
            return Ok(reader);
        }
        let reader = self.core.read()?;
        Ok(self.reader.get_or_init(|| reader))
    }

    /// Runs a transaction, again if it conflicts with others.
    pub(crate) fn run<R, E: From<StoreError>>(
        core: &Handle<Core<M>>,
        mut body: impl FnMut(&mut Self) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut transaction = Self::new(core.clone());
            let result = body(&mut transaction);
            if transaction.has_ended() {
                // Whatever the body made of that.
            } else {
                let done = result?;
                match transaction.commit() {
                    Ok(()) => return Ok(done),
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if tries == core.tries {
                return Err(StoreError::Conflict { tries }.into());
            }
            observe::runs_again(tries);
            // The pause grows with the tries: other transactions finish meanwhile.
            for _ in 0..1 << tries.min(6) {
                core.pm().spin();
            }
            if tries > 4 {
                std::thread::yield_now();
            }
        }
    }

    fn check<K: Key, V: Value>(&self, map: &Map<K, V, M>) -> Result<(), StoreError> {
        if !Arc::ptr_eq(self.core.whole(), &map.shared.core) {
            return Err(StoreError::OtherStore { name: map.name().into() });
        }
        let known = self.reader.get().map_or(Ok(()), |reader| map.shared.check_moment(reader));
        if known.is_err() {
            self.is_late.store(true, Relaxed);
        }
        known
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.core.pm().lock(&self.parts)
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// [`StoreError::SnapshotEnded`] and [`StoreError::Dropped`] (then `Store::transaction` runs it again),
    /// [`StoreError::OtherStore`]; those of the index.
    pub fn get<K: Key, V: Value>(
        &self,
        map: &Map<K, V, M>,
        key: &K::Ref,
    ) -> Result<Option<V>, StoreError> {
        self.check(map)?;
        let owned = K::owned(key);
        let part = &map.shared;
        if let Some(written) = self.parts().get(part).and_then(|part| part.writes.get(&owned)) {
            return Ok(written.clone());
        }
        let found = get_at(part, self.reader()?, key)?;
        self.parts().of(map).1.reads.insert(owned);
        Ok(found)
    }

    /// Returns `true` if `key` is present.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn contains_key<K: Key, V: Value>(
        &self,
        map: &Map<K, V, M>,
        key: &K::Ref,
    ) -> Result<bool, StoreError> {
        Ok(self.get(map, key)?.is_some())
    }

    /// Adds or replaces a record without reading it: other commits to the same key do not conflict with it.
    ///
    /// # Errors
    /// [`StoreError::OtherStore`], [`StoreError::Dropped`]; a key or value is too long, or the map is in pages and
    /// has nearly no free page.
    pub fn put<K: Key, V: Value>(
        &mut self,
        map: &Map<K, V, M>,
        key: &K::Ref,
        value: &V::Ref,
    ) -> Result<(), StoreError> {
        self.check(map)?;
        let max = MAX_VALUE_BYTES;
        check_length::<V>(value, max, |len| IndexError::ValueTooLong { len, max })?;
        map.shared.index.fits(key, value)?;
        self.write(map, key, Some(V::owned(value)))
    }

    fn write<K: Key, V: Value>(
        &mut self,
        map: &Map<K, V, M>,
        key: &K::Ref,
        value: Option<V>,
    ) -> Result<(), StoreError> {
        let max = MAX_KEY_BYTES;
        check_length::<K>(key, max, |len| IndexError::KeyTooLong { len, max })?;
        let is_saving = self.savepoints.are_set();
        let (at, part) = self.parts.get_mut().of(map);
        part.write(K::owned(key), value, is_saving);
        if is_saving {
            self.changed.push(at);
        }
        Ok(())
    }

    /// Adds or replaces a record; returns the old value.
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put).
    pub fn insert<K: Key, V: Value>(
        &mut self,
        map: &Map<K, V, M>,
        key: &K::Ref,
        value: &V::Ref,
    ) -> Result<Option<V>, StoreError> {
        let was = self.get(map, key)?;
        self.put(map, key, value)?;
        Ok(was)
    }

    /// Adds a record; returns [`Occupied`] and changes nothing if the key exists.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub fn try_insert<K: Key, V: Value>(
        &mut self,
        map: &Map<K, V, M>,
        key: &K::Ref,
        value: &V::Ref,
    ) -> Result<Result<(), Occupied>, StoreError> {
        if self.contains_key(map, key)? {
            return Ok(Err(Occupied));
        }
        self.put(map, key, value).map(Ok)
    }

    /// Replaces a value; returns [`Missing`] and changes nothing if the key is absent.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub fn update<K: Key, V: Value>(
        &mut self,
        map: &Map<K, V, M>,
        key: &K::Ref,
        value: &V::Ref,
    ) -> Result<Result<(), Missing>, StoreError> {
        if !self.contains_key(map, key)? {
            return Ok(Err(Missing));
        }
        self.put(map, key, value).map(Ok)
    }

    /// Removes a record and returns its value.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn remove<K: Key, V: Value>(
        &mut self,
        map: &Map<K, V, M>,
        key: &K::Ref,
    ) -> Result<Option<V>, StoreError> {
        let was = self.get(map, key)?;
        if was.is_some() {
            self.write(map, key, None)?;
        }
        Ok(was)
    }

    /// Returns the records with keys in `range`, in order, from both ends, with this transaction's changes.
    /// An item may be an error of [`get`](Self::get); it is the last one. Commits of others conflict with the
    /// part of the range that was read.
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    #[allow(clippy::needless_pass_by_value, reason = "as ranges are passed everywhere")]
    pub fn range<'t, K: Key, V: Value>(
        &'t self,
        map: &'t Map<K, V, M>,
        range: impl KeyRange<K>,
    ) -> RangeAt<'t, K, V> {
        let (lower, upper) = range.bounds();
        self.range_bounds(map, lower, upper)
    }

    /// Does the same as [`range`](Self::range), for any bounds.
    ///
    /// # Panics
    /// Like [`range`](Self::range).
    pub fn range_bounds<'t, K: Key, V: Value>(
        &'t self,
        map: &'t Map<K, V, M>,
        lower: Bound<&K::Ref>,
        upper: Bound<&K::Ref>,
    ) -> RangeAt<'t, K, V> {
        let reader = match self.check(map).and_then(|()| self.reader()) {
            Ok(reader) => reader,
            Err(error) => return Box::new(std::iter::once(Err(error))),
        };
        let own = |lower: &Bound<K>, upper: &Bound<K>| {
            let parts = self.parts();
            let Some(part) = parts.get(&*map.shared) else { return Vec::new() };
            if is_empty(lower, upper) {
                return Vec::new();
            }
            let writes = part.writes.range((lower.as_ref(), upper.as_ref()));
            writes.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let records = Range::new(&map.shared, reader, Some(Box::new(own)), lower, upper);
        let mut parts = self.parts();
        let ranges = &mut parts.of(map).1.ranges;
        // All of it until it ends: the caller may forget it instead.
        ranges.push(Some((lower.map(K::owned), upper.map(K::owned))));
        let at = ranges.len() - 1;
        Box::new(Noting { tx: self, map, records, at, read: Read::default() })
    }

    /// Returns the records whose keys begin with `prefix`, like [`range`](Self::range).
    pub fn prefix<'t, K: PrefixKey, V: Value>(
        &'t self,
        map: &'t Map<K, V, M>,
        prefix: &K::Ref,
    ) -> RangeAt<'t, K, V> {
        let after = K::after_prefix(prefix);
        self.range_bounds(map, Bound::Included(prefix), after.as_ref().map(K::borrowed))
    }

    /// Returns the least record.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn first_key_value<K: Key, V: Value>(
        &self,
        map: &Map<K, V, M>,
    ) -> Result<Option<(K, V)>, StoreError> {
        self.range(map, ..).next().transpose()
    }

    /// Returns the greatest record.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn last_key_value<K: Key, V: Value>(
        &self,
        map: &Map<K, V, M>,
    ) -> Result<Option<(K, V)>, StoreError> {
        self.range(map, ..).next_back().transpose()
    }

    /// Returns `true` if it cannot read at its moment any more: its reads may be incomplete.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_late.load(Relaxed) || self.reader.get().is_some_and(Reader::is_ended)
    }

    /// Returns the moment that it reads.
    #[cfg(test)]
    pub(crate) fn moment(&self) -> u64 {
        self.reader().unwrap().moment()
    }

    /// Sets a point that [`roll_back`](Self::roll_back) can return to.
    pub fn savepoint(&mut self) -> Savepoint {
        self.savepoints.set(self.changed.len())
    }

    /// Takes back the changes since a savepoint of this transaction. Reads stay noted. After a roll-back,
    /// later savepoints are equal to the one that was rolled back to.
    pub fn roll_back(&mut self, to: Savepoint) {
        let Some(changes) = self.savepoints.roll_back(to) else { return };
        while self.changed.len() > changes {
            if let Some(at) = self.changed.pop() {
                self.parts.get_mut().0[at].1.take_back();
            }
        }
    }

    /// Commits: durable when it returns.
    ///
    /// # Errors
    /// [`StoreError::Conflict`]: other commits changed what was read; begin again. [`StoreError::TooLarge`];
    /// `PmError::Full` if a map in pages may not have enough unused pages for all changes, those of commits in
    /// progress included; those of the pool. Nothing is changed then, except for [`StoreError::Unfinished`].
    pub fn commit(self) -> Result<(), StoreError> {
        self.commit_numbered().map(drop)
    }

    /// Commits; returns the number of the commit, `None` if there was nothing to change.
    pub(crate) fn commit_numbered(self) -> Result<Option<u64>, StoreError> {
        let Self { core, reader, parts, .. } = self;
        let reader = reader.into_inner();
        let mut parts = parts.into_inner().0;
        for (_, part) in &mut parts {
            part.keep();
        }
        let changes: usize = parts.iter().map(|(_, part)| part.len()).sum();
        if changes == 0 {
            return Ok(None);
        }
        let _span = observe::commit(changes);
        core.pool.check_writable()?;
        if changes == 1 && reader.is_none() {
            parts.iter().try_for_each(|(_, part)| part.make_alone())?;
            return Ok(None);
        }
        let record = record_of(&core, &parts, changes)?;
        let mut places = Vec::with_capacity(changes);
        for (_, part) in &parts {
            part.places(&mut places);
        }
        let watched = reader.is_none().then(|| core.moments.watched(core.pm()));
        let mut locked = Some(core.lock(places)); // 1
        core.finish_stuck()?;
        if changes > 1 {
            // Refused now, or certain to find room: after 3 it would be too late.
            parts.iter_mut().try_for_each(|(_, part)| part.reserve())?;
        }
        let unfinished = number_of(&core, reader.as_ref(), &mut parts)?; // 2
        let number = unfinished.number();
        if core.goes_wrong(Wrong::ChangesFirst) {
            parts.iter().try_for_each(|(_, part)| part.make())?;
        }
        let is_one = record.is_none();
        let record = record.or_else(|| unfinished.is_logged().then(|| write_record(&parts)));
        let record = record.filter(|_| !core.goes_wrong(Wrong::NoRecord));
        // 3, durable before: any change. DUR(commit)
        let put = |record: Record| {
            if is_one { core.redo.put_one(number, &record) } else { core.redo.put(number, &record) }
        };
        let logged = record.map(put).transpose()?;
        parts.retain(|(_, part)| !part.is_empty());
        let Some(logged) = logged else {
            make_all(&core, &parts)?; // 4: the only change, or it was not made
            Moments::finish(unfinished, reader); // 6
            return Ok(Some(number));
        };
        let durable = Durable::new(&core, unfinished, parts, logged);
        if core.goes_wrong(Wrong::RetiredFirst) {
            core.redo.retire(logged)?;
        }
        let made = make_all(&core, &durable.changes); // 4, durable before: 5
        if core.goes_wrong(Wrong::UnlockedFirst) {
            locked = None;
            wait_in_test(&core);
        }
        if is_one && made.is_err() && core.redo.cancel(logged).is_ok() {
            drop(durable.end());
            return Ok(made.map(|()| None)?); // the only change was not made
        }
        // 5, durable before: another commit writes the keys
        made.and_then(|()| core.redo.retire(logged)).map_err(StoreError::Unfinished)?;
        if let Some(unfinished) = durable.end() {
            Moments::finish(unfinished, reader); // 6
        }
        drop(locked);
        drop(watched);
        Ok(Some(number))
    }
}

/// Makes the changes of a commit.
fn make_all<M: Medium>(
    core: &Core<M>,
    parts: &[(u64, Box<dyn AnyPart>)],
) -> Result<(), IndexError> {
    parts.iter().try_for_each(|(_, part)| {
        let made = part.make();
        if core.goes_wrong(Wrong::ReadInBetween) || core.goes_wrong(Wrong::NotAwaited) {
            wait_in_test(core);
        }
        made
    })
}

/// In tests that remove a rule, another commit comes here.
fn wait_in_test<M: Medium>(core: &Core<M>) {
    (0..32).for_each(|_| core.pm().spin());
    std::thread::yield_now();
}

/// Takes the number of a commit whose keys are locked, unless something that it read was changed, and notes
/// the old values of its records if a reader needs them.
fn number_of<'c, M: Medium>(
    core: &'c Core<M>,
    reader: Option<&Reader>,
    parts: &mut [(u64, Box<dyn AnyPart>)],
) -> Result<Unfinished<'c>, StoreError> {
    let is_checked = !core.goes_wrong(Wrong::NotChecked);
    let mut is_read = core.moments.has_readers_but(reader);
    loop {
        if is_read {
            parts.iter_mut().try_for_each(|(_, part)| part.read())?;
        }
        let note = |commit: Commit<'_>| {
            let is_against = |reader: &Reader| {
                let conflicts = parts.iter().any(|(_, part)| part.conflicts(reader.moment()));
                reader.is_ended() || is_checked && conflicts
            };
            if reader.is_some_and(is_against) {
                return Err(Refused::Conflicts);
            }
            parts.iter_mut().try_for_each(|(_, part)| part.note(commit))
        };
        match core.moments.commit(core.pm(), reader, note) {
            Ok(unfinished) => return Ok(unfinished),
            Err(Refused::Conflicts) => return Err(StoreError::Conflict { tries: 1 }),
            Err(Refused::NotRead) => is_read = true, // a reader began meanwhile
        }
    }
}

/// Returns the record of a commit; `None` if the index makes its only change atomically.
fn record_of<M: Medium>(
    core: &Core<M>,
    parts: &[(u64, Box<dyn AnyPart>)],
    changes: usize,
) -> Result<Option<Record>, StoreError> {
    if changes == 1 {
        return Ok(None);
    }
    let record = write_record(parts);
    let (bytes, max) = (record.len(), core.redo.max());
    if bytes > max { Err(StoreError::TooLarge { bytes, max }) } else { Ok(Some(record)) }
}

/// Builds the record of a commit.
fn write_record(parts: &[(u64, Box<dyn AnyPart>)]) -> Record {
    let mut record = Record::default();
    for (_, part) in parts.iter().filter(|(_, part)| !part.is_empty()) {
        part.record(&mut record);
    }
    record
}

/// How far a range was read.
#[derive(Debug)]
struct Read<K> {
    /// Up to this key, from the start.
    front: Option<K>,
    /// Down to this key, from the end.
    back: Option<K>,
    /// Completely.
    all: bool,
}

impl<K> Default for Read<K> {
    fn default() -> Self {
        Self { front: None, back: None, all: false }
    }
}

/// A range that notes how far it was read.
struct Noting<'t, K: Key, V: Value, M: Medium> {
    tx: &'t Transaction<M>,
    map: &'t Map<K, V, M>,
    records: Range<'t, K, V, M>,
    /// The place of the range among those that the transaction notes.
    at: usize,
    read: Read<K>,
}

impl<K: Key, V: Value, M: Medium> Iterator for Noting<'_, K, V, M> {
    type Item = Result<(K, V), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.records.next();
        match &next {
            Some(Ok((key, _))) => self.read.front = Some(key.clone()),
            _ => self.read.all = true,
        }
        next
    }
}

impl<K: Key, V: Value, M: Medium> DoubleEndedIterator for Noting<'_, K, V, M> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let next = self.records.next_back();
        match &next {
            Some(Ok((key, _))) => self.read.back = Some(key.clone()),
            _ => self.read.all = true,
        }
        next
    }
}

impl<K: Key, V: Value, M: Medium> Drop for Noting<'_, K, V, M> {
    fn drop(&mut self) {
        if self.read.all {
            return;
        }
        let mut parts = self.tx.parts();
        let ranges = &mut parts.of(self.map).1.ranges;
        let Some((lower, upper)) = ranges[self.at].take() else { return };
        if let Some(last) = self.read.back.take() {
            ranges.push(Some((Bound::Included(last), upper)));
        }
        ranges[self.at] = self.read.front.take().map(|last| (lower, Bound::Included(last)));
    }
}
