//! Emptying chunks of records of which few are left.
//!
//! A removal that leaves a chunk of records sparse, while more than 2/5 of the slots for records are free,
//! moves the records that are left in it to free slots of other chunks, and gives the chunk back. So records
//! take at most about 5/3 of the space that they need, wherever they were removed. A record is not changed by
//! a move, nor are its objects touched: copy and original have the same words.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the copies, behind them on their lines their bits | P2 |
//! |    | the trees lead to the copies (LIN: nothing that a reader could see changes) | |
//! | P2 | the bits of the originals are cleared | reuse of their slots, any change of the records |
//!
//! After a crash between P1 and P2 a record is there twice. The keys' locks are held until P2 is durable, so
//! both are the same, word for word, down to the objects that they lead to: recovery drops either
//! ([`drop_twins`](Hart::drop_twins)), durably before anything changes the other. Records with one key that
//! differ are damage.
//!
//! What cannot be moved stays: a record whose key's lock is taken, a slot whose record is on its way. The
//! chunk is on its shelf again then.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Flushed, Medium, PmError, PmU64, Rmw, words_of};
use pmindex_index::{Key, Value};
use pmindex_record::Probe;

use crate::epalloc::Sparse;
use crate::layout::{SlotRef, record_words};
use crate::record::KeyBytes;
use crate::sorted::Item;
use crate::tree::Hart;
use crate::write::Pending;

/// A record that is moved.
struct Move<'t, K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> {
    key: K,
    from: SlotRef,
    /// The copy, until the trees lead to it.
    copy: Option<Pending<'t, K, V, M, CHUNK, PREFIX>>,
}

/// The records of a chunk that are moved together. Dropped early (an error, a panic), what the trees lead to is
/// kept: copies without a link are taken back, originals without one lose their bits.
struct Moving<'t, K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> {
    tree: &'t Hart<K, V, M, CHUNK, PREFIX>,
    records: Vec<Move<'t, K, V, M, CHUNK, PREFIX>>,
    // Dropped after the records.
    guards: Vec<VersionGuard<'t>>,
    _chunk: Sparse<'t, M>,
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Hart<K, V, M, CHUNK, PREFIX>
{
    /// Moves the records of a chunk to others and gives it back, if that saves space. What fails leaves the
    /// records where they are: the removal that called has succeeded.
    #[cold]
    #[inline(never)]
    pub(crate) fn empty_chunk(&self, number: u32) {
        let Some(chunk) = self.chunks.take_sparse(&self.pool, number) else { return };
        let slots = Self::slots_of(chunk.base, chunk.taken);
        let (records, guards) = (Vec::new(), Vec::new());
        let mut moving = Moving { tree: self, records, guards, _chunk: chunk };
        slots.for_each(|slot| moving.add(slot));
        if !moving.records.is_empty() {
            // Dropped, it keeps what the trees lead to.
            let _ = moving.copy().and_then(|()| moving.link());
        }
    }

    /// Removes from records in order of keys those that another one equals word for word, of which a move was
    /// interrupted, and returns them.
    pub(crate) fn drop_twins(&self, items: &mut Vec<Item>) -> Result<Vec<SlotRef>, PmError> {
        let mut twins = Vec::new();
        for at in 1..items.len() {
            let (a, b) = (items[at - 1], items[at]);
            if a.word() == b.word()
                && self.words_of_record(a.slot)? == self.words_of_record(b.slot)?
            {
                twins.push(a.slot);
            }
        }
        if !twins.is_empty() {
            items.retain(|item| !twins.contains(&item.slot));
        }
        Ok(twins)
    }

    /// Clears the bits of records that were there twice, durably before the index is in use; `sharing` are the
    /// records with an object that another one has too.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]: records share objects that are not the same record.
    pub(crate) fn clear_twins(
        &self,
        twins: &[SlotRef],
        sharing: &[SlotRef],
    ) -> Result<(), PmError> {
        let mut explained = 0;
        for &twin in twins {
            let objects = self.objects_of(twin)?;
            explained += usize::from(objects.key.is_some() || objects.value.is_some());
        }
        if explained != sharing.len() {
            let offset = sharing.first().map_or(0, |slot| slot.offset());
            return Err(PmError::Corrupt { what: "an object of no record, or of two", offset });
        }
        if twins.is_empty() {
            return Ok(());
        }
        let mut cleared = Flushed::nothing();
        for &twin in twins {
            let line = self.change_live(twin, Rmw::And(!Self::bit_of(twin)))?;
            cleared = cleared.and(line);
        }
        self.pm().fence(cleared)?;
        for &twin in twins {
            let line = self.line_word(twin)?;
            let number = self.chunks.number_of_record(twin, line, record_words::<K>())?;
            self.chunks.unmark(number, twin.slot());
        }
        Ok(())
    }

    fn words_of_record(&self, slot: SlotRef) -> Result<[u64; 5], PmError> {
        let mut words = [0; 5];
        let cells = self.records.words(slot)?;
        words.iter_mut().zip(cells).for_each(|(word, cell)| *word = self.pm().load_word(cell));
        Ok(words)
    }
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Moving<'_, K, V, M, CHUNK, PREFIX>
{
    /// Adds the record in a slot, if the trees lead to it and its key's lock is free, and takes a slot for it.
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
        let same = there.is_some_and(|place| {
            let same = tree.records.key_is(slot, &probe) == Ok(true);
            place.leaf == slot.number() && place.validate(pm) && same
        });
        if !same {
            return;
        }
        let Ok(root) = tree.root() else { return };
        let Ok(copy) = Pending::take(tree, root, &mut tree.chunks.hand(pm)) else { return };
        self.guards.extend(guard);
        self.records.push(Move { key, from: slot, copy: Some(copy) });
    }

    /// Step P1.
    #[track_caller]
    fn copy(&mut self) -> Result<(), PmError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        pm.keep_stores(); // what is done is done
        for record in &mut self.records {
            let Some(copy) = &mut record.copy else { continue };
            let words = tree.words_of_record(record.from)?;
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
        }
        self.records.retain(|record| record.copy.is_some());
        cleared
    }
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Hart<K, V, M, CHUNK, PREFIX>
{
    /// Flushes the lines of records, neighbours' line once.
    #[track_caller]
    fn flush_lines(&self, slots: impl Iterator<Item = SlotRef>) -> Result<Flushed, PmError> {
        let mut lines: Vec<SlotRef> = slots.collect();
        lines.dedup_by_key(|slot| slot.line());
        let cells = lines.iter().map(|&slot| Ok(words_of(self.line_cell(slot)?)));
        let mut cells = cells.collect::<Result<Vec<&[PmU64]>, PmError>>()?;
        Ok(self.pm().flush_together(&mut cells))
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
