//! Single writes: add, replace, put, remove.
//!
//! | operation | step | store                                                          | durable before |
//! |-----------|------|----------------------------------------------------------------|----------------|
//! | insert    | P0   | the entry reserved (a compare-and-swap, never flushed)           |                |
//! | update    | P1   | the record (its block) if it is more than two words               | P2             |
//! |           | P2   | one operation: status, entry visible (LIN, DUR), a short record  | return         |
//! | update in | P1   | the new block if there is one                                     | P2             |
//! | place     | P2   | one operation: status, value or pointer to the block (LIN, DUR)   | return         |
//! | remove    | P2   | one operation: status, entry dead or bit of the dead (LIN, DUR)  | return         |
//!
//! P1 is the first fence of the operation's two; without a P1 it has one. A record of two words is
//! carried by the operation, which stands for it until the leaf's line is durable.
//!
//! The entry becomes visible before the status changes. Readers see the record from the moment at which
//! they see both entry and a status that counts it; a writer that saw the entry alone expects a
//! status that does not come back, so its own operation does not take place.

use pmindex_core::{Medium, PPtr, PmError, Word};
use pmindex_index::{IndexError, Key, Missing, Noted, Occupied, Value, same_encoding};
use pmindex_pmwcas::{Descriptor, Session};
use pmindex_record::{EncodedValue, Probe, Slot};

use super::inner::Target;
use super::layout::{Entry, Geometry, MAX_LEAF, NOTHING, Place};
use super::leaf::{Found, Leaf, Reservation};
use super::record::{RawRef, Record};
use super::tree::{BzTree, pool_error};

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    Insert,
    Update,
    Put,
}

/// A record to insert.
pub(super) struct Incoming<'a, K, V> {
    pub(super) probe: &'a Probe<'a, K>,
    pub(super) datum: &'a EncodedValue<'a, V>,
    pub(super) form: Place,
}

/// The outcome of a write to one leaf.
enum Put<T> {
    /// The write was made or was not wanted; has the result of reading the old record, if there was one.
    Done(Option<T>),
    /// The leaf has no room, or is frozen.
    NoRoom,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    BzTree<K, V, M, LEAF, INNER>
{
    /// Adds a record; returns [`Occupied`] and changes nothing if the key exists.
    ///
    /// # Cost
    /// 4 lines, 1 fence; records of more than two words: 6 lines, 2 fences, byte strings: their lines
    /// besides. Sometimes a consolidation or a split.
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
        Ok(self.write(key, value, Want::Insert, |_| Ok(()))?.is_none())
    }

    /// Replaces a value; returns [`Missing`] and changes nothing if the key is absent.
    ///
    /// # Cost
    /// 3 lines, 1 fence in place: a value of one word, neither the old nor the new one above
    /// [`MAX_VALUE`](pmindex_pmwcas::MAX_VALUE); else as [`try_insert`](Self::try_insert).
    #[inline]
    pub fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        self.update_inner(key, value).noted(&self.pool).map(Missing::unless)
    }

    #[inline(always)]
    fn update_inner(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        Ok(self.write(key, value, Want::Update, |_| Ok(()))?.is_some())
    }

    /// Adds or replaces a record; returns the old value.
    ///
    /// # Cost
    /// That of [`put`](Self::put), and reading the old value.
    pub fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        let read = |found: &Found<'_, K, V>| found.record.value(&self.mwcas);
        self.write(key, value, Want::Put, read).noted(&self.pool)
    }

    /// Adds or replaces a record without reading the old value; returns `true` if the key is new.
    ///
    /// # Cost
    /// As [`try_insert`](Self::try_insert).
    #[inline]
    pub fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        self.put_inner(key, value).noted(&self.pool)
    }

    #[inline(always)]
    fn put_inner(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        Ok(self.write(key, value, Want::Put, |_| Ok(()))?.is_none())
    }

    /// Returns a record and its place in a leaf.
    pub(super) fn incoming<'a>(
        probe: &'a Probe<'a, K>,
        datum: &'a EncodedValue<'a, V>,
    ) -> Incoming<'a, K, V> {
        let most = Geometry::<K, V, LEAF, INNER>::INLINE_WORDS;
        Incoming { probe, datum, form: Record::<K, V>::form(probe, datum, most) }
    }

    /// Makes a write if it is wanted; returns the result of `read` for the old record, if there was one.
    fn write<T>(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        want: Want,
        read: impl Fn(&Found<'_, K, V>) -> Result<T, PmError>,
    ) -> Result<Option<T>, IndexError> {
        let (probe, datum) = (Probe::new(key)?, EncodedValue::new(value)?);
        let record = Self::incoming(&probe, &datum);
        self.pool.check_writable()?;
        let _busy = self.count.begin();
        self.with_session(|session| self.put_with(session, &record, want, &read))
    }

    /// Runs `write` in a session; runs it again if the pool was full and finished operations had blocks to give
    /// back.
    #[inline(always)]
    pub(super) fn with_session<T>(
        &self,
        mut write: impl FnMut(&mut Session<'_, M>) -> Result<T, IndexError>,
    ) -> Result<T, IndexError> {
        match write(&mut self.mwcas.session()?) {
            Err(IndexError::Pool(error)) if error.is_full() => {}
            result => return result,
        }
        self.mwcas.quiesce()?;
        self.pool.trim()?;
        write(&mut self.mwcas.session()?)
    }

    /// Makes a write if it is wanted; returns the result of `read` for the old record, if there was one.
    #[inline(always)]
    pub(super) fn put_with<T>(
        &self,
        session: &mut Session<'_, M>,
        record: &Incoming<'_, K, V>,
        want: Want,
        read: &impl Fn(&Found<'_, K, V>) -> Result<T, PmError>,
    ) -> Result<Option<T>, IndexError> {
        let target = Target::Key(RawRef::of(record.probe));
        loop {
            let leaf = self.leaf(self.leaf_of(&target)?)?;
            match self.put_in(session, &leaf, record, want, read)? {
                Put::Done(old) => {
                    if old.is_none() && want != Want::Update {
                        self.count.add(1);
                    }
                    return Ok(old);
                }
                Put::NoRoom => self.restructure_at(session, &target, leaf.ptr)?,
            }
        }
    }

    /// Writes to a leaf. Every attempt sees all of the leaf at one status, and takes effect at that status or
    /// not at all; so there are never two records of one key, and no thread waits for the reservations of
    /// others.
    #[inline(always)]
    fn put_in<T>(
        &self,
        session: &mut Session<'_, M>,
        leaf: &Leaf<'_, K, V, LEAF, INNER>,
        record: &Incoming<'_, K, V>,
        want: Want,
        read: &impl Fn(&Found<'_, K, V>) -> Result<T, PmError>,
    ) -> Result<Put<T>, PmError> {
        let Incoming { probe, datum, form } = *record;
        let mut reserved: Option<Reservation> = None;
        loop {
            let status = leaf.status(&self.mwcas)?;
            if status.is_frozen() {
                return Ok(Put::NoRoom);
            }
            if want != Want::Update || form.wide {
                leaf.prefetch_room(self.pm(), status);
            }
            let found = leaf.find(&self.mwcas, status, probe)?;
            let old = found.as_ref().map(read).transpose()?;
            if want == if old.is_some() { Want::Insert } else { Want::Update } {
                return Ok(Put::Done(old));
            }
            let mut op;
            if let Some(cell) = found.as_ref().and_then(|found| found.record.value_cell())
                && !form.wide
            {
                let old = self.mwcas.read(cell)?;
                op = session.descriptor();
                let next = status.next().into_word();
                op.add_word(leaf.status_cell(), status.into_word(), next).map_err(pool_error)?;
                op.add_covered_word(cell, old, datum.words()[0]).map_err(pool_error)?;
            } else if let Some(cell) = found.as_ref().and_then(|found| found.record.block_cell())
                && form.out
                && V::SHAPE.is_bytes()
            {
                let old = self.mwcas.read(cell)?;
                op = session.descriptor();
                let new = self.add_block(&mut op, record)?;
                op.add_covered_word(cell, old, new).map_err(pool_error)?;
                op.free_on_success(PPtr::<u64>::new(old)).map_err(pool_error)?;
                let next = status.next().into_word();
                op.add_word(leaf.status_cell(), status.into_word(), next).map_err(pool_error)?;
            } else {
                let room = if let Some(room) = reserved {
                    room
                } else {
                    let room = self.reserve(leaf, status, form.words)?;
                    let Some(room) = room else { return Ok(Put::NoRoom) };
                    if !form.out {
                        let words = &leaf.words[room.at..room.at + form.words];
                        Record::fill(self.pm(), words, form, (probe, datum));
                    }
                    *reserved.insert(room)
                };
                op = session.descriptor();
                let words = &leaf.words[room.at..room.at + form.words];
                if form.out {
                    let block = self.add_block(&mut op, record)?;
                    Record::put_slot(self.pm(), words, (probe, datum), block);
                }
                let place = Place { at: room.at, ..form };
                let prev = found.as_ref().map_or(NOTHING, |found| found.number);
                let entry = Entry::visible(place, probe.fingerprint(), prev).word();
                let less = found.as_ref().map_or((0, 0), |found| (1, found.record.place.words));
                let next = status.changed(room.entry + 1, (1, form.words), less);
                op.add_word(leaf.status_cell(), status.into_word(), next.into_word())
                    .map_err(pool_error)?;
                let cell = leaf.entry_cell(room.entry);
                // durable before: P2
                op.show(cell, room.word, entry, words).map_err(pool_error)?;
                self.add_free_of(&mut op, found.as_ref())?;
            }
            if op.execute().map_err(pool_error)? {
                return Ok(Put::Done(old)); // LIN and DUR within `execute`
            }
        }
    }

    /// Adds the block of a record out of line to an operation.
    pub(super) fn add_block(
        &self,
        op: &mut Descriptor<'_, '_, M>,
        record: &Incoming<'_, K, V>,
    ) -> Result<u64, PmError> {
        let Incoming { probe, datum, .. } = *record;
        let mut failed = None;
        let size = Slot::<K, V>::block_size(probe, datum);
        let block = op.allocate_extra_bytes(size, 8, |words| {
            let block = self.pool.pptr(&words[0]);
            match Slot::<K, V>::fill_block(&self.pool, block, probe, datum) {
                Ok(words) => words.len(),
                Err(error) => {
                    failed = Some(error);
                    0
                }
            }
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(block.map_err(pool_error)?.offset()),
        }
    }

    /// Adds the freeing of a replaced or removed record's block to an operation.
    fn add_free_of(
        &self,
        op: &mut Descriptor<'_, '_, M>,
        found: Option<&Found<'_, K, V>>,
    ) -> Result<(), PmError> {
        if let Some(cell) = found.and_then(|found| found.record.block_cell()) {
            let block = PPtr::<u64>::new(self.mwcas.read(cell)?);
            op.free_on_success(block).map_err(pool_error)?;
        }
        Ok(())
    }

    /// Removes a record and returns its value.
    ///
    /// # Cost
    /// 3 lines, 1 fence. A leaf with few records left may be merged with a neighbour.
    pub fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.remove_inner(key, |_| true).noted(&self.pool)
    }

    /// Removes a record if its value has the encoding of `value`; returns the removed value.
    ///
    /// # Cost
    /// That of [`remove`](Self::remove).
    pub fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        self.remove_inner(key, |stored| same_encoding::<V>(stored.borrowed(), value.borrowed()))
            .noted(&self.pool)
    }

    /// Removes a record if `wanted` accepts its value at the leaf's status.
    #[inline(always)]
    fn remove_inner(
        &self,
        key: &K::Ref,
        wanted: impl Fn(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        let probe = Probe::new(key)?;
        self.pool.check_writable()?;
        let _busy = self.count.begin();
        let mut session = self.mwcas.session()?;
        let target = Target::Key(RawRef::of(&probe));
        loop {
            let leaf = self.leaf(self.leaf_of(&target)?)?;
            let status = leaf.status(&self.mwcas)?;
            if status.is_frozen() {
                match self.restructure_at(&mut session, &target, leaf.ptr) {
                    // The leaf is thawed, and removing needs no room.
                    Err(IndexError::Pool(error)) if error.is_full() => {}
                    restructured => restructured?,
                }
                continue;
            }
            let Some(found) = leaf.find(&self.mwcas, status, &probe)? else { return Ok(None) };
            let value = found.record.value(&self.mwcas)?;
            if !wanted(&value) {
                // The value was read at one moment if the leaf still has the same status.
                if leaf.status(&self.mwcas)? == status {
                    return Ok(None);
                }
                continue;
            }
            let next = status.changed(0, (0, 0), (1, found.record.place.words));
            let mut op = session.descriptor();
            op.add_word(leaf.status_cell(), status.into_word(), next.into_word())
                .map_err(pool_error)?;
            let (cell, new) = match found.number.checked_sub(MAX_LEAF) {
                None => (leaf.dead_cell(), found.word | 1 << found.number),
                Some(entry) => (leaf.entry_cell(entry), Entry::of(found.word).dead().word()),
            };
            op.add_covered_word(cell, found.word, new).map_err(pool_error)?;
            self.add_free_of(&mut op, Some(&found))?;
            if !op.execute().map_err(pool_error)? {
                continue;
            }
            self.count.add(u64::MAX);
            if Self::is_merge_due(next) {
                // The record is removed, durably. Nodes that cannot be merged now stay.
                let merge = |session: &mut Session<'_, M>| {
                    let path = self.path(self.anchor()?, &target)?;
                    self.merge(session, &path, RawRef::of(&probe))
                };
                let merged = merge(&mut session);
                drop(session);
                if merged.is_err_and(|error| error.is_full()) {
                    let _ = self.with_session(|session| Ok(merge(session)?));
                }
            }
            return Ok(Some(value));
        }
    }
}
