//! Single writes: insert, update, put, remove.
//!
//! Each encodes key and value, [locks the leaf](crate::lock), writes [through the buffer](crate::buffer) or
//! [in place](crate::leaf), and unlocks.

use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Missing, Noted, Occupied, Value, same_encoding};
use pmindex_record::{EncodedValue, Probe, Route, Slot};

use crate::buffer::Written;
use crate::layout::tag_of;
use crate::leaf::Incoming;
use crate::leaves::Held;
use crate::lock::Writes;
use crate::tree::SpTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Adds a record; returns [`Occupied`] and changes nothing if the key exists.
    ///
    /// # Cost
    /// 3 lines, 1 fence, for a record that lies in one line; else 2 fences, byte strings: their block's
    /// lines besides. Sometimes a split.
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
        while let Some(held) = self.lock_leaf(&probe, Writes::Record, |present| !present)? {
            if self.insert_held(held, &record)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Inserts through the buffer, or into a free slot; returns `false` if it split the Bnode, or absorbed
    /// the buffer, instead.
    #[inline(always)]
    fn insert_held(
        &self,
        held: Held<'_, K, V, LEAF>,
        record: &Incoming<'_, K, V>,
    ) -> Result<bool, IndexError> {
        match self.write_buffered(&held, (record.probe, Some(record.datum)), 1)? {
            Written::Done => return Ok(true), // LIN: the unlock
            Written::Retry => return Ok(false),
            Written::InPlace => {}
        }
        let Some(slot) = held.taken.free_slot(LEAF) else {
            self.split(held, Some(record.probe))?;
            return Ok(false);
        };
        let Held { index, node, bnode, taken, guard, .. } = held;
        let mut tag_guard = self.leaves.tag_guard(index, node);
        tag_guard.arm_and_count(1);
        bnode.insert(&self.pool, taken, slot, record)?;
        self.leaves.middle.put_tag(node, slot, tag_of(record.probe));
        tag_guard.disarm();
        drop(guard); // LIN
        Ok(true)
    }

    /// Replaces a value; returns [`Missing`] and changes nothing if the key is absent.
    ///
    /// # Cost
    /// 8-byte values: 1 line, 1 fence. Else 2 fences, and 3 lines or those of the new block and 1.
    #[inline]
    pub fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        self.update_inner(key, value).noted(&self.pool).map(Missing::unless)
    }

    #[inline(always)]
    fn update_inner(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let (probe, datum) = (Probe::new(key)?, EncodedValue::new(value)?);
        let record = Incoming { probe: &probe, datum: &datum };
        let writes = if Slot::<K, V>::ONE_WORD_UPDATE { Writes::Value } else { Writes::Record };
        while let Some(held) = self.lock_leaf(&probe, writes, |present| present)? {
            if self.update_held(held, &record)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Updates; returns `false` if it split the Bnode, or absorbed the buffer, instead.
    #[inline(always)]
    fn update_held(
        &self,
        held: Held<'_, K, V, LEAF>,
        record: &Incoming<'_, K, V>,
    ) -> Result<bool, IndexError> {
        if !(held.hit.is_none() && Slot::<K, V>::ONE_WORD_UPDATE) {
            match self.write_buffered(&held, (record.probe, Some(record.datum)), 0)? {
                Written::Done => return Ok(true), // LIN: the unlock
                Written::Retry => return Ok(false),
                Written::InPlace => {}
            }
        } // else in place: one line and one fence, as in the log, and nothing to absorb
        let Some(slot) = held.slot else { return Ok(false) };
        let mut tag_guard = self.leaves.tag_guard(held.index, held.node);
        tag_guard.arm();
        let updated = held.bnode.update(&self.pool, held.taken, slot, record)?;
        if let Some(now) = updated.filter(|&now| now != slot) {
            self.leaves.middle.put_tag(held.node, slot, 0);
            self.leaves.middle.put_tag(held.node, now, tag_of(record.probe));
        }
        tag_guard.disarm();
        if updated.is_none() {
            self.split(held, None)?;
            return Ok(false);
        }
        drop(held.guard); // LIN
        Ok(true)
    }

    /// Adds or replaces; returns the old value.
    ///
    /// # Cost
    /// That of [`put`](Self::put), and reading the old value.
    #[inline]
    pub fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        self.put_inner(key, value, |held, probe| self.value_held(held, probe)).noted(&self.pool)
    }

    /// Adds or replaces, without reading the old value; returns whether the key is new.
    ///
    /// # Cost
    /// That of the insert or update it turns out to be.
    pub fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        self.put_inner(key, value, |_, _| Ok(())).noted(&self.pool).map(|old| old.is_none())
    }

    /// Returns the value of a key that is present, in its Bnode or in its buffer.
    #[inline(always)]
    fn value_held(&self, held: &Held<'_, K, V, LEAF>, probe: &Probe<'_, K>) -> Result<V, PmError> {
        let buffered = held.hit.and_then(|_| self.buffered(held.node, probe)).flatten();
        match (buffered, held.slot) {
            (Some(value), _) => Ok(value),
            (None, Some(slot)) => Slot::<K, V>::value(&self.pool, held.bnode.slot(slot)),
            (None, None) => {
                let (what, offset) = ("a buffer's entry without a value", held.bnode.offset());
                Err(PmError::Corrupt { what, offset })
            }
        }
    }

    /// Adds or replaces; returns what `read` returns for the key's old record, under its Mnode's lock.
    #[inline(always)]
    fn put_inner<T>(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        read: impl Fn(&Held<'_, K, V, LEAF>, &Probe<'_, K>) -> Result<T, PmError>,
    ) -> Result<Option<T>, IndexError> {
        let (probe, datum) = (Probe::new(key)?, EncodedValue::new(value)?);
        let record = Incoming { probe: &probe, datum: &datum };
        loop {
            let Some(held) = self.lock_leaf(&probe, Writes::Record, |_| true)? else { continue };
            let old = held.is_present().then(|| read(&held, &probe)).transpose()?;
            let done = if old.is_none() {
                self.insert_held(held, &record)?
            } else {
                self.update_held(held, &record)?
            };
            if done {
                return Ok(old);
            }
        }
    }

    /// Removes a record and returns its value.
    ///
    /// # Cost
    /// 1 line, 1 fence; byte strings: the tickets' lines and 1 fence besides. Bnodes that are nearly
    /// empty merge.
    #[inline]
    pub fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.remove_inner(key, |_| true).noted(&self.pool)
    }

    /// Removes a record if its value is encoded as `value` is; returns the value removed.
    ///
    /// # Cost
    /// That of [`remove`](Self::remove).
    pub fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        self.remove_inner(key, |stored| same_encoding::<V>(stored.borrowed(), value.borrowed()))
            .noted(&self.pool)
    }

    /// Removes a record if `wanted` accepts its value, under its Mnode's lock.
    #[inline(always)]
    fn remove_inner(
        &self,
        key: &K::Ref,
        wanted: impl Fn(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        let probe = Probe::new(key)?;
        let held = loop {
            let Some(held) = self.lock_leaf(&probe, Writes::Bitmap, |present| present)? else {
                return Ok(None);
            };
            match self.remove_buffered(held, &probe, &wanted)? {
                Removed::Value(value) => return Ok(Some(value)),
                Removed::Unwanted => return Ok(None),
                Removed::Retry => {}
                Removed::InPlace(held) => break held,
            }
        };
        let Held { index, node, bnode, taken, slot, guard, .. } = held;
        let Some(slot) = slot else { return Ok(None) };
        let value = Slot::<K, V>::value(&self.pool, bnode.slot(slot))?;
        if !wanted(&value) {
            return Ok(None);
        }
        let mut tag_guard = self.leaves.tag_guard(index, node);
        tag_guard.arm_and_count(u64::MAX);
        bnode.remove(&self.pool, taken, slot)?;
        self.leaves.middle.put_tag(node, slot, 0);
        tag_guard.disarm();
        let left = match self.buffers() {
            Some(buffers) => buffers.records_of(&self.leaves, node, taken.len() - 1),
            None => taken.len() - 1,
        };
        drop(guard); // LIN
        if Self::may_merge(left) {
            self.merge_beside(&Route::to(&probe));
        }
        Ok(Some(value))
    }

    /// Removes a record through the buffer, if that has its key.
    #[inline(always)]
    fn remove_buffered<'t>(
        &self,
        held: Held<'t, K, V, LEAF>,
        probe: &Probe<'_, K>,
        wanted: &impl Fn(&V) -> bool,
    ) -> Result<Removed<'t, K, V, LEAF>, IndexError> {
        // A key that is not in the buffer is removed in place: one line and one fence, as in the log, and
        // nothing to absorb.
        let Some(buffers) = self.buffers().filter(|_| held.hit.is_some()) else {
            return Ok(Removed::InPlace(held));
        };
        let Some(Some(value)) = buffers.get(&self.leaves, held.node, probe) else {
            return Ok(Removed::Retry); // not present: `lock_leaf` looks again
        };
        if !wanted(&value) {
            return Ok(Removed::Unwanted);
        }
        match buffers.write(&self.leaves, &held, (probe, None), u64::MAX)? {
            Written::InPlace => Ok(Removed::InPlace(held)),
            Written::Done => {
                let node = held.node;
                let left = buffers.records_of(&self.leaves, node, self.leaves.taken(node).len());
                if Self::may_merge(left) {
                    // Nearly empty, though its Bnode does not know. What cannot be done stays.
                    let absorbed = buffers.absorb(&self.leaves, node);
                    drop(held); // LIN
                    if absorbed.is_ok() {
                        self.merge_beside(&Route::to(probe));
                    }
                } else {
                    drop(held); // LIN
                }
                Ok(Removed::Value(value))
            }
            Written::Retry => {
                let small = self.leaves.taken(held.node).len() <= LEAF / 4;
                drop(held);
                if small {
                    self.merge_beside(&Route::to(probe));
                }
                Ok(Removed::Retry)
            }
        }
    }

    /// Writes a record, or the removal of a key, through the buffer, if there are buffers: see
    /// [`WriteBuffers::write`](crate::buffer::WriteBuffers::write).
    #[inline(always)]
    fn write_buffered(
        &self,
        held: &Held<'_, K, V, LEAF>,
        record: (&Probe<'_, K>, Option<&EncodedValue<'_, V>>),
        change: u64,
    ) -> Result<Written, IndexError> {
        match self.buffers() {
            Some(buffers) => buffers.write(&self.leaves, held, record, change),
            None => Ok(Written::InPlace),
        }
    }
}

/// The outcome of a removal through the buffer.
enum Removed<'t, K, V, const LEAF: usize> {
    /// The record is gone; its value.
    Value(V),
    /// It stays.
    Unwanted,
    /// The buffer was absorbed, so the Bnode has changed: search again.
    Retry,
    /// The buffer has nothing of the key: remove it in place.
    InPlace(Held<'t, K, V, LEAF>),
}
