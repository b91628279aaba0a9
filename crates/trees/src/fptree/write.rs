//! Single writes: add, replace, put, remove.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Flushed, Medium, Op, PmError, PmU64};
use pmindex_index::{IndexError, Key, Missing, Noted, Occupied, Value, same_encoding};
use pmindex_record::{EncodedValue, Probe, RecordBlock, bits};

use super::access::At;
use super::inner::Route;
use super::layout::{Geometry, LeafPtr, LeafState, Slot};
use super::leaf::{Incoming, Leaf};
use super::tree::FpTree;
use crate::merging::is_time_to_look;

/// A leaf, its state, and a key's slot.
type Seen<'t, K, V, const LEAF: usize> = (Leaf<'t, K, V, LEAF>, LeafState, Option<usize>);

/// The locked leaf of a key, and the slot of the key.
pub(super) struct Held<'t, K, V, const LEAF: usize> {
    pub(super) leaf: Leaf<'t, K, V, LEAF>,
    pub(super) state: LeafState,
    pub(super) slot: Option<usize>,
    pub(super) guard: VersionGuard<'t>,
}

/// The removal of a record: its operation, staged, and the flush of that.
type Removal<'t, M> = (Op<'t, M>, Flushed);
/// A held slot, and the removal of its record.
type Begun<'t, K, V, M, const LEAF: usize> = (Held<'t, K, V, LEAF>, Removal<'t, M>);

/// What became of the removal of a slot's record.
enum Removed<V> {
    /// It had this value.
    Done(V),
    /// Its value was not the wanted one.
    Unwanted,
    /// It has another key.
    NotTheKey,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
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
            let at = self.locate_probe(probe);
            match self.hold_at(&at, probe, &wanted) {
                Some(held) => return held,
                None => self.pm().spin(),
            }
        }
    }

    /// Returns the leaf, its state and the key's slot, not validated.
    #[inline(always)]
    fn seen_at<'t>(
        &'t self,
        at: &At<'t>,
        probe: &Probe<'_, K>,
    ) -> Result<Seen<'t, K, V, LEAF>, PmError> {
        let leaf = self.leaf(at.leaf)?;
        let state = leaf.state(self.pm());
        Ok((leaf, state, leaf.find(&self.pool, state, probe)?))
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
        let (leaf, state, slot) = match self.seen_at(at, probe) {
            Ok(found) => found,
            Err(error) => return at.validate(pm).then_some(Err(error.into())),
        };
        if !wanted(slot.is_some()) {
            return at.validate(pm).then_some(Ok(None));
        }
        if slot.is_none()
            && let Some(free) = Geometry::<K, V, LEAF>::free_slot_for(state, probe)
        {
            // The place of the record. The locked instruction that follows waits for the last
            // operation's write-backs: time enough to fetch it.
            self.pool.prefetch(LeafPtr::new(at.leaf + Self::line_of_slot(free)));
        }
        // All reads are still valid, and stay so: the version becomes the lock.
        let guard = at.lock.try_upgrade(pm, at.version)?;
        Some(Ok(Some(Held { leaf, state, slot, guard })))
    }

    /// Adds a record; returns [`Occupied`] and changes nothing if the key exists.
    ///
    /// # Cost
    /// 2 lines, 1 fence, for a record that lies in one line; else 2 fences, byte strings: their
    /// block's lines besides. Sometimes a split.
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
            if self.insert_held(held, &record)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Inserts into a free slot, or splits the leaf and returns `false`.
    #[inline(always)]
    fn insert_held(
        &self,
        held: Held<'_, K, V, LEAF>,
        record: &Incoming<'_, K, V>,
    ) -> Result<bool, IndexError> {
        let Held { leaf, state, guard, .. } = held;
        let Some(slot) = Geometry::<K, V, LEAF>::free_slot_for(state, record.probe) else {
            self.split(&leaf, state, guard, Some(record.probe))?;
            return Ok(false);
        };
        let slots = self.write_slots();
        leaf.insert(&self.pool, state, slot, record, slots.began_clean())?;
        slots.end();
        self.count(leaf.offset(), 1);
        drop(guard);
        Ok(true)
    }

    /// Replaces a value; returns [`Missing`] and changes nothing if the key is absent.
    ///
    /// # Cost
    /// 8-byte values: 1 line, 1 fence. Byte strings of the old value's length, up to 216 bytes: 1 fence, the lines of
    /// an entry in the redo log and of the value. Else 2 fences, and 2 lines or those of the new block and 1.
    #[inline]
    pub fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        self.update_inner(key, value).noted(&self.pool).map(Missing::unless)
    }

    #[inline(always)]
    fn update_inner(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let (probe, datum) = (Probe::new(key)?, EncodedValue::new(value)?);
        let record = Incoming { probe: &probe, datum: &datum };
        while let Some(held) = self.hold(&probe, |present| present)? {
            if self.update_held(held, &record)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Updates, or splits a leaf without the free slot it takes and returns `false`.
    #[inline(always)]
    fn update_held(
        &self,
        held: Held<'_, K, V, LEAF>,
        record: &Incoming<'_, K, V>,
    ) -> Result<bool, IndexError> {
        let Held { leaf, state, slot, guard } = held;
        let Some(slot) = slot else { return Ok(false) };
        if let Some(redo) = self.redo.as_ref().filter(|_| V::SHAPE.is_bytes()) {
            let block = Slot::<K, V>::block(self.pm(), leaf.slot(slot));
            if redo.replace(&self.pool, &self.root()?.redo, block, record.datum.bytes())? {
                return Ok(true);
            }
            redo.leave(&self.pool, block)?;
        }
        let slots = self.write_slots();
        let done = leaf.update(&self.pool, state, slot, record)?;
        slots.end();
        if !done {
            self.split(&leaf, state, guard, None)?;
        }
        Ok(done)
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
    /// That of the insert or update it turns out to be.
    #[inline]
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
    /// 1 line, 1 fence; byte strings: the tickets' lines and 1 fence besides. Sometimes
    /// leaves merge: 4 fences, and a line for each record moved.
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
        self.pool.check_writable()?;
        let probe = Probe::new(key)?;
        let mut at = self.locate_probe(&probe);
        if Slot::<K, V>::HAS_BLOCK
            && let Some(tried) = self.hold_to_remove(&at, &probe)
        {
            let (held, removal) = tried?;
            match self.remove_held(&probe, held, Some(removal), &wanted)? {
                Removed::Done(value) => return Ok(Some(value)),
                Removed::Unwanted => return Ok(None),
                Removed::NotTheKey => at = self.locate_probe(&probe),
            }
        }
        loop {
            if let Some(held) = self.hold_at(&at, &probe, &|present| present) {
                let Some(held) = held? else { return Ok(None) };
                return Ok(match self.remove_held(&probe, held, None, &wanted)? {
                    Removed::Done(value) => Some(value),
                    Removed::Unwanted | Removed::NotTheKey => None,
                });
            }
            self.pm().spin();
            at = self.locate_probe(&probe);
        }
    }

    /// Locks the leaf of a key of which a slot has the beginning, and begins the removal of the slot's record before its
    /// block is read: it is fetched while the ticket is staged and written back. `None` if there is no such slot, or no
    /// [sure](Self::is_sure) one, or the leaf has changed, or all is not well: nothing was changed then.
    #[inline(always)]
    fn hold_to_remove<'t>(
        &'t self,
        at: &At<'t>,
        probe: &Probe<'_, K>,
    ) -> Option<Result<Begun<'t, K, V, M, LEAF>, IndexError>> {
        let pm = self.pm();
        let leaf = self.leaf(at.leaf).ok()?;
        let state = leaf.state(pm);
        let slot = bits(leaf.matches(pm, state, probe))
            .find(|&i| i < LEAF && Slot::<K, V>::key_may_be(pm, leaf.slot(i), probe))?;
        if !Self::is_sure(pm, &leaf, slot, probe) {
            return None;
        }
        RecordBlock::prefetch_most(&self.pool, Slot::<K, V>::block(pm, leaf.slot(slot)));
        let guard = at.lock.try_upgrade(pm, at.version)?;
        match leaf.begin_removal(&self.pool, slot) {
            Ok(removal) => Some(Ok((Held { leaf, state, slot: Some(slot), guard }, removal))),
            Err(PmError::Corrupt { .. }) => None, // of this record or another one
            Err(error) => Some(Err(error.into())),
        }
    }

    /// Returns `true` if a slot with the beginning of the probe's key has the key, most probably: another slot of its
    /// line has or had a record, and none of them one whose key begins in the same way. What is begun in vain costs a
    /// line.
    #[inline(always)]
    fn is_sure(pm: &M, leaf: &Leaf<'_, K, V, LEAF>, slot: usize, probe: &Probe<'_, K>) -> bool {
        if !K::SHAPE.is_bytes() {
            return true;
        }
        let first = slot / Slot::<K, V>::GROUP * Slot::<K, V>::GROUP;
        let line = (first..LEAF.min(first + Slot::<K, V>::GROUP)).filter(|&other| other != slot);
        let (mut others, mut alike) = (0, 0);
        for prefix in line.map(|other| leaf.prefix(pm, other)) {
            others |= prefix;
            alike |= u64::from(prefix == probe.prefix());
        }
        others != 0 && alike == 0
    }

    /// Removes the record of a held slot, if it has the key and `wanted` accepts its value. What was begun is withdrawn
    /// if it is not removed.
    #[inline(always)]
    fn remove_held(
        &self,
        probe: &Probe<'_, K>,
        held: Held<'_, K, V, LEAF>,
        begun: Option<Removal<'_, M>>,
        wanted: &impl Fn(&V) -> bool,
    ) -> Result<Removed<V>, IndexError> {
        let Held { leaf, state, slot, guard } = held;
        let begun = begun; // ends, however it does, before the lock is released
        let Some(slot) = slot else { return Ok(Removed::NotTheKey) };
        let words = leaf.slot(slot);
        let has_key = begun.is_none() || Slot::<K, V>::key_is(&self.pool, words, probe)?;
        let value = if has_key { Some(Slot::<K, V>::value(&self.pool, words)?) } else { None };
        let Some(value) = value.filter(wanted) else {
            if let Some((op, _)) = begun {
                op.withdraw();
            }
            return Ok(if has_key { Removed::Unwanted } else { Removed::NotTheKey });
        };
        let left = state.len() - 1;
        let looks = is_time_to_look(LEAF, Geometry::<K, V, LEAF>::MERGED, left);
        if looks {
            // Where it will look.
            self.pool.prefetch(LeafPtr::new(leaf.next(self.pm())));
        }
        self.forget_block(Slot::<K, V>::block(self.pm(), words))?;
        if Slot::<K, V>::HAS_BLOCK {
            let removal = begun.map_or_else(|| leaf.begin_removal(&self.pool, slot), Ok)?;
            leaf.end_removal(&self.pool, state, slot, removal)?;
        } else {
            leaf.remove_inline(&self.pool, state, slot)?;
        }
        self.count(leaf.offset(), u64::MAX);
        drop(guard);
        if looks {
            // The record is removed, durably. A leaf that cannot be freed now (the pool is full) stays until
            // the next removal or, if it is empty, until the index is opened.
            let _ = self.merge_around(&Route::to(probe), &leaf, left);
        }
        Ok(Removed::Done(value))
    }
}
