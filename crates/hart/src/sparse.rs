//! Emptying chunks of which little is left.
//!
//! A removal that leaves a chunk of records sparse, while more than 2/5 of the slots for records are free,
//! moves the records that are left in it to free slots of other chunks, and gives the chunk back. So records
//! take at most about 5/3 of the space that they need, wherever they were removed.
//!
//! An object does not say whose it is. A removal, or an update, that leaves a chunk of objects sparse, while
//! more than 1/3 of the space for objects is free, visits the records of the next chunk, in turn, and moves
//! those with an object in a sparse chunk, and these objects with them.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P0 | copies of the objects that are moved, if there are any | P1 |
//! | P1 | copies of the records, behind them on their lines their bits | P2 |
//! |    | the trees lead to the copies (LIN: nothing that a reader could see changes) | |
//! | P2 | the bits of the originals are cleared | reuse of their slots and objects, any change of the records |
//!
//! After a crash between P1 and P2 a record is there twice. The keys' locks are held until P2 is durable, so
//! both have the same key and value: recovery drops either ([`drop_twins`](Hart::drop_twins)), durably before
//! anything changes the other. Records with one key that differ are damage.
//!
//! What cannot be moved stays: a record whose key's lock is taken, a slot whose record is on its way.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Flushed, Medium, PmError, PmU64, Rmw, Word, words_of};
use pmindex_index::{Key, Value};
use pmindex_record::Probe;

use crate::epalloc::Sparse;
use crate::layout::{SlotRef, ValueWord, key_words, record_words};
use crate::record::KeyBytes;
use crate::sorted::Item;
use crate::tree::Hart;
use crate::write::{ObjectSlot, Objects, Pending};

/// The largest number of chunks whose records are visited to find objects to move.
const VISITS: usize = 4;

/// A record that is moved.
struct Move<'t, K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> {
    key: K,
    from: SlotRef,
    /// Those of its objects that are moved with it.
    old: Objects,
    /// The copy with its new objects, until the trees lead to it.
    copy: Option<Pending<'t, K, V, M, CHUNK, PREFIX>>,
}

/// Records that are moved together. Dropped early (an error, a panic), what the trees lead to is kept: copies
/// without a link are taken back, originals without one lose their bits.
struct Moving<'t, K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> {
    tree: &'t Hart<K, V, M, CHUNK, PREFIX>,
    records: Vec<Move<'t, K, V, M, CHUNK, PREFIX>>,
    // Dropped after the records.
    guards: Vec<VersionGuard<'t>>,
    /// The chunk that is emptied.
    chunk: Option<Sparse<'t, M>>,
}

/// A record that is dropped, and the one that has the same key and value.
pub(crate) type Twins = (SlotRef, SlotRef);

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Hart<K, V, M, CHUNK, PREFIX>
{
    /// Moves the records of a chunk to others and gives it back, if that saves space. What fails leaves the
    /// records where they are: the write that called has succeeded.
    #[cold]
    #[inline(never)]
    pub(crate) fn empty_chunk(&self, number: u32) {
        if let Some(chunk) = self.chunks.take_sparse(&self.pool, number) {
            let slots = Self::slots_of(chunk.base, chunk.taken);
            let mut moving = Moving::new(self, Some(chunk));
            slots.for_each(|slot| moving.add(slot));
            moving.run();
        }
    }

    /// Moves objects out of chunks with few, if that saves space, those of the records in the next chunk of
    /// records that has any. As [`empty_chunk`](Self::empty_chunk).
    #[cold]
    #[inline(never)]
    pub(crate) fn move_objects(&self) {
        if !self.chunks.may_visit() || !self.chunks.are_roomy(self.pm(), true) {
            return;
        }
        for _ in 0..VISITS {
            let Some((base, taken)) = self.chunks.next_visited(self.pm()) else { return };
            let mut moving = Moving::new(self, None);
            let slots = Self::slots_of(base, taken).filter(|&slot| self.has_movable(slot));
            slots.for_each(|slot| moving.add(slot));
            if !moving.records.is_empty() {
                self.chunks.note_visited(true);
                return moving.run();
            }
        }
        self.chunks.note_visited(false);
    }

    /// Whether the record in a slot seems to have an object that should move. A hint: no lock is held.
    fn has_movable(&self, slot: SlotRef) -> bool {
        let movable = |object: Option<ObjectSlot>| {
            object.is_some_and(|ObjectSlot { at, words }| {
                self.chunks.is_movable(&self.pool, at, words)
            })
        };
        self.objects_of(slot).is_ok_and(|objects| movable(objects.key) || movable(objects.value))
    }

    /// Removes from records in order of keys those whose key and value another one has too, of which a move
    /// was interrupted, and returns both.
    pub(crate) fn drop_twins(&self, items: &mut Vec<Item>) -> Result<Vec<Twins>, PmError> {
        let mut twins: Vec<Twins> = Vec::new();
        for at in 1..items.len() {
            let (a, b) = (items[at - 1], items[at]);
            if a.word() == b.word() && self.are_same(a.slot, b.slot)? {
                twins.push((a.slot, b.slot));
            }
        }
        if !twins.is_empty() {
            items.retain(|item| twins.iter().all(|(dropped, _)| *dropped != item.slot));
        }
        Ok(twins)
    }

    /// Returns `true` if two records have the same key and the same value.
    fn are_same(&self, a: SlotRef, b: SlotRef) -> Result<bool, PmError> {
        let (words, others) = (self.words_of_record(a)?, self.words_of_record(b)?);
        if words == others {
            return Ok(true);
        }
        let (objects, copies) = (self.objects_of(a)?, self.objects_of(b)?);
        // Which object it is makes no difference.
        let plain = |mut words: [u64; 5], objects: Objects| {
            objects.key.inspect(|_| words[1] = 0);
            objects.value.inspect(|_| words[key_words::<K>()] = 0);
            words
        };
        Ok(plain(words, objects) == plain(others, copies)
            && self.are_copies(objects.key, copies.key)?
            && self.are_copies(objects.value, copies.value)?)
    }

    fn are_copies(&self, a: Option<ObjectSlot>, b: Option<ObjectSlot>) -> Result<bool, PmError> {
        let (Some(a), Some(b)) = (a, b) else { return Ok(a.is_none() && b.is_none()) };
        Ok(a.words == b.words && self.object_words(a)? == self.object_words(b)?)
    }

    /// Returns the words of an object.
    fn object_words(&self, object: ObjectSlot) -> Result<Vec<u64>, PmError> {
        let words = self.written(object)?;
        Ok(words.iter().map(|word| self.pm().load_word(word)).collect())
    }

    /// Returns the cells of an object that its length says are written.
    fn written(&self, object: ObjectSlot) -> Result<&[PmU64], PmError> {
        let slot = self.pool.words(object.at.offset(), object.words)?;
        let len = self.pm().load_word(&slot[0]).div_ceil(8) as usize;
        Ok(&slot[..(1 + len).min(slot.len())])
    }

    /// Clears the bits of records that were there twice, durably before the index is in use, and frees the
    /// objects that only they had; `shared` are the objects that other records than their first have, once for
    /// each of these.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]: records share objects that are not the same record.
    pub(crate) fn clear_twins(
        &self,
        twins: &[Twins],
        mut shared: Vec<SlotRef>,
    ) -> Result<(), PmError> {
        let (mut explained, mut own) = (Vec::new(), Vec::new());
        for &(dropped, kept) in twins {
            let (objects, others) = (self.objects_of(dropped)?, self.objects_of(kept)?);
            for (object, other) in [(objects.key, others.key), (objects.value, others.value)] {
                match (object, other) {
                    (Some(object), Some(other)) if object.at == other.at => {
                        explained.push(object.at);
                    }
                    (Some(object), _) => own.push(object),
                    _ => {}
                }
            }
        }
        shared.sort_unstable_by_key(|object| object.number());
        explained.sort_unstable_by_key(|object| object.number());
        if explained != shared {
            let offset = shared.first().map_or(0, |object| object.offset());
            return Err(PmError::Corrupt { what: "an object of no record, or of two", offset });
        }
        if twins.is_empty() {
            return Ok(());
        }
        let mut cleared = Flushed::nothing();
        for &(dropped, _) in twins {
            let line = self.change_live(dropped, Rmw::And(!Self::bit_of(dropped)))?;
            cleared = cleared.and(line);
        }
        self.pm().fence(cleared)?; // durable before: any change of the others
        for &(dropped, _) in twins {
            let line = self.line_word(dropped)?;
            let number = self.chunks.number_of_record(dropped, line, record_words::<K>())?;
            self.chunks.unmark(number, dropped.slot());
        }
        for object in own {
            let number = self.chunks.number_of(&self.pool, object.at, object.words)?;
            self.chunks.unmark(number, object.at.slot());
        }
        Ok(())
    }

    fn words_of_record(&self, slot: SlotRef) -> Result<[u64; 5], PmError> {
        let mut words = [0; 5];
        let cells = self.records.words(slot)?;
        words.iter_mut().zip(cells).for_each(|(word, cell)| *word = self.pm().load_word(cell));
        Ok(words)
    }

    /// Flushes the lines of records, neighbours' line once.
    #[track_caller]
    fn flush_lines(&self, slots: impl Iterator<Item = SlotRef>) -> Result<Flushed, PmError> {
        let mut lines: Vec<SlotRef> = slots.collect();
        lines.dedup_by_key(|slot| slot.line());
        let cells = lines.iter().map(|&slot| Ok(words_of(self.line_cell(slot)?)));
        let mut cells = cells.collect::<Result<Vec<&[PmU64]>, PmError>>()?;
        Ok(self.pm().flush_together(&mut cells))
    }

    /// Takes a slot for a copy of an object that should be moved; `None` if it stays.
    fn place_for(&self, object: Option<ObjectSlot>) -> Option<ObjectSlot> {
        let ObjectSlot { at, words } = object?;
        if !self.chunks.is_movable(&self.pool, at, words) {
            return None;
        }
        let at = self.chunks.take_object(&self.pool, self.root().ok()?, words).ok()?;
        Some(ObjectSlot { at, words })
    }
}

impl<'t, K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Moving<'t, K, V, M, CHUNK, PREFIX>
{
    fn new(tree: &'t Hart<K, V, M, CHUNK, PREFIX>, chunk: Option<Sparse<'t, M>>) -> Self {
        Self { tree, records: Vec::new(), guards: Vec::new(), chunk }
    }

    /// Adds the record in a slot, if the trees lead to it, its key's lock is free, and it or an object of it
    /// should move. Takes slots for the copies.
    fn add(&mut self, slot: SlotRef) {
        let (tree, pm) = (self.tree, self.tree.pm());
        // A slot that was handed out has any contents.
        let Ok(key) = tree.records.key(slot) else { return };
        let probe = Probe::<K>::of_stored(&key);
        let lock = tree.lock_of(probe.hash());
        let mut guard = None;
        if !self.guards.iter().any(|guard| guard.is_of(lock)) {
            guard = lock.try_lock(pm);
            if guard.is_none() {
                return;
            }
        }
        // Under its key's lock a record that is linked is durable, and stays where it is.
        let bytes = KeyBytes::of(&probe);
        let home = Hart::<K, V, M, CHUNK, PREFIX>::home(bytes.bytes());
        let there = tree.tree(home.entry).find(pm, home.rest);
        let linked = there.is_some_and(|place| {
            let same = tree.records.key_is(slot, &probe) == Ok(true);
            place.leaf == slot.number() && place.validate(pm) && same
        });
        if !linked {
            return;
        }
        let (Ok(root), Ok(objects)) = (tree.root(), tree.objects_of(slot)) else { return };
        let mut new = Objects::default();
        if self.chunk.is_none() {
            new.key = tree.place_for(objects.key);
            new.value = tree.place_for(objects.value);
            if new.key.is_none() && new.value.is_none() {
                return;
            }
        }
        let taken = Pending::take(tree, root, &mut tree.chunks.hand(pm));
        let Ok(mut copy) = taken else {
            let _ = tree.release_objects(new);
            return;
        };
        copy.objects = new;
        let old = Objects {
            key: objects.key.filter(|_| new.key.is_some()),
            value: objects.value.filter(|_| new.value.is_some()),
        };
        self.guards.extend(guard);
        self.records.push(Move { key, from: slot, old, copy: Some(copy) });
    }

    /// Moves the records. What fails leaves them where they are, or both, which dropping this settles.
    fn run(mut self) {
        if !self.records.is_empty() {
            let _ = self.copy_objects().and_then(|()| self.copy()).and_then(|()| self.link());
        }
    }

    /// Step P0.
    #[track_caller]
    fn copy_objects(&mut self) -> Result<(), PmError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        pm.keep_stores(); // what is done is done
        let mut written: Vec<&[PmU64]> = Vec::new();
        for Move { old, copy, .. } in &self.records {
            let Some(new) = copy.as_ref().map(|copy| copy.objects) else { continue };
            for (old, new) in [(old.key, new.key), (old.value, new.value)] {
                let (Some(old), Some(new)) = (old, new) else { continue };
                let words = tree.object_words(old)?;
                let cells = tree.pool.words(new.at.offset(), words.len())?;
                cells.iter().zip(&words).for_each(|(cell, &word)| pm.store_word(cell, word));
                written.push(cells);
            }
        }
        if !written.is_empty() {
            let flushed = pm.flush_together(&mut written);
            pm.fence(flushed)?; // durable before: P1
        }
        Ok(())
    }

    /// Step P1.
    #[track_caller]
    fn copy(&mut self) -> Result<(), PmError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        for record in &mut self.records {
            let Some(copy) = &mut record.copy else { continue };
            let mut words = tree.words_of_record(record.from)?;
            if let Some(key) = copy.objects.key {
                words[1] = ValueWord::Object(key.at).into_word();
            }
            if let Some(value) = copy.objects.value {
                words[key_words::<K>()] = ValueWord::Object(value.at).into_word();
            }
            let cells = tree.records.words(copy.slot)?;
            cells.iter().zip(&words).for_each(|(cell, &word)| pm.store_word(cell, word));
            copy.live = true;
            let bit = Hart::<K, V, M, CHUNK, PREFIX>::bit_of(copy.slot);
            tree.change_bits(copy.slot, Rmw::Or(bit))?;
        }
        let copies = self.records.iter().filter_map(|record| Some(record.copy.as_ref()?.slot));
        let written = tree.flush_lines(copies)?;
        pm.fence(written)?; // durable before: P2
        Ok(())
    }

    /// Leads the trees to the copies, then step P2.
    fn link(&mut self) -> Result<(), PmError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        for record in &mut self.records {
            let Some(to) = record.copy.as_ref().map(|copy| copy.slot.number()) else { continue };
            let probe = Probe::<K>::of_stored(&record.key);
            let bytes = KeyBytes::of(&probe);
            let home = Hart::<K, V, M, CHUNK, PREFIX>::home(bytes.bytes());
            tree.tree(home.entry).upsert(pm, home.rest, to)?; // LIN
            record.copy.take().map(Pending::keep);
        }
        self.settle()
    }

    /// Step P2, for the records that were linked.
    fn settle(&mut self) -> Result<(), PmError> {
        let tree = self.tree;
        let moved = || self.records.iter().filter(|record| record.copy.is_none());
        if moved().next().is_none() {
            return Ok(());
        }
        let cleared = tree.pool.complete(|| {
            for record in moved() {
                let bit = Hart::<K, V, M, CHUNK, PREFIX>::bit_of(record.from);
                tree.change_bits(record.from, Rmw::And(!bit))?;
            }
            let cleared = tree.flush_lines(moved().map(|record| record.from))?;
            tree.pm().fence(cleared)?; // durable before: reuse
            Ok(())
        });
        for record in moved() {
            let line = tree.line_word(record.from)?;
            let words = record_words::<K>();
            let _ = tree.chunks.release_record(&tree.pool, record.from, line, words)?;
            tree.release_objects(record.old)?;
        }
        self.records.retain(|record| record.copy.is_some());
        cleared
    }
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> Drop
    for Moving<'_, K, V, M, CHUNK, PREFIX>
{
    fn drop(&mut self) {
        // If this fails (the medium does), the next opening drops one of the two.
        let _ = self.settle();
    }
}
