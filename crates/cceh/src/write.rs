//! Single writes: add, replace, put, remove.
//!
//! Every persistent write takes place under the segment's version lock, which is held until the last fence,
//! so no thread sees a write that a crash could take back.
//!
//! | operation | step | store | durable before |
//! |-----------|------|-------|----------------|
//! | insert    | P1 | the record's block and its ticket, where it has one | P2 |
//! |           | P2 | the second word of a dead pair, then in the same line its id (LIN) | return (DUR) |
//! | update    | P1 | the new block, tickets of both | P2 |
//! |           | P2 | the second word (LIN) | return (DUR) |
//! | remove    | P1 | the block's ticket | P2 |
//! |           | P2 | the id becomes that of a pair without a record (LIN) | return (DUR) |
//!
//! The line of the pair is flushed, which need not be the key's home line.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Medium, Owner, PmError};
use pmindex_index::{IndexError, Key, Missing, Noted, Occupied, Value, same_encoding};
use pmindex_record::{Pair, PairValue, remove, replace, reserve, set};

use crate::index::Cceh;
use crate::layout::{Cover, Sought, has_block};
use crate::segment::{Found, Segment, value_of};

/// Returns the number of changes under a lock after which a removal checks whether a segment has few records: a
/// prime, which no pattern of writes avoids; in tiny segments every change.
const fn look(lines: usize) -> u64 {
    if lines < 31 { 1 } else { 31 }
}

/// The lock of a segment that is being changed. If it is dropped before the change is [`done`](Self::done),
/// it makes the segment's present state durable and updates the directory.
pub(crate) struct Change<'t, K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize> {
    index: &'t Cceh<K, V, M, LINES, PROBE>,
    segment: u64,
    done: bool,
    _guard: VersionGuard<'t>,
}

impl<K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize>
    Change<'_, K, V, M, LINES, PROBE>
{
    /// Notes that all stores are durable and the directory is updated, and unlocks the segment.
    #[inline(always)]
    pub(crate) fn done(mut self) {
        self.done = true;
    }
}

impl<K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize> Drop
    for Change<'_, K, V, M, LINES, PROBE>
{
    #[inline(always)]
    fn drop(&mut self) {
        if !self.done {
            self.index.make_whole(self.segment);
        }
    }
}

/// The segment of a key, locked, and the key's record.
pub(crate) struct Held<'t, K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize> {
    pub(crate) segment: Segment<'t, LINES, PROBE>,
    pub(crate) cover: Cover,
    pub(crate) found: Option<Found>,
    pub(crate) change: Change<'t, K, V, M, LINES, PROBE>,
}

impl<K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize>
    Cceh<K, V, M, LINES, PROBE>
{
    /// Returns the change of a segment whose lock is held.
    #[inline(always)]
    pub(crate) fn change<'t>(
        &'t self,
        segment: u64,
        guard: VersionGuard<'t>,
    ) -> Change<'t, K, V, M, LINES, PROBE> {
        Change { index: self, segment, done: false, _guard: guard }
    }

    /// Ends a change that failed or panicked, before other threads see its effects: a record without a fence,
    /// or a split or merge that the directory does not have.
    #[cold]
    #[inline(never)]
    fn make_whole(&self, segment: u64) {
        let pm = self.pm();
        let Ok(mut held) = self.segment(segment) else { return };
        let flushed = pm.flush_words(held.words());
        let _ = pm.fence(flushed); // if it fails, nothing more is acknowledged
        // The directory leads to the segments behind it, unless they were made just now, and no other thread has
        // them: who replaces a segment has the lock of the one before it.
        while let Some(cover) = self.cover_of(&held) {
            self.directory.set(pm, cover, held.offset());
            let next = held.next(pm);
            if cover.end() == 0 || self.directory.find(cover.end()).segment() == next {
                return;
            }
            let Ok(made) = self.segment(next) else { return };
            held = made;
        }
    }

    fn cover_of(&self, segment: &Segment<'_, LINES, PROBE>) -> Option<Cover> {
        let pm = self.pm();
        let end = match segment.next(pm) {
            0 => 0,
            next => self.segment(next).ok()?.base(pm),
        };
        Cover::between(segment.base(pm), end)
    }

    /// Finds the key's segment, locks it, and returns the result of `then`, if `wanted` accepts whether the key is
    /// present; else returns `None`, having written nothing.
    #[inline(always)]
    pub(crate) fn hold<'t, T>(
        &'t self,
        key: &Sought<'_>,
        wanted: impl Fn(bool) -> bool,
        then: impl FnOnce(Held<'t, K, V, M, LINES, PROBE>) -> Result<T, IndexError>,
    ) -> Result<Option<T>, IndexError> {
        self.pool.check_writable()?;
        let pm = self.pm();
        loop {
            if let Some(at) = self.try_locate(key.position)
                && let Ok(segment) = self.segment(at.segment)
                && let Ok(found) = segment.find::<K, V, M>(&self.pool, key)
            {
                if !wanted(found.is_some()) {
                    if at.validate(pm) {
                        return Ok(None);
                    }
                } else if let Some(guard) = at.lock.try_upgrade(pm, at.version) {
                    // The read state was still valid and stays so: the version became the lock.
                    let change = self.change(at.segment, guard);
                    return then(Held { segment, cover: at.cover, found, change }).map(Some);
                }
            }
            self.wait_to_hold(key)?;
        }
    }

    /// Waits a moment after another thread's write kept a key's segment from being held; returns the error, if
    /// that is what did.
    #[cold]
    #[inline(never)]
    fn wait_to_hold(&self, key: &Sought<'_>) -> Result<(), PmError> {
        self.pm().spin();
        let at = self.locate(key.position);
        let found =
            self.segment(at.segment).and_then(|segment| segment.find::<K, V, M>(&self.pool, key));
        if at.validate(self.pm()) { found.map(drop) } else { Ok(()) }
    }

    /// Adds a record; returns [`Occupied`] and changes nothing if the key exists.
    ///
    /// # Cost
    /// 1 line and 1 fence; for a record with a block, also the lines of the block, the ticket and the
    /// allocation bit, and another fence. Sometimes a split.
    ///
    /// # Errors
    /// A key or value too long; [`IndexError::TooManyAlike`]; errors of the pool.
    #[inline]
    pub fn try_insert(
        &self,
        key: &K::Ref,
        value: &V::Ref,
    ) -> Result<Result<(), Occupied>, IndexError> {
        self.try_insert_inner(key, value).noted(&self.pool).map(Occupied::unless)
    }

    #[inline(always)]
    fn try_insert_inner(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let (key, value) = (Sought::new::<K>(key)?, Pair::<K, V>::encode(value)?);
        loop {
            let insert = |held| self.insert_held(held, &key, &value);
            match self.hold(&key, |present| !present, insert)? {
                Some(true) => return Ok(true),
                Some(false) => {}
                None => return Ok(false),
            }
        }
    }

    /// Inserts, or splits a segment without room and returns `false`.
    #[inline(always)]
    fn insert_held(
        &self,
        held: Held<'_, K, V, M, LINES, PROBE>,
        key: &Sought<'_>,
        value: &PairValue<'_>,
    ) -> Result<bool, IndexError> {
        let Held { segment, cover, change, .. } = held;
        let pm = self.pm();
        let Some(pair) = segment.room(pm, cover, key.position, |_| false) else {
            self.split(&segment, cover, change)?;
            return Ok(false);
        };
        if has_block::<K, V>() {
            self.insert_block(&segment, pair, key, value)?;
        } else {
            segment.store(pm, pair, [key.id, value.word]); // P2, LIN
            let stored = pm.flush(segment.id_cell(pair)); // and the other word, in the same line
            pm.fence(stored)?; // DUR
        }
        self.count(segment.offset(), 1);
        change.done();
        Ok(true)
    }

    fn insert_block(
        &self,
        segment: &Segment<'_, LINES, PROBE>,
        pair: usize,
        key: &Sought<'_>,
        value: &PairValue<'_>,
    ) -> Result<(), PmError> {
        let mut op = self.pool.op()?;
        // P1: block and ticket. An earlier ticket may name the other word.
        let (block, words) = reserve(&self.pool, &mut op, &key.bytes, &value.bytes)?;
        op.allocate(&block, owner_by_id(segment, pair, key.id))?;
        op.changes(segment.other_cell(pair));
        op.prepare(self.pm().flush_words(words))?;
        // P2, LIN.
        segment.store(self.pm(), pair, [key.id, block.ptr().offset()]);
        let stored = self.pm().flush_words(segment.pair(pair));
        let sealed = op.seal();
        let durable = self.pm().fence(stored.and(sealed))?; // DUR
        op.finish(durable);
        Ok(())
    }

    /// Replaces a value; returns [`Missing`] and changes nothing if the key is absent.
    ///
    /// # Cost
    /// One-word keys and values: 1 line, 1 fence. Else 2 fences, and the lines of the new block, of two
    /// tickets, of two allocation bits, and 1.
    #[inline]
    pub fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        self.update_inner(key, value).noted(&self.pool).map(Missing::unless)
    }

    #[inline(always)]
    fn update_inner(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let (key, value) = (Sought::new::<K>(key)?, Pair::<K, V>::encode(value)?);
        let update = |held| Ok(self.update_held(held, &key, &value)?);
        Ok(self.hold(&key, |present| present, update)?.is_some())
    }

    #[inline(always)]
    fn update_held(
        &self,
        held: Held<'_, K, V, M, LINES, PROBE>,
        key: &Sought<'_>,
        value: &PairValue<'_>,
    ) -> Result<(), PmError> {
        let Held { segment, found, change, .. } = held;
        let Some(Found { pair, .. }) = found else { return Ok(()) };
        let cell = segment.other_cell(pair);
        if has_block::<K, V>() {
            replace(&self.pool, cell, &key.bytes, &value.bytes)?; // P1, P2, LIN: the pointer; DUR
        } else {
            set(self.pm(), cell, value.word)?; // P2, LIN: one word in place; DUR
        }
        change.done();
        Ok(())
    }

    /// Adds or replaces a record without reading the old value; returns `true` if the key is new.
    ///
    /// # Cost
    /// That of the insert or update.
    #[inline]
    pub fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        self.put_inner(key, value, |_| Ok(())).noted(&self.pool).map(|old| old.is_none())
    }

    /// Adds or replaces a record; applies `read` to the second word of the old record under its segment's
    /// lock and returns the result.
    #[inline(always)]
    fn put_inner<T>(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        read: impl Fn(u64) -> Result<T, PmError>,
    ) -> Result<Option<T>, IndexError> {
        let (key, value) = (Sought::new::<K>(key)?, Pair::<K, V>::encode(value)?);
        // `None` from the closure: there was no room, and the segment is split.
        let put = |held: Held<'_, K, V, M, LINES, PROBE>| {
            let Some(found) = held.found else {
                return Ok(self.insert_held(held, &key, &value)?.then_some(None));
            };
            match read(found.other) {
                Ok(old) => {
                    self.update_held(held, &key, &value)?;
                    Ok(Some(Some(old)))
                }
                Err(error) => {
                    held.change.done();
                    Err(error.into())
                }
            }
        };
        loop {
            if let Some(Some(old)) = self.hold(&key, |_| true, put)? {
                return Ok(old);
            }
        }
    }

    /// Adds or replaces a record; returns the old value.
    ///
    /// # Cost
    /// That of [`put`](Self::put), and reading the old value.
    #[inline]
    pub fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        let read = |other| value_of::<K, V, M>(&self.pool, other);
        self.put_inner(key, value, read).noted(&self.pool)
    }

    /// Removes a record and returns its value.
    ///
    /// # Cost
    /// 1 line, 1 fence; for a record with a block, also the lines of the ticket and the allocation bit, and
    /// another fence. Sometimes it merges two segments with few records.
    #[inline]
    pub fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.remove_inner(key, |_| true).noted(&self.pool)
    }

    /// Removes a record if its value has the same encoding as `value`; returns the removed value.
    ///
    /// # Cost
    /// That of [`remove`](Self::remove).
    pub fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        self.remove_inner(key, |stored| same_encoding::<V>(stored.borrowed(), value.borrowed()))
            .noted(&self.pool)
    }

    /// Removes a record if `judge` accepts its value under its segment's lock.
    #[inline(always)]
    fn remove_inner(
        &self,
        key: &K::Ref,
        judge: impl Fn(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        let key = Sought::new::<K>(key)?;
        let removed =
            self.hold(&key, |present| present, |held| self.remove_held(held, &key, &judge))?;
        Ok(removed.flatten())
    }

    #[inline(always)]
    fn remove_held(
        &self,
        held: Held<'_, K, V, M, LINES, PROBE>,
        key: &Sought<'_>,
        judge: &impl Fn(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        let Held { segment, cover, found, change } = held;
        let Some(found) = found else { return Ok(None) };
        let value = value_of::<K, V, M>(&self.pool, found.other);
        let value = match value.map(|value| judge(&value).then_some(value)) {
            Ok(Some(value)) => value,
            refused => {
                change.done();
                return Ok(refused?);
            }
        };
        // P1, P2, LIN: the id; DUR.
        let owner = owner_by_id(&segment, found.pair, key.id);
        let block = has_block::<K, V>().then_some(found.other);
        remove(&self.pool, owner, cover.stranger(), block, None)?;
        let changes = self.count(segment.offset(), u64::MAX);
        change.done();
        if changes.is_multiple_of(const { look(LINES) }) {
            // The record is durably removed. Segments that cannot be merged now (the pool has no slot) stay
            // until the next check.
            let _ = self.shrink(key.position);
        }
        Ok(Some(value))
    }

    /// Adds `change` (modulo 2^64) to the number of records of the segment at `offset`, whose lock is held.
    #[inline(always)]
    pub(crate) fn count(&self, offset: u64, change: u64) -> u64 {
        self.tally.add(self.locks.index_of(offset), change)
    }
}

/// Returns the owner of the block of a new or removed record.
#[inline(always)]
pub(crate) fn owner_by_id<'p, const LINES: usize, const PROBE: usize>(
    segment: &Segment<'p, LINES, PROBE>,
    pair: usize,
    id: u64,
) -> Owner<'p> {
    Owner { word: segment.id_cell(pair), mask: u64::MAX, expect: id }
}
