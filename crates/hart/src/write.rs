//! Single writes: add, replace, put, remove.
//!
//! All of a write runs under its key's lock, which is held until the last fence; see the table of
//! steps in [the crate's page](crate).

use pmindex_art::{LeafPath, Spot};
use pmindex_core::sync::VersionGuard;
use pmindex_core::{DurabilityLost, Flushed, Medium, PmError, PmU64, Rmw, Word, words_of};
use pmindex_index::{IndexError, Key, Missing, Noted, Occupied, Value, same_encoding};
use pmindex_record::{EncodedValue, Probe};

use crate::epalloc::Hand;
use crate::layout::{LineWord, Root, SHORT_KEY, SlotRef, ValueWord, object_words, record_words};
use crate::record::{KeyBytes, Outgoing, Records};
use crate::tree::Hart;

/// A key under its lock, and its record if there is one.
pub(crate) struct Held<'t> {
    pub(crate) slot: Option<SlotRef>,
    /// The place where the search for it ended.
    pub(crate) spot: Spot<'t>,
    pub(crate) guard: VersionGuard<'t>,
}

/// A record to insert.
pub(crate) struct Incoming<'r, K, V> {
    pub(crate) probe: &'r Probe<'r, K>,
    pub(crate) key: &'r KeyBytes<'r>,
    pub(crate) datum: &'r EncodedValue<'r, V>,
}

impl<K: Key, V: Value> Incoming<'_, K, V> {
    /// Returns the key, if it goes out of line.
    #[inline(always)]
    fn long_key(&self) -> Option<&[u8]> {
        let long = K::SHAPE.is_bytes() && self.probe.bytes().len() > SHORT_KEY;
        long.then(|| self.probe.bytes())
    }
}

/// The slot of an object. Its words are kept apart from the stored ones, which the medium takes back if the
/// fence behind them fails.
#[derive(Clone, Copy)]
pub(crate) struct ObjectSlot {
    pub(crate) at: SlotRef,
    pub(crate) words: usize,
}

/// The objects of a record.
#[derive(Clone, Copy, Default)]
pub(crate) struct Objects {
    pub(crate) key: Option<ObjectSlot>,
    pub(crate) value: Option<ObjectSlot>,
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Hart<K, V, M, CHUNK, PREFIX>
{
    /// Locks the key, if `wanted` accepts whether it is present; else returns `None`, having
    /// written nothing.
    #[inline(always)]
    fn hold(
        &self,
        probe: &Probe<'_, K>,
        key: &KeyBytes<'_>,
        wanted: impl Fn(bool) -> bool,
    ) -> Result<Option<Held<'_>>, IndexError> {
        self.pool.check_writable()?;
        let pm = self.pm();
        let lock = self.lock_of(probe.hash());
        loop {
            let version = lock.begin_read(pm);
            let (there, way) = self.find_spot(probe, key)?;
            let slot = there.map(|there| SlotRef::from_number(there.leaf));
            if !wanted(slot.is_some()) {
                if slot.is_some() {
                    self.await_load();
                }
                return Ok(None);
            }
            // Whatever changes the key changes the version: what was found is still so.
            if let Some(guard) = lock.try_upgrade(pm, version) {
                return Ok(Some(Held { slot, spot: way, guard }));
            }
            pm.spin();
        }
    }

    /// Adds a record; returns [`Occupied`] and changes nothing if the key exists.
    ///
    /// # Cost
    /// 1 line, 1 fence; with objects their lines and a fence besides. Now and then a new chunk: 2
    /// fences more.
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
        let key = KeyBytes::of(&probe);
        let Some(held) = self.hold(&probe, &key, |present| !present)? else { return Ok(false) };
        self.insert_held(held, &Incoming { probe: &probe, key: &key, datum: &datum })?;
        Ok(true)
    }

    /// Replaces a value; returns [`Missing`] and changes nothing if the key is absent.
    ///
    /// # Cost
    /// Values of 8 bytes, byte strings of up to 7: 1 line, 1 fence. Else the object's lines and 1,
    /// 2 fences.
    #[inline]
    pub fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        self.update_inner(key, value).noted(&self.pool).map(Missing::unless)
    }

    #[inline(always)]
    fn update_inner(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let (probe, datum) = (Probe::new(key)?, EncodedValue::new(value)?);
        let key = KeyBytes::of(&probe);
        let Some(held) = self.hold(&probe, &key, |present| present)? else { return Ok(false) };
        let Some(slot) = held.slot else { return Ok(false) };
        let tidy = self.update_held(slot, &datum)?;
        drop(held.guard);
        if tidy {
            self.move_objects();
        }
        Ok(true)
    }

    /// Adds or replaces; returns the value that was there.
    ///
    /// # Cost
    /// That of [`put`](Self::put), and reading the old value.
    #[inline]
    pub fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        self.put_inner(key, value, |slot| self.records.value(slot)).noted(&self.pool)
    }

    /// Adds or replaces, without reading the old value; `true` if the key is new.
    ///
    /// # Cost
    /// That of the insert or update it turns out to be.
    pub fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        self.put_inner(key, value, |_| Ok(())).noted(&self.pool).map(|old| old.is_none())
    }

    /// Adds or replaces; what `read` made of the record that was there, under its key's lock.
    #[inline(always)]
    fn put_inner<T>(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        read: impl Fn(SlotRef) -> Result<T, PmError>,
    ) -> Result<Option<T>, IndexError> {
        let (probe, datum) = (Probe::new(key)?, EncodedValue::new(value)?);
        let key = KeyBytes::of(&probe);
        let Some(held) = self.hold(&probe, &key, |_| true)? else { return Ok(None) };
        if let Some(slot) = held.slot {
            let old = read(slot)?;
            let tidy = self.update_held(slot, &datum)?;
            drop(held.guard);
            if tidy {
                self.move_objects();
            }
            return Ok(Some(old));
        }
        self.insert_held(held, &Incoming { probe: &probe, key: &key, datum: &datum })?;
        Ok(None)
    }

    /// Removes a record and returns its value.
    ///
    /// The nodes that change are locked before the fence if no other thread holds them. Then stores are enough
    /// after it, and the next operation's cache misses overlap with it, which they do not after a locked
    /// instruction. If another thread holds them, the removal is made durable first, then waits.
    ///
    /// # Cost
    /// 1 line, 1 fence. A chunk that empties is given back: 2 fences more. While more than 2/5 of the slots for
    /// records are free, now and then the records left in a chunk are [moved](crate::sparse) to others: 2 fences
    /// and their lines more.
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

    /// Removes a record if `wanted` accepts its value under its key's lock.
    #[inline(always)]
    fn remove_inner(
        &self,
        key: &K::Ref,
        wanted: impl Fn(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        self.pool.check_writable()?;
        let (probe, pm) = (Probe::new(key)?, self.pm());
        let key = KeyBytes::of(&probe);
        let home = Self::home(key.bytes());
        let (tree, lock) = (self.tree(home.entry), self.lock_of(probe.hash()));
        let mut path = LeafPath::default();
        let (slot, guard) = loop {
            let version = lock.begin_read(pm);
            let Some(place) = tree.find_path(pm, home.rest, &mut path) else { return Ok(None) };
            let slot = SlotRef::from_number(place.leaf);
            let same = self.records.key_is(slot, &probe);
            if place.validate(pm) {
                if !same? {
                    self.find(&probe, &key)?; // which looks whether it is damaged
                    return Ok(None);
                }
                // Whatever changes the key changes the version: what was found is still so.
                if let Some(guard) = lock.try_upgrade(pm, version) {
                    break (slot, guard);
                }
            }
            pm.spin();
        };
        let value = self.records.value(slot)?;
        if !wanted(&value) {
            return Ok(None);
        }
        let objects = self.objects_of(slot)?;
        let line = self.line_word(slot)?;
        self.chunks.prefetch_state(line);
        let restore = Restore { tree: self, slot };
        let commit = || {
            let cleared = self.change_live(slot, Rmw::And(!Self::bit_of(slot)))?;
            pm.fence(cleared)?; // durable before: reuse
            Ok(())
        };
        if tree.remove_path(pm, &path, commit)?.is_none() {
            commit()?;
            // Without another look at the record, whose line has left the cache.
            tree.remove_leaf(pm, home.rest, slot.number())?; // LIN
        }
        std::mem::forget(restore);
        self.count(probe.hash(), u64::MAX);
        let sparse = self.chunks.release_record(&self.pool, slot, line, record_words::<K>())?;
        let tidy = Self::after_the_write(self.release_objects(objects))?;
        drop(guard);
        if let Some(number) = sparse {
            self.empty_chunk(number);
        }
        if tidy {
            self.move_objects();
        }
        Ok(Some(value))
    }

    /// Inserts a record whose key is not there.
    #[inline(always)]
    fn insert_held(
        &self,
        Held { spot, guard, .. }: Held<'_>,
        record: &Incoming<'_, K, V>,
    ) -> Result<(), IndexError> {
        let pm = self.pm();
        let root = self.root()?;
        let mut pending = Pending::take(self, root, &mut self.chunks.hand(pm))?;
        pending.write(record)?;
        if let Some(written) = pending.flush_objects(record)? {
            pm.fence(written)?; // P1
        }
        pending.live = true;
        // P2: behind the record, on its line.
        let committed = self.change_live(pending.slot, Rmw::Or(Self::bit_of(pending.slot)))?;
        pm.fence(committed)?; // DUR
        pending.link(record, Some(spot))?; // LIN
        drop(guard);
        Ok(())
    }

    /// Takes a slot for an object, and fills it.
    #[track_caller]
    fn write_object(&self, bytes: &[u8]) -> Result<ObjectSlot, PmError> {
        let words = object_words(bytes.len());
        let at = self.chunks.take_object(&self.pool, self.root()?, words)?;
        self.records.write_object(at, bytes)?;
        Ok(ObjectSlot { at, words })
    }

    /// Returns the objects of a record.
    pub(crate) fn objects_of(&self, slot: SlotRef) -> Result<Objects, PmError> {
        let word = self.pm().load_word(self.records.value_cell(slot)?);
        Ok(Objects {
            key: self.object_slot(self.records.key_out_of_line(slot)?)?,
            value: self.object_slot(Records::<K, V, M, PREFIX>::value_out_of_line(word))?,
        })
    }

    /// Returns the slot of an object that is durable.
    #[inline(always)]
    fn object_slot(&self, at: Option<SlotRef>) -> Result<Option<ObjectSlot>, PmError> {
        let Some(at) = at else { return Ok(None) };
        Ok(Some(ObjectSlot { at, words: self.records.object_slot_words(at)? }))
    }

    /// Takes the slots of objects back; returns whether it is time to [move](Self::move_objects) some.
    #[inline(always)]
    pub(crate) fn release_objects(&self, objects: Objects) -> Result<bool, PmError> {
        let mut tidy = false;
        for object in [objects.key, objects.value].into_iter().flatten() {
            tidy |= self.chunks.release_object(&self.pool, object.at, object.words)?;
        }
        Ok(tidy)
    }

    /// See [`DurabilityLost::after_the_write`].
    #[inline(always)]
    fn after_the_write(released: Result<bool, PmError>) -> Result<bool, PmError> {
        let tidy = matches!(released, Ok(true));
        DurabilityLost::after_the_write(released.map(drop))?;
        Ok(tidy)
    }

    /// Changes bits of a record's line and flushes it.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn change_live(&self, slot: SlotRef, change: Rmw) -> Result<Flushed, PmError> {
        self.change_bits(slot, change)?;
        self.flush_bits(slot)
    }

    /// Changes bits of a record's line.
    #[inline(always)]
    pub(crate) fn change_bits(&self, slot: SlotRef, change: Rmw) -> Result<(), PmError> {
        let cell = self.line_cell(slot)?;
        self.pm().in_order(); // the records on the line persist before it
        self.pm().rmw_word(cell, change);
        Ok(())
    }

    /// Flushes a record's line.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn flush_bits(&self, slot: SlotRef) -> Result<Flushed, PmError> {
        Ok(self.pm().flush_words(words_of(self.line_cell(slot)?)))
    }

    /// Returns a record's bit in the commit word of its line.
    #[inline(always)]
    pub(crate) const fn bit_of(slot: SlotRef) -> u64 {
        slot.line_bit(record_words::<K>())
    }

    /// Returns the commit word of a record's line.
    #[inline(always)]
    pub(crate) fn line_cell(&self, slot: SlotRef) -> Result<&PmU64, PmError> {
        Ok(&self.pool.words(slot.line(), 1)?[0])
    }

    /// Returns its line word.
    #[inline(always)]
    pub(crate) fn line_word(&self, slot: SlotRef) -> Result<LineWord, PmError> {
        Ok(LineWord::new(self.pm().load_word(self.line_cell(slot)?)))
    }

    /// Returns `true` if a record's bit is set.
    pub(crate) fn is_live(&self, slot: SlotRef) -> Result<bool, PmError> {
        Ok(self.line_word(slot)?.live() & Self::bit_of(slot) != 0)
    }

    /// Replaces the value of a record whose key's lock is held; returns as
    /// [`release_objects`](Self::release_objects).
    #[inline(always)]
    fn update_held(&self, slot: SlotRef, datum: &EncodedValue<'_, V>) -> Result<bool, PmError> {
        let mut object = None;
        match self.replace_value(slot, datum, &mut object) {
            Ok(old) => {
                let value = Records::<K, V, M, PREFIX>::value_out_of_line(old);
                let released = self
                    .object_slot(value)
                    .and_then(|value| self.release_objects(Objects { key: None, value }));
                Self::after_the_write(released)
            }
            Err(error) => self.give_up_object(object, error),
        }
    }

    /// Takes back the slot of an object to which nothing leads: the fence that was to make it, or the
    /// pointer to it, durable failed, and the medium put the old value word back.
    #[cold]
    #[inline(never)]
    fn give_up_object(&self, value: Option<ObjectSlot>, error: PmError) -> Result<bool, PmError> {
        self.release_objects(Objects { key: None, value })?;
        Err(error)
    }

    /// Replaces the word of a value, which is returned, and notes the new value's object.
    #[inline(always)]
    fn replace_value(
        &self,
        slot: SlotRef,
        datum: &EncodedValue<'_, V>,
        object: &mut Option<ObjectSlot>,
    ) -> Result<u64, PmError> {
        let pm = self.pm();
        let cell = self.records.value_cell(slot)?;
        let outgoing = Outgoing::of(datum);
        let mut word = 0;
        if let Outgoing::Word(whole) = outgoing {
            word = whole;
        } else if let Some(bytes) = outgoing.bytes() {
            // P1: the object.
            let written = self.write_object(bytes)?;
            *object = Some(written);
            let at = written.at;
            let written = pm.flush_words(self.records.written_words(at, bytes.len())?);
            pm.fence(written)?;
            word = ValueWord::Object(at).into_word();
        }
        let old = pm.load_word(cell);
        pm.store_word(cell, word); // P2, LIN
        let stored = pm.flush_words(words_of(cell));
        pm.fence(stored)?; // DUR
        Ok(old)
    }
}

/// A record that is not linked yet: dropped before it is (an error, a panic), it is taken back. Its
/// key's lock is held.
pub(crate) struct Pending<'t, K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
{
    tree: &'t Hart<K, V, M, CHUNK, PREFIX>,
    pub(crate) slot: SlotRef,
    pub(crate) objects: Objects,
    /// `true` if its `live` bit may be set.
    pub(crate) live: bool,
}

impl<'t, K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Pending<'t, K, V, M, CHUNK, PREFIX>
{
    /// Takes a slot.
    #[inline(always)]
    pub(crate) fn take(
        tree: &'t Hart<K, V, M, CHUNK, PREFIX>,
        root: &Root,
        hand: &mut Hand,
    ) -> Result<Self, PmError> {
        let slot = tree.chunks.take_record(&tree.pool, root, hand, record_words::<K>())?;
        Ok(Self { tree, slot, objects: Objects::default(), live: false })
    }

    /// Writes the record, and its objects if it has any: these are to be flushed, and must be durable
    /// (step P1) before its bit is set. The record itself is on the bit's line.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn write(&mut self, record: &Incoming<'_, K, V>) -> Result<(), PmError> {
        let tree = self.tree;
        let outgoing = Outgoing::of(record.datum);
        if let Some(key) = record.long_key() {
            self.objects.key = Some(tree.write_object(key)?);
        }
        let value = if let Outgoing::Word(word) = &outgoing {
            *word
        } else {
            let object = tree.write_object(outgoing.bytes().unwrap_or(&[]))?;
            self.objects.value = Some(object);
            ValueWord::Object(object.at).into_word()
        };
        let cells = tree.records.words(self.slot)?;
        let mut words = [0; 5];
        let long = self.objects.key.map(|object| object.at);
        Records::<K, V, M, PREFIX>::encode(&mut words, record.probe, long, value);
        for (cell, &word) in cells.iter().zip(&words) {
            tree.pm().store_word(cell, word);
        }
        Ok(())
    }

    /// Flushes the objects that [`write`](Self::write) has written.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn flush_objects(
        &self,
        record: &Incoming<'_, K, V>,
    ) -> Result<Option<Flushed>, PmError> {
        if self.objects.key.is_none() && self.objects.value.is_none() {
            return Ok(None);
        }
        Ok(Some(self.tree.pm().flush_together(&mut self.words_of_objects(record)?)))
    }

    /// Returns the words of the objects that [`write`](Self::write) has written, of the key's and of the
    /// value's. Several records are written before the first one is flushed: slots are handed out
    /// under locks, and a locked instruction waits for every flush before it.
    #[inline(always)]
    pub(crate) fn words_of_objects(
        &self,
        record: &Incoming<'_, K, V>,
    ) -> Result<[&'t [PmU64]; 2], PmError> {
        let (tree, value) = (self.tree, Outgoing::of(record.datum));
        let words = |object: Option<ObjectSlot>, bytes: Option<&[u8]>| match (object, bytes) {
            (Some(object), Some(bytes)) => tree.records.written_words(object.at, bytes.len()),
            _ => Ok([].as_slice()),
        };
        Ok([words(self.objects.key, record.long_key())?, words(self.objects.value, value.bytes())?])
    }

    /// Makes the durable record visible; `spot`: where the search for its key ended.
    #[inline(always)]
    pub(crate) fn link(
        self,
        record: &Incoming<'_, K, V>,
        spot: Option<Spot<'_>>,
    ) -> Result<(), PmError> {
        let tree = self.tree;
        let home = Hart::<K, V, M, CHUNK, PREFIX>::home(record.key.bytes());
        tree.directory.mark(home.entry);
        let (pm, top, number) = (tree.pm(), tree.tree(home.entry), self.slot.number());
        match spot {
            Some(spot) => top.insert_at(pm, spot, home.rest, number)?, // LIN
            None => top.insert(pm, home.rest, number)?,                // LIN
        };
        tree.count(record.probe.hash(), 1);
        std::mem::forget(self);
        Ok(())
    }

    /// Keeps the record as it is: it is the caller's from now on.
    pub(crate) fn keep(self) -> SlotRef {
        let slot = self.slot;
        std::mem::forget(self);
        slot
    }

    fn take_back(&self) -> Result<(), PmError> {
        let tree = self.tree;
        if self.live {
            let bit = Hart::<K, V, M, CHUNK, PREFIX>::bit_of(self.slot);
            let cleared = tree.change_live(self.slot, Rmw::And(!bit))?;
            tree.pm().fence(cleared)?; // durable before: reuse
        }
        let line = tree.line_word(self.slot)?;
        let _ = tree.chunks.release_record(&tree.pool, self.slot, line, record_words::<K>())?;
        tree.release_objects(self.objects).map(drop)
    }
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> Drop
    for Pending<'_, K, V, M, CHUNK, PREFIX>
{
    #[cold]
    fn drop(&mut self) {
        // If this fails (the medium does), the next opening takes back what is not live.
        let _ = self.tree.pool.complete(|| self.take_back());
    }
}

/// A record that is about to leave its tree: dropped before it has (an error, a panic), its `live`
/// bit is set again. Its key's lock is held.
struct Restore<'t, K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> {
    tree: &'t Hart<K, V, M, CHUNK, PREFIX>,
    slot: SlotRef,
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> Drop
    for Restore<'_, K, V, M, CHUNK, PREFIX>
{
    #[cold]
    fn drop(&mut self) {
        let bit = Hart::<K, V, M, CHUNK, PREFIX>::bit_of(self.slot);
        if let Ok(set) = self.tree.change_live(self.slot, Rmw::Or(bit)) {
            // If this fails, nothing more is acknowledged.
            let _ = self.tree.pm().fence(set);
        }
    }
}
