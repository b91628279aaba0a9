//! Single writes: add, replace, put, remove.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{LINE, Medium, PmError};
use pmindex_index::{IndexError, Key, Missing, Noted, Occupied, Value, same_encoding};
use pmindex_record::{Datum, Probe, Route, Slot};

use crate::access::At;
use crate::buffer::{Hit, Written};
use crate::layout::{BnodePtr, Taken, bits, tag_of};
use crate::leaf::{Bnode, Incoming};
use crate::middle::Mnode;
use crate::tree::SpTree;

impl<K, V, const LEAF: usize> Held<'_, K, V, LEAF> {
    fn is_present(&self) -> bool {
        self.hit.map_or(self.slot.is_some(), |hit| !hit.deleted)
    }
}

/// What a write will write, if all goes well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// A record in a free slot, its tag, the bitmap.
    Record,
    /// The bitmap.
    Bitmap,
    /// A value in its place.
    Value,
}

/// The Mnode of a key, locked, and what its Bnode holds of the key.
pub(crate) struct Held<'t, K, V, const LEAF: usize> {
    pub(crate) index: u32,
    pub(crate) node: &'t Mnode,
    pub(crate) bnode: Bnode<'t, K, V, LEAF>,
    pub(crate) taken: Taken,
    pub(crate) slot: Option<usize>,
    /// What the buffer has of the key; `slot` is not known then.
    pub(crate) hit: Option<Hit>,
    pub(crate) guard: VersionGuard<'t>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Finds the key's Mnode and locks it, if `wanted` says so of whether the key is present; else
    /// returns `None`, having written nothing. The lines that `writes` names are on their way then.
    #[inline(always)]
    pub(crate) fn hold(
        &self,
        probe: &Probe<'_, K>,
        writes: Writes,
        wanted: impl Fn(bool) -> bool,
    ) -> Result<Option<Held<'_, K, V, LEAF>>, IndexError> {
        self.pool.check_writable()?;
        self.make_ready()?;
        self.tend();
        loop {
            let at = self.locate(&Route::to(probe));
            match self.hold_at(&at, probe, writes, &wanted) {
                Some(held) => return held,
                None => self.pm().spin(),
            }
        }
    }

    /// Fetches the lines of a record and its tag, where they will be. A hint.
    #[inline(always)]
    fn prefetch_record(&self, at: &At<'_>, taken: Taken) {
        if let Some(free) = taken.free_slot(LEAF) {
            self.pool.prefetch(BnodePtr::new(at.bnode.wrapping_add(LINE as u64)));
            self.prefetch_slot(at.bnode, free);
        }
    }

    /// Fetches what an insert writes. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_to_insert(&self, at: &At<'_>) {
        self.pool.prefetch(BnodePtr::new(at.bnode));
        self.prefetch_record(at, self.middle.taken(at.node, LEAF));
    }

    /// As [`hold`](Self::hold); `None` if the Mnode has changed since it was located.
    #[inline(always)]
    fn hold_at<'t>(
        &'t self,
        at: &At<'t>,
        probe: &Probe<'_, K>,
        writes: Writes,
        wanted: &impl Fn(bool) -> bool,
    ) -> Option<Result<Option<Held<'t, K, V, LEAF>>, IndexError>> {
        let pm = self.pm();
        let buffer = self.buffer_of(at.node);
        let taken = self.middle.taken(at.node, LEAF);
        let tagged = self.middle.matches(at.node, tag_of(probe), LEAF);
        let mut hit = None;
        if let Some((buffering, number)) = buffer {
            buffering.buffers.prefetch(number);
            if let Some(slot) = bits(tagged).next() {
                self.prefetch_slot(at.bnode, slot);
            }
            if writes == Writes::Bitmap {
                self.pool.prefetch(BnodePtr::new(at.bnode));
            }
            hit = buffering.buffers.find::<K, V>(number, probe);
            if writes == Writes::Record && hit.is_none() {
                self.prefetch_to_buffer(at, buffering, number);
            }
        } else {
            if writes != Writes::Value {
                self.pool.prefetch(BnodePtr::new(at.bnode)); // the bitmap
            }
            if writes == Writes::Record {
                self.prefetch_record(at, taken);
            }
        }
        let tagged = if hit.is_some() { 0 } else { tagged };
        let found = self
            .bnode(at.bnode)
            .and_then(|bnode| Ok((bnode, bnode.find_among(&self.pool, tagged, probe)?)));
        let (bnode, slot) = match found {
            Ok(found) => found,
            Err(error) => return at.validate(pm).then_some(Err(error.into())),
        };
        if !wanted(hit.map_or(slot.is_some(), |hit| !hit.deleted)) {
            return at.validate(pm).then_some(Ok(None));
        }
        // What was read is still so, and stays so: the version becomes the lock.
        let guard = at.node.lock.try_upgrade(pm, at.version)?;
        Some(Ok(Some(Held { index: at.index, node: at.node, bnode, taken, slot, hit, guard })))
    }

    /// Adds a record; `false` (and no change) if the key exists.
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
        let (probe, datum) = (Probe::new(key)?, Datum::new(value)?);
        let record = Incoming { probe: &probe, datum: &datum };
        while let Some(held) = self.hold(&probe, Writes::Record, |present| !present)? {
            if self.insert_held(held, &record)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Inserts into a free slot, or splits and returns `false`.
    #[inline(always)]
    fn insert_held(
        &self,
        held: Held<'_, K, V, LEAF>,
        record: &Incoming<'_, K, V>,
    ) -> Result<bool, IndexError> {
        match self.write_buffered(&held, record.probe, Some(record.datum), 1)? {
            Written::Past => {}
            Written::Absorbed => return Ok(false),
            Written::Buffered => return Ok(true), // LIN: the unlock
        }
        let Some(slot) = held.taken.free_slot(LEAF) else {
            self.split(held, Some(record.probe))?;
            return Ok(false);
        };
        let Held { index, node, bnode, taken, guard, .. } = held;
        let mut mending = self.mending(index, node);
        mending.arm_and_count(1);
        bnode.insert(&self.pool, taken, slot, record, self.is_sure())?;
        self.middle.put_tag(node, slot, tag_of(record.probe));
        mending.disarm();
        drop(guard); // LIN
        Ok(true)
    }

    /// Replaces a value; `false` (and no change) if the key is missing.
    ///
    /// # Cost
    /// 8-byte values: 1 line, 1 fence. Else 2 fences, and 3 lines or those of the new block and 1.
    #[inline]
    pub fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        self.update_inner(key, value).noted(&self.pool).map(Missing::unless)
    }

    #[inline(always)]
    fn update_inner(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let (probe, datum) = (Probe::new(key)?, Datum::new(value)?);
        let record = Incoming { probe: &probe, datum: &datum };
        let writes = if Slot::<K, V>::ONE_WORD_UPDATE { Writes::Value } else { Writes::Record };
        while let Some(held) = self.hold(&probe, writes, |present| present)? {
            if self.update_held(held, &record)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Updates, or splits a Bnode without the free slot it takes and returns `false`.
    #[inline(always)]
    fn update_held(
        &self,
        held: Held<'_, K, V, LEAF>,
        record: &Incoming<'_, K, V>,
    ) -> Result<bool, IndexError> {
        if !(held.hit.is_none() && Slot::<K, V>::ONE_WORD_UPDATE) {
            match self.write_buffered(&held, record.probe, Some(record.datum), 0)? {
                Written::Past => {}
                Written::Absorbed => return Ok(false),
                Written::Buffered => return Ok(true), // LIN: the unlock
            }
        } // else one line and one fence, as in the log, and nothing to absorb
        let Some(slot) = held.slot else { return Ok(false) };
        let mut mending = self.mending(held.index, held.node);
        mending.arm();
        let updated = held.bnode.update(&self.pool, held.taken, slot, record)?;
        if let Some(now) = updated.filter(|&now| now != slot) {
            self.middle.put_tag(held.node, slot, 0);
            self.middle.put_tag(held.node, now, tag_of(record.probe));
        }
        mending.disarm();
        if updated.is_none() {
            self.split(held, None)?;
            return Ok(false);
        }
        drop(held.guard); // LIN
        Ok(true)
    }

    /// Adds or replaces; returns the value that was there.
    ///
    /// # Cost
    /// That of [`put`](Self::put), and reading the old value.
    #[inline]
    pub fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        self.put_inner(key, value, |held, probe| self.value_held(held, probe)).noted(&self.pool)
    }

    /// Adds or replaces, without reading the old value; `true` if the key is new.
    ///
    /// # Cost
    /// That of the insert or update it turns out to be.
    pub fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        self.put_inner(key, value, |_, _| Ok(())).noted(&self.pool).map(|old| old.is_none())
    }

    /// The value of a key that is present, in its Bnode or in its buffer.
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

    /// Adds or replaces; what `read` made of the key's old record, under its Mnode's lock.
    #[inline(always)]
    fn put_inner<T>(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        read: impl Fn(&Held<'_, K, V, LEAF>, &Probe<'_, K>) -> Result<T, PmError>,
    ) -> Result<Option<T>, IndexError> {
        let (probe, datum) = (Probe::new(key)?, Datum::new(value)?);
        let record = Incoming { probe: &probe, datum: &datum };
        loop {
            let Some(held) = self.hold(&probe, Writes::Record, |_| true)? else { continue };
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

    /// Removes a record if its value is encoded as `value` is; returns what was removed.
    ///
    /// # Cost
    /// That of [`remove`](Self::remove).
    pub fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        self.remove_inner(key, |stored| same_encoding::<V>(stored.borrowed(), value.borrowed()))
            .noted(&self.pool)
    }

    /// Removes a record of whose value, under its Mnode's lock, `wanted` says so.
    #[inline(always)]
    fn remove_inner(
        &self,
        key: &K::Ref,
        wanted: impl Fn(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        let probe = Probe::new(key)?;
        let held = loop {
            let Some(held) = self.hold(&probe, Writes::Bitmap, |present| present)? else {
                return Ok(None);
            };
            match self.remove_buffered(held, &probe, &wanted)? {
                Removed::Value(value) => return Ok(Some(value)),
                Removed::Unwanted => return Ok(None),
                Removed::Absorbed => {}
                Removed::Past(held) => break held,
            }
        };
        let Held { index, node, bnode, taken, slot, guard, .. } = held;
        let Some(slot) = slot else { return Ok(None) };
        let value = Slot::<K, V>::value(&self.pool, bnode.slot(slot))?;
        if !wanted(&value) {
            return Ok(None);
        }
        let mut mending = self.mending(index, node);
        mending.arm_and_count(u64::MAX);
        bnode.remove(&self.pool, taken, slot)?;
        self.middle.put_tag(node, slot, 0);
        mending.disarm();
        let left = self.records_of(node, taken.len() - 1);
        drop(guard); // LIN
        if Self::may_merge(left) {
            self.merge_beside(&Route::to(&probe));
        }
        Ok(Some(value))
    }

    /// Removes a record by way of the buffer.
    #[inline(always)]
    fn remove_buffered<'t>(
        &self,
        held: Held<'t, K, V, LEAF>,
        probe: &Probe<'_, K>,
        wanted: &impl Fn(&V) -> bool,
    ) -> Result<Removed<'t, K, V, LEAF>, IndexError> {
        // What the buffer does not have goes from the Bnode: one line and one fence, as in the log,
        // and nothing to absorb.
        if !Self::BUFFERED || held.hit.is_none() {
            return Ok(Removed::Past(held));
        }
        let Some(Some(value)) = self.buffered(held.node, probe) else {
            return Ok(Removed::Absorbed); // not present: `hold` looks again
        };
        if !wanted(&value) {
            return Ok(Removed::Unwanted);
        }
        match self.write_buffered(&held, probe, None, u64::MAX)? {
            Written::Past => Ok(Removed::Past(held)),
            Written::Buffered => {
                let node = held.node;
                let left = self.records_of(node, self.middle.taken(node, LEAF).len());
                if Self::may_merge(left) {
                    // Nearly empty, though its Bnode does not know. What cannot be done stays.
                    let settled = self.settle(node);
                    drop(held); // LIN
                    if settled.is_ok() {
                        self.merge_beside(&Route::to(probe));
                    }
                } else {
                    drop(held); // LIN
                }
                Ok(Removed::Value(value))
            }
            Written::Absorbed => {
                let small = self.middle.taken(held.node, LEAF).len() <= LEAF / 4;
                drop(held);
                if small {
                    self.merge_beside(&Route::to(probe));
                }
                Ok(Removed::Absorbed)
            }
        }
    }
}

/// What became of a removal.
enum Removed<'t, K, V, const LEAF: usize> {
    /// The record is gone; its value.
    Value(V),
    /// It stays.
    Unwanted,
    /// The Bnode has changed: look again.
    Absorbed,
    /// It goes past the buffer.
    Past(Held<'t, K, V, LEAF>),
}
