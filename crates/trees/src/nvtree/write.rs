//! Single writes: add, replace, put, remove.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Medium, PmError, PmU64};
use pmindex_index::{IndexError, Key, Missing, Noted, Occupied, Value, same_encoding};
use pmindex_record::{EncodedValue, Probe, Slot};

use super::access::At;
use super::inner::{Entry, Route};
use super::layout::{Geometry, Hint};
use super::leaf::{Incoming, Leaf};
use super::tree::NvTree;
use crate::merging::is_time_to_look;

/// The locked leaf of a key, and the slot of the key.
pub(super) struct Held<'t, K, V, const LEAF: usize> {
    pub(super) leaf: Leaf<'t, K, V, LEAF>,
    pub(super) hint: Hint,
    pub(super) slot: Option<usize>,
    /// Where the leaf is named.
    pub(super) entry: Entry,
    pub(super) guard: VersionGuard<'t>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    NvTree<K, V, M, LEAF, INNER>
{
    /// Finds the key's leaf and locks it, if `wanted` accepts whether the key is present; else
    /// returns `None`, having written nothing.
    #[inline(always)]
    pub(super) fn hold(
        &self,
        probe: &Probe<'_, K>,
        wanted: impl Fn(bool) -> bool,
    ) -> Result<Option<Held<'_, K, V, LEAF>>, IndexError> {
        self.pool.check_writable()?;
        loop {
            let at = self.locate_to_write(&Route::to(probe));
            match self.hold_at(&at, probe, &wanted) {
                Some(held) => return held,
                None => self.pm().spin(),
            }
        }
    }

    /// As [`hold`](Self::hold); `None` if the leaf has changed since it was located.
    #[inline(always)]
    fn hold_at<'t>(
        &'t self,
        at: &At<'t>,
        probe: &Probe<'_, K>,
        wanted: &impl Fn(bool) -> bool,
    ) -> Option<Result<Option<Held<'t, K, V, LEAF>>, IndexError>> {
        let pm = self.pm();
        let found = self.leaf(at.leaf).and_then(|leaf| {
            let hint = leaf.hint(pm);
            Ok((leaf, hint, leaf.find(&self.pool, hint, probe)?))
        });
        let (leaf, hint, slot) = match found {
            Ok(found) => found,
            Err(error) => return at.validate(pm).then_some(Err(error.into())),
        };
        if !wanted(slot.is_some()) {
            return at.validate(pm).then_some(Ok(None));
        }
        // All reads are still valid, and stay so: the version becomes the lock.
        let guard = at.lock.try_upgrade(pm, at.version)?;
        if leaf.is_behind(pm, hint) {
            return leaf.heal(&self.pool).err().map(|error| Err(error.into()));
        }
        Some(Ok(Some(Held { leaf, hint, slot, entry: at.entry, guard })))
    }

    /// Appends the record to the leaf that is held, or makes room in it and returns `false`; a new
    /// record may go in with that.
    #[inline(always)]
    fn append_held(
        &self,
        held: Held<'_, K, V, LEAF>,
        record: &Incoming<'_, K, V>,
    ) -> Result<bool, IndexError> {
        let Held { leaf, hint, slot, entry, guard } = held;
        if hint.count() >= LEAF {
            self.prefetch_leaf(Some(leaf.offset()));
            drop(guard);
            if slot.is_none() {
                return self.make_room_for(record);
            }
            self.make_room(record.probe)?;
            return Ok(false);
        }
        leaf.append(&self.pool, hint, slot, record)?;
        if slot.is_none() {
            self.count(leaf.offset(), 1);
        }
        self.note_appended(&entry, hint.count() + 1);
        drop(guard);
        Ok(true)
    }

    /// Notes where the leaf, which has `count` taken slots now and is locked, is appended to.
    #[inline(always)]
    pub(super) fn note_appended(&self, entry: &Entry, count: usize) {
        if count < LEAF {
            self.inner.note_segment(entry, count / Geometry::<K, V, LEAF>::PER_SEGMENT);
        }
    }

    /// Adds a record; returns [`Occupied`] and changes nothing if the key exists.
    ///
    /// # Cost
    /// 1 line, 1 fence; byte strings: 1 fence and the lines of block and tickets besides. When the
    /// leaf is full, its split or compaction.
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
        let (probe, datum) = (Probe::new(key)?, EncodedValue::new(value)?);
        let record = Incoming { probe: &probe, datum: &datum };
        while let Some(held) = self.hold(&probe, |present| !present)? {
            if self.append_held(held, &record)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Replaces a value; returns [`Missing`] and changes nothing if the key is absent.
    ///
    /// # Cost
    /// As [`try_insert`](Self::try_insert).
    #[inline]
    pub fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        self.update_inner(key, value).noted(&self.pool).map(Missing::unless)
    }

    #[inline(always)]
    fn update_inner(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let (probe, datum) = (Probe::new(key)?, EncodedValue::new(value)?);
        let record = Incoming { probe: &probe, datum: &datum };
        while let Some(held) = self.hold(&probe, |present| present)? {
            if self.append_held(held, &record)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds or replaces; returns the value that was there.
    ///
    /// # Cost
    /// That of [`put`](Self::put), and reading the old value.
    #[inline]
    pub fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        let read = |slot: &[PmU64]| Slot::<K, V>::value(&self.pool, slot);
        self.put_inner(key, value, read).noted(&self.pool)
    }

    /// Adds or replaces, without reading the old value; `true` if the key is new.
    ///
    /// # Cost
    /// As [`try_insert`](Self::try_insert).
    pub fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        self.put_inner(key, value, |_| Ok(())).noted(&self.pool).map(|old| old.is_none())
    }

    /// Adds or replaces; what `read` made of the slot that was there, under its leaf's lock.
    #[inline(always)]
    fn put_inner<T>(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        read: impl Fn(&[PmU64]) -> Result<T, PmError>,
    ) -> Result<Option<T>, IndexError> {
        let (probe, datum) = (Probe::new(key)?, EncodedValue::new(value)?);
        let record = Incoming { probe: &probe, datum: &datum };
        loop {
            let Some(held) = self.hold(&probe, |_| true)? else { continue };
            let old = held.slot.map(|slot| read(held.leaf.slot(slot))).transpose()?;
            if self.append_held(held, &record)? {
                return Ok(old);
            }
        }
    }

    /// Removes a record and returns its value. Never takes room.
    ///
    /// # Cost
    /// 1 line, 1 fence; byte strings: 1 fence and the line of the ticket besides. In a full leaf
    /// sometimes 1 line and 1 fence more. Sometimes leaves
    /// merge: the lines of a leaf, and 2 fences.
    #[inline]
    pub fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.remove_inner(key, |_| true).noted(&self.pool)
    }

    /// Removes a record if its value is encoded as `value` is; returns what was removed.
    ///
    /// # Cost
    /// That of [`remove`](Self::remove).
    pub fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        self.remove_inner(key, |stored| same_encoding::<V>(stored.borrowed(), value.borrowed()))
            .noted(&self.pool)
    }

    /// Removes a record if `wanted` accepts its value under its leaf's lock.
    #[inline(always)]
    fn remove_inner(
        &self,
        key: &K::Ref,
        wanted: impl Fn(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        let probe = Probe::new(key)?;
        let Some(held) = self.hold(&probe, |present| present)? else { return Ok(None) };
        let Held { leaf, hint, slot, entry, guard } = held;
        let Some(slot) = slot else { return Ok(None) };
        let value = Slot::<K, V>::value(&self.pool, leaf.slot(slot))?;
        if !wanted(&value) {
            return Ok(None);
        }
        leaf.remove(&self.pool, hint, slot)?;
        self.count(leaf.offset(), u64::MAX);
        self.note_appended(&entry, hint.count() + 1);
        drop(guard);
        let left = hint.len() - 1;
        if is_time_to_look(LEAF, Self::MERGED, left) {
            // The record is removed, durably. A leaf that cannot be freed now (the pool is full) stays until
            // the next removal or, if it is empty, until the index is opened.
            self.pm().keep_stores(); // the hint, whatever becomes of that
            let _ = self.merge_around(&Route::to(&probe), left);
        }
        Ok(Some(value))
    }
}
