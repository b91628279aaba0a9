//! Single writes: add, replace, put, remove.
//!
//! The public operations take `&mut self`. What they do is written for `&self`, so that
//! [`SharedWbTree`](super::SharedWbTree), whose lock keeps writers apart, can read while another
//! thread writes: every word of a pool is atomic, and what such a reader finds counts only if nothing
//! was written meanwhile.

use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Medium, PmError, PmU64};
use pmindex_index::{IndexError, Key, Missing, Noted, Occupied, Value, same_encoding};
use pmindex_record::{EncodedValue, Probe, Slot};

use super::leaf::{Found, Incoming};
use super::separator::Route;
use super::tree::{STRUCTURE, WbTree};
use crate::merging::is_time_to_look;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    WbTree<K, V, M, LEAF, INNER>
{
    /// Adds a record; returns [`Occupied`] and changes nothing if the key exists.
    ///
    /// # Cost
    /// 3 lines, 1 fence for a record that lies in one line; else 2 fences. Byte strings: their block's
    /// lines and tickets besides. Sometimes a split.
    #[inline]
    pub fn try_insert(
        &mut self,
        key: &K::Ref,
        value: &V::Ref,
    ) -> Result<Result<(), Occupied>, IndexError> {
        self.do_try_insert(key, value).noted(&self.pool).map(Occupied::unless)
    }

    /// Replaces a value; returns [`Missing`] and changes nothing if the key is absent.
    ///
    /// # Cost
    /// 8-byte values: 1 line, 1 fence. Byte strings: 2 fences, the lines of the new block and 1,
    /// tickets. Others: 1 fence, 1 line and those of the value of the update before, mostly 1.
    #[inline]
    pub fn update(
        &mut self,
        key: &K::Ref,
        value: &V::Ref,
    ) -> Result<Result<(), Missing>, IndexError> {
        self.do_update(key, value).noted(&self.pool).map(Missing::unless)
    }

    /// Adds or replaces; returns the value that was there.
    ///
    /// # Cost
    /// That of [`put`](Self::put), and reading the old value.
    #[inline]
    pub fn insert(&mut self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        self.do_insert(key, value).noted(&self.pool)
    }

    /// Adds or replaces, without reading the old value; `true` if the key is new.
    ///
    /// # Cost
    /// That of the insert or update it turns out to be.
    #[inline]
    pub fn put(&mut self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        self.do_put(key, value, |_| Ok(())).noted(&self.pool).map(|old| old.is_none())
    }

    /// Removes a record and returns its value.
    ///
    /// # Cost
    /// 1 line, 1 fence; byte strings: the tickets' lines and 1 fence besides. A leaf that empties is
    /// given back. Sometimes leaves merge: the lines of the records that move, 2 of the parent and 3
    /// besides, and 4 fences.
    #[inline]
    pub fn remove(&mut self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.do_remove(key, |_| true).noted(&self.pool)
    }

    /// Removes a record if its value is encoded as `value` is; returns what was removed.
    ///
    /// # Cost
    /// That of [`remove`](Self::remove).
    pub fn remove_exact(&mut self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        self.do_remove(key, |stored| same_encoding::<V>(stored.borrowed(), value.borrowed()))
            .noted(&self.pool)
    }

    /// Begins a write: refuses if the pool does, and finishes what a panic left unfinished.
    #[inline(always)]
    pub(super) fn begin(&self) -> Result<(), PmError> {
        self.pool.check_writable()?;
        if self.unfinished.load(Relaxed) == 0 { Ok(()) } else { self.finish_write() }
    }

    /// Returns `true` if a panic interrupted a write.
    #[inline(always)]
    pub(super) fn is_unfinished(&self) -> bool {
        self.unfinished.load(Relaxed) != 0
    }

    /// Finishes a write that a panic or a failed fence interrupted: makes a leaf durable as it is, and finishes
    /// a structural change as recovery would.
    #[cold]
    #[inline(never)]
    pub(super) fn finish_write(&self) -> Result<(), PmError> {
        // In a pool that lost its disk: in memory only, so that it can be read.
        let _recovery = self.pool.recovery();
        let unfinished = self.unfinished.load(Relaxed);
        self.redo_after_panic()?;
        if unfinished == STRUCTURE {
            Self::finish_change(&self.pool, self.root()?)?;
            self.discard_loading()?;
        } else if unfinished != 0 {
            // The words of a free slot must be durable: `Pending` relies on it.
            let flushed = self.pm().flush_words(self.leaf(unfinished)?.words());
            self.pm().fence(flushed)?;
        }
        self.count.store(super::tree::UNKNOWN, Relaxed);
        self.unfinished.store(0, Relaxed);
        Ok(())
    }

    /// Notes the leaf, or the structure, that stays unfinished if the write is interrupted; 0 at its end.
    #[inline(always)]
    pub(super) fn put_unfinished(&self, what: u64) {
        self.unfinished.store(what, Relaxed);
    }

    /// Returns the leaf of a key and what it holds of it.
    #[inline(always)]
    pub(super) fn seek(
        &self,
        probe: &Probe<'_, K>,
        arriving: impl FnOnce(u64),
    ) -> Result<Found<'_, K, V, LEAF>, PmError> {
        let leaf = self.descend(&Route::to(probe), arriving)?;
        let state = leaf.state(self.pm());
        let slot = leaf.find(&self.pool, state, probe)?;
        if !state.is_valid(LEAF) {
            return Err(leaf.corrupt("a leaf's state"));
        }
        Ok(Found { leaf, state, slot })
    }

    #[inline(always)]
    fn insert_into(
        &self,
        found: &Found<'_, K, V, LEAF>,
        record: Incoming<'_, K, V>,
    ) -> Result<bool, IndexError> {
        self.put_unfinished(found.leaf.offset());
        let done = found.insert(&self.pool, record)?;
        self.put_unfinished(0);
        if done {
            self.count(1);
        } else {
            self.make_room(record.probe)?;
        }
        Ok(done)
    }

    #[inline(always)]
    fn update_in(
        &self,
        found: &Found<'_, K, V, LEAF>,
        slot: usize,
        record: Incoming<'_, K, V>,
    ) -> Result<(), IndexError> {
        self.put_unfinished(found.leaf.offset());
        if Slot::<K, V>::ONE_WORD_UPDATE {
            found.update(&self.pool, slot, record)?;
        } else {
            self.update_in_place(&found.leaf, slot, record.datum)?;
        }
        self.put_unfinished(0);
        Ok(())
    }

    /// Returns the leaf of a key that is to be inserted.
    #[inline(always)]
    pub(super) fn seek_to_insert(
        &self,
        probe: &Probe<'_, K>,
    ) -> Result<Found<'_, K, V, LEAF>, PmError> {
        self.seek(probe, |leaf| self.prefetch_leaf(leaf))
    }

    /// Returns the leaf of a key whose record is to be changed.
    #[inline(always)]
    pub(super) fn seek_to_change(
        &self,
        probe: &Probe<'_, K>,
    ) -> Result<Found<'_, K, V, LEAF>, PmError> {
        self.seek(probe, |leaf| self.prefetch_slot(leaf, probe))
    }

    /// Inserts where [`seek_to_insert`](Self::seek_to_insert) led; `None` if that made room only.
    #[inline(always)]
    pub(super) fn insert_found(
        &self,
        found: &Found<'_, K, V, LEAF>,
        record: Incoming<'_, K, V>,
    ) -> Result<Option<bool>, IndexError> {
        if found.slot.is_some() {
            return Ok(Some(false));
        }
        Ok(self.insert_into(found, record)?.then_some(true))
    }

    /// Updates where [`seek_to_change`](Self::seek_to_change) led.
    #[inline(always)]
    pub(super) fn update_found(
        &self,
        found: &Found<'_, K, V, LEAF>,
        record: Incoming<'_, K, V>,
    ) -> Result<bool, IndexError> {
        let Some(slot) = found.slot else { return Ok(false) };
        self.update_in(found, slot, record)?;
        Ok(true)
    }

    /// Removes the record that [`seek_to_change`](Self::seek_to_change) found, if `wanted` accepts its value.
    #[inline(always)]
    pub(super) fn remove_found(
        &self,
        found: &Found<'_, K, V, LEAF>,
        probe: &Probe<'_, K>,
        wanted: impl Fn(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        let Some(slot) = found.slot else { return Ok(None) };
        let value = Slot::<K, V>::value(&self.pool, found.leaf.slot(slot))?;
        if !wanted(&value) {
            return Ok(None);
        }
        self.put_unfinished(found.leaf.offset());
        self.redo_leaves_slot(&found.leaf, slot)?;
        found.remove(&self.pool, slot)?;
        self.put_unfinished(0);
        self.count(u64::MAX);
        if found.may_be_last(self.pm(), slot)
            || is_time_to_look(LEAF, Self::MERGED, found.len_without(slot))
        {
            // The record is gone, durably. A leaf that cannot be given back now stays until the next
            // look or, empty, until it empties again.
            let _ = self.give_back(&Route::to(probe));
        }
        Ok(Some(value))
    }

    #[inline(always)]
    pub(super) fn do_try_insert(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let (probe, datum) = (Probe::new(key)?, EncodedValue::new(value)?);
        let record = Incoming { probe: &probe, datum: &datum };
        self.begin()?;
        loop {
            if let Some(new) = self.insert_found(&self.seek_to_insert(&probe)?, record)? {
                return Ok(new);
            }
        }
    }

    #[inline(always)]
    pub(super) fn do_update(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let (probe, datum) = (Probe::new(key)?, EncodedValue::new(value)?);
        let record = Incoming { probe: &probe, datum: &datum };
        self.begin()?;
        self.update_found(&self.seek_to_change(&probe)?, record)
    }

    #[inline(always)]
    pub(super) fn do_insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        self.do_put(key, value, |slot| Slot::<K, V>::value(&self.pool, slot))
    }

    /// Adds or replaces; what `read` made of the slot that was there.
    #[inline(always)]
    pub(super) fn do_put<T>(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        read: impl Fn(&[PmU64]) -> Result<T, PmError>,
    ) -> Result<Option<T>, IndexError> {
        let (probe, datum) = (Probe::new(key)?, EncodedValue::new(value)?);
        let record = Incoming { probe: &probe, datum: &datum };
        self.begin()?;
        loop {
            let found = self.seek_to_insert(&probe)?;
            if let Some(slot) = found.slot {
                let old = read(found.leaf.slot(slot))?;
                self.update_in(&found, slot, record)?;
                return Ok(Some(old));
            }
            if self.insert_into(&found, record)? {
                return Ok(None);
            }
        }
    }

    #[inline(always)]
    pub(super) fn do_remove(
        &self,
        key: &K::Ref,
        wanted: impl Fn(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        let probe = Probe::new(key)?;
        self.begin()?;
        self.remove_found(&self.seek_to_change(&probe)?, &probe, wanted)
    }
}
