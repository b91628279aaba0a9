//! Typed maps.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

use pmindex_buffer::{Buffer, BufferError, Tx};
use pmindex_core::{Mapped, Medium, PmError};
use pmindex_index::{Key, KeyRange, Missing, Occupied, Storable, Value, decoded, encoded};

use crate::error::PagedError;
use crate::meta;
use crate::node::{Packed, Record};
use crate::room::Room;
use crate::tree::Tree;

/// A map in a buffer, ordered by its keys. Names and semantics follow [`Index`](pmindex_index::Index).
///
/// Single operations are transactions of their own: durable when they return, and linearizable. Operations
/// whose names end in `_in` are parts of a transaction, which may include parts of several maps of one
/// buffer.
#[derive(Debug)]
pub struct PagedMap<K: Key, V: Value, M: Medium = Mapped> {
    buffer: Arc<Buffer<M>>,
    pub(crate) tree: Tree,
    types: PhantomData<fn() -> (K, V)>,
}

pub(crate) fn packed<T: Storable>(value: &T::Ref) -> Packed {
    Packed::new(&encoded::<T>(value))
}

pub(crate) fn packed_record<K: Storable, V: Storable>(key: &K::Ref, value: &V::Ref) -> Record {
    Record { key: packed::<K>(key), value: packed::<V>(value) }
}

pub(crate) fn unpacked<T: Storable>(value: &Packed) -> Result<T, PagedError> {
    let damaged = PagedError::Corrupt { page: 0, what: "a record is no encoding of its type" };
    decoded::<T>(&value.bytes()).ok_or(damaged)
}

pub(crate) fn unpacked_record<K: Storable, V: Storable>(
    record: &Record,
) -> Result<(K, V), PagedError> {
    Ok((unpacked(&record.key)?, unpacked(&record.value)?))
}

/// Returns the word by which a map records its types.
fn types_of<K: Key, V: Value>() -> u64 {
    let name = format!("{} -> {}", K::type_name(), V::type_name());
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The number of times a transaction is run again because other transactions held all frames.
const CROWDED: u32 = 100;

/// Runs a transaction until it does not conflict; makes a checkpoint if the log is full.
fn transact<M: Medium, R>(
    buffer: &Buffer<M>,
    mut body: impl FnMut(&mut Tx<'_, M>) -> Result<R, PagedError>,
) -> Result<R, PagedError> {
    let (mut checkpoints, mut crowded) = (0, 0);
    loop {
        let mut tx = buffer.begin();
        match body(&mut tx).and_then(|found| Ok(tx.commit().map(|_| found)?)) {
            Err(PagedError::Buffer(BufferError::Conflict)) => buffer.pool().pm().spin(),
            Err(PagedError::Buffer(BufferError::NoFrames)) if crowded < CROWDED => crowded += 1,
            Err(PagedError::Buffer(BufferError::Pool(PmError::Full { .. }))) if checkpoints < 3 => {
                checkpoints += 1;
                buffer.checkpoint()?;
            }
            other => return other,
        }
    }
}

impl<K: Key, V: Value, M: Medium> PagedMap<K, V, M> {
    /// Opens the map of this name, or creates it.
    ///
    /// # Errors
    /// [`PagedError::WrongType`], [`PagedError::BadName`], [`PagedError::Full`], and those of the buffer.
    pub fn open(buffer: &Arc<Buffer<M>>, name: &str) -> Result<Self, PagedError> {
        let root = transact(buffer, |tx| {
            meta::find_or_make(tx, buffer.pages(), name, types_of::<K, V>())
        })?;
        Ok(Self { buffer: Arc::clone(buffer), tree: Tree { root }, types: PhantomData })
    }

    /// Runs a transaction, again if it conflicts with another one, and commits it.
    ///
    /// # Errors
    /// Those of `body`, and of [`Tx::commit`]; then nothing is changed.
    pub fn transact<R>(
        &self,
        body: impl FnMut(&mut Tx<'_, M>) -> Result<R, PagedError>,
    ) -> Result<R, PagedError> {
        transact(&self.buffer, body)
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// Those of [`Buffer::read`].
    ///
    /// # Cost
    /// A read of a page for each level; no lock and no fence, if these have frames.
    pub fn get(&self, key: &K::Ref) -> Result<Option<V>, PagedError> {
        let value = self.tree.get(&self.buffer, &packed::<K>(key))?;
        value.as_ref().map(unpacked::<V>).transpose()
    }

    /// Returns `true` if `key` is present.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn contains_key(&self, key: &K::Ref) -> Result<bool, PagedError> {
        Ok(self.tree.get(&self.buffer, &packed::<K>(key))?.is_some())
    }

    /// Adds or replaces a record; returns the old value.
    ///
    /// # Errors
    /// [`PagedError::TooLong`], [`PagedError::Full`], and those of the buffer; then nothing is changed.
    ///
    /// # Cost
    /// One fence, and the lines of the record in the log, which includes a split.
    pub fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, PagedError> {
        self.transact(|tx| {
            let old = self.get_in(tx, key)?;
            self.put_in(tx, key, value)?;
            Ok(old)
        })
    }

    /// Adds or replaces a record, without reading the old value; returns `true` if the key is new.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, PagedError> {
        self.transact(|tx| self.put_in(tx, key, value))
    }

    /// Adds a record; returns [`Occupied`], and changes nothing, if the key exists.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub fn try_insert(
        &self,
        key: &K::Ref,
        value: &V::Ref,
    ) -> Result<Result<(), Occupied>, PagedError> {
        self.transact(|tx| {
            if self.tree.get_in(tx, &packed::<K>(key))?.is_some() {
                return Ok(Err(Occupied));
            }
            self.put_in(tx, key, value).map(|_| Ok(()))
        })
    }

    /// Replaces a value; returns [`Missing`], and changes nothing, if the key does not exist.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, PagedError> {
        self.transact(|tx| {
            if self.tree.get_in(tx, &packed::<K>(key))?.is_none() {
                return Ok(Err(Missing));
            }
            self.put_in(tx, key, value).map(|_| Ok(()))
        })
    }

    /// Removes a record and returns its value.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub fn remove(&self, key: &K::Ref) -> Result<Option<V>, PagedError> {
        self.transact(|tx| self.remove_in(tx, key))
    }

    /// Does what [`get`](Self::get) does, in a transaction.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn get_in(&self, tx: &mut Tx<'_, M>, key: &K::Ref) -> Result<Option<V>, PagedError> {
        self.get_packed_in(tx, &packed::<K>(key))
    }

    /// Returns `true` if a key that is encoded already is present, in a transaction.
    pub(crate) fn has_packed_in(
        &self,
        tx: &mut Tx<'_, M>,
        key: &Packed,
    ) -> Result<bool, PagedError> {
        Ok(self.tree.get_in(tx, key)?.is_some())
    }

    /// Does what [`put`](Self::put) does, in a transaction.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub fn put_in(
        &self,
        tx: &mut Tx<'_, M>,
        key: &K::Ref,
        value: &V::Ref,
    ) -> Result<bool, PagedError> {
        self.put_within(tx, &Room::all(self.buffer.pages()), &packed_record::<K, V>(key, value))
    }

    /// Does the same for a record that is encoded already, taking only pages of `room`.
    pub(crate) fn put_within(
        &self,
        tx: &mut Tx<'_, M>,
        room: &Room<'_>,
        record: &Record,
    ) -> Result<bool, PagedError> {
        self.tree.put_in(tx, (&self.buffer, room), record)
    }

    /// Does what [`get_in`](Self::get_in) does, for a key that is encoded already.
    pub(crate) fn get_packed_in(
        &self,
        tx: &mut Tx<'_, M>,
        key: &Packed,
    ) -> Result<Option<V>, PagedError> {
        let value = self.tree.get_in(tx, key)?;
        value.as_ref().map(unpacked::<V>).transpose()
    }

    /// Does what [`remove`](Self::remove) does, in a transaction.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub fn remove_in(&self, tx: &mut Tx<'_, M>, key: &K::Ref) -> Result<Option<V>, PagedError> {
        let value = self.tree.remove_in(tx, &packed::<K>(key))?;
        value.as_ref().map(unpacked::<V>).transpose()
    }

    /// Returns the records with keys in `range`, in order. The records of a page are read at one moment;
    /// each record was present and durable at some moment of the scan.
    #[expect(clippy::needless_pass_by_value, reason = "as a `BTreeMap` takes it")]
    pub fn range(&self, range: impl KeyRange<K>) -> Range<'_, K, V, M> {
        let (lower, upper) = range.bounds();
        let after = |bound: Bound<&K::Ref>| match bound {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(key) => Bound::Included(packed::<K>(key)),
            Bound::Excluded(key) => Bound::Excluded(packed::<K>(key)),
        };
        let (from, skip) = match after(lower) {
            Bound::Unbounded => (Packed::default(), false),
            Bound::Included(key) => (key, false),
            Bound::Excluded(key) => (key, true),
        };
        let skip = skip.then(|| from.clone());
        Range { map: self, next: Some(from), skip, upper: after(upper), batch: VecDeque::new() }
    }

    /// Returns the record with the least key. If the least records were removed, this may read all leaves. While other
    /// threads change them it reads them again; after some times their commits wait for it.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn first_key_value(&self) -> Result<Option<(K, V)>, PagedError> {
        self.tree.first(&self.buffer)?.as_ref().map(unpacked_record).transpose()
    }

    /// Returns the record with the greatest key, like [`first_key_value`](Self::first_key_value).
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn last_key_value(&self) -> Result<Option<(K, V)>, PagedError> {
        self.tree.last(&self.buffer)?.as_ref().map(unpacked_record).transpose()
    }

    /// Returns the number of records. Other threads may write meanwhile: then each leaf is counted at a moment of its
    /// own.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    ///
    /// # Cost
    /// Reads all leaves of the map.
    pub fn len(&self) -> Result<u64, PagedError> {
        self.tree.count(&self.buffer)
    }

    /// Returns `true` if the map is empty.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn is_empty(&self) -> Result<bool, PagedError> {
        Ok(self.first_key_value()?.is_none())
    }

    /// Verifies every page of the map, and returns the number of records. No thread may write meanwhile.
    ///
    /// # Errors
    /// [`PagedError::Corrupt`], and those of [`Buffer::read`].
    pub fn check(&self) -> Result<u64, PagedError> {
        Ok(self.tree.check(&self.buffer)?.records)
    }

    /// Returns the buffer.
    #[must_use]
    pub fn buffer(&self) -> &Arc<Buffer<M>> {
        &self.buffer
    }
}

/// An iterator over records in key order. See [`PagedMap::range`].
#[derive(Debug)]
pub struct Range<'m, K: Key, V: Value, M: Medium> {
    map: &'m PagedMap<K, V, M>,
    /// The first key of the next leaf to read.
    next: Option<Packed>,
    /// A key to leave out.
    skip: Option<Packed>,
    upper: Bound<Packed>,
    batch: VecDeque<Record>,
}

impl<K: Key, V: Value, M: Medium> Range<'_, K, V, M> {
    fn is_beyond(&self, key: &Packed) -> bool {
        let than = |bound: &Packed| (&key.words, key.len).cmp(&(&bound.words, bound.len));
        match &self.upper {
            Bound::Unbounded => false,
            Bound::Included(bound) => than(bound).is_gt(),
            Bound::Excluded(bound) => than(bound).is_ge(),
        }
    }

    fn advance(&mut self) -> Result<Option<(K, V)>, PagedError> {
        loop {
            if let Some(record) = self.batch.pop_front() {
                if self.skip.as_ref() == Some(&record.key) {
                    continue;
                }
                if self.is_beyond(&record.key) {
                    self.end();
                    return Ok(None);
                }
                return unpacked_record(&record).map(Some);
            }
            let Some(from) = self.next.take() else { return Ok(None) };
            let (records, next) = self.map.tree.batch(&mut &*self.map.buffer, &from, usize::MAX)?;
            self.batch = records.into();
            self.next = next.filter(|next| !self.is_beyond(next) || self.is_at(next));
        }
    }

    /// Returns `true` if a fence equals the upper bound: the record with that key may be in the range.
    fn is_at(&self, key: &Packed) -> bool {
        matches!(&self.upper, Bound::Included(bound) if bound == key)
    }

    fn end(&mut self) {
        self.batch.clear();
        self.next = None;
    }
}

impl<K: Key, V: Value, M: Medium> Iterator for Range<'_, K, V, M> {
    type Item = Result<(K, V), PagedError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.advance().transpose();
        if matches!(item, Some(Err(_))) {
            self.end();
        }
        item
    }
}
