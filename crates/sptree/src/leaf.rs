//! A Bnode: placing, replacing and removing one record.
//!
//! Everything that persists here runs under the version lock of the Bnode's Mnode, which is held until
//! the last fence, so no thread sees what a crash could take back.
//!
//! | operation | step | store | durable before |
//! |-----------|------|-------|----------------|
//! | insert (a record in one line) | P1 | its slot, the first key word last; its tag; [`Pending`], then the bit of the bitmap (LIN: the unlock after it) | return (DUR) |
//! | insert (others) | P1 | the record's block (byte strings), its slot, its tag | P2 |
//! |           | P2 | bit of the bitmap (LIN: as above) | return (DUR) |
//! | update    | P1 | the new block (byte strings), or the new record and its tag in a free slot | P2 |
//! |           | P2 | the one word of the value or block, or two bits of the bitmap (LIN: as above) | return (DUR) |
//! | remove    | P1 | byte strings: the ticket of the block | P2 |
//! |           | P2 | bit of the bitmap (LIN: as above) | return (DUR) |
//!
//! An insert of a record that lies in one line takes **one fence** (the paper: two). Its three lines
//! become durable in any order. Without the bitmap's line nothing has happened; without the slot's line
//! the bitmap names a record that is not there, which [`Pending`] tells exactly, so recovery clears the
//! bit; without the tag's line recovery writes the tag. The insert has not returned, and no thread has seen
//! it: its lock was held.
//!
//! An update of an 8-byte value has no P1, nor has the removal of an inline record: one line, one
//! fence. The caller then updates the Mnode's tags.

use std::marker::PhantomData;

use pmindex_core::{Durable, Flushed, Medium, Op, Owner, PmError, PmU64, Pool, Word, words_of};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{EncodedValue, Pending, Probe, RecordBlock, Route, Slot, bits};

use crate::layout::{BnodePtr, Geometry, HEADER_WORDS, MAX_LEAF, Next, Taken, tag_of};
use crate::log::SEQ_MAX;

/// A Bnode in a pool, its bounds checked.
pub(crate) struct Bnode<'p, K, V, const LEAF: usize> {
    words: &'p [PmU64],
    offset: u64,
    record: PhantomData<fn() -> (K, V)>,
}

impl<K, V, const LEAF: usize> Clone for Bnode<'_, K, V, LEAF> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, V, const LEAF: usize> Copy for Bnode<'_, K, V, LEAF> {}

impl<'p, K: Key, V: Value, const LEAF: usize> Bnode<'p, K, V, LEAF> {
    /// The Bnode at `offset`.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the pool has no room for a Bnode there.
    #[inline(always)]
    pub(crate) fn at<M: Medium>(pool: &'p Pool<M>, offset: u64) -> Result<Self, PmError> {
        let words = pool.words(offset, Geometry::<K, V, LEAF>::WORDS)?;
        Ok(Self { words, offset, record: PhantomData })
    }

    /// Returns its offset.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns all of it, for bulk copies.
    pub(crate) fn words(&self) -> &'p [PmU64] {
        self.words
    }

    #[inline(always)]
    fn header(&self) -> &'p [PmU64] {
        &self.words[..HEADER_WORDS]
    }

    /// Returns the commit word.
    #[inline(always)]
    pub(crate) fn bitmap_cell(&self) -> &'p PmU64 {
        &self.words[0]
    }

    /// Returns the commit word's value.
    #[inline(always)]
    pub(crate) fn taken(&self, pm: &impl Medium) -> Taken {
        Taken::from_word(pm.load_word(self.bitmap_cell()))
    }

    fn pending_cell(&self) -> &'p PmU64 {
        &self.words[Geometry::<K, V, LEAF>::PENDING]
    }

    /// Returns the slot of the last insert with one fence.
    pub(crate) fn last_inserted(&self, pm: &impl Medium) -> Option<usize> {
        Pending::of_word(pm.load_word(self.pending_cell())).slot().filter(|&i| i < LEAF)
    }

    /// Returns the last insert with one fence: its slot, and whether its record is in it.
    fn pending(&self, pm: &impl Medium) -> Option<(usize, bool)> {
        let pending = Pending::of_word(pm.load_word(self.pending_cell()));
        let slot = pending.slot().filter(|&i| i < LEAF)?;
        Some((slot, pending.is_there(pm.load_word(&self.slot(slot)[0]))))
    }

    /// Returns the slot of the last insert with one fence, if the bitmap has it and the record is in it. Before
    /// recovery its tag may be missing.
    pub(crate) fn pending_slot(&self, pm: &impl Medium) -> Option<usize> {
        let (slot, there) = self.pending(pm)?;
        (there && self.taken(pm).slots() >> slot & 1 == 1).then_some(slot)
    }

    /// Returns the bitmap without an insert with one fence whose record a crash has lost. For use before recovery.
    pub(crate) fn taken_without_lost(&self, pm: &impl Medium) -> Taken {
        // In this order: recovery changes the bitmap, and only later writes clear `pending`.
        let pending = self.pending(pm);
        let taken = self.taken(pm);
        match pending {
            Some((slot, false)) => taken.without(slot),
            _ => taken,
        }
    }

    /// Slot `i`.
    #[inline(always)]
    pub(crate) fn slot(&self, i: usize) -> &'p [PmU64] {
        let words = Slot::<K, V>::WORDS;
        &self.words[Geometry::<K, V, LEAF>::SLOTS + i * words..][..words]
    }

    /// Returns all slots.
    #[inline(always)]
    pub(crate) fn slots(&self) -> &'p [PmU64] {
        &self.words[Geometry::<K, V, LEAF>::SLOTS..][..LEAF * Slot::<K, V>::WORDS]
    }

    /// Returns the cell of the link to the next Bnode.
    #[inline(always)]
    pub(crate) fn next_cell(&self) -> &'p PmU64 {
        &self.words[1]
    }

    /// Returns the next Bnode.
    #[inline(always)]
    pub(crate) fn next(&self, pm: &impl Medium) -> Next {
        Next::from_word(pm.load_word(self.next_cell()))
    }

    /// Returns the cell that says which log entries this Bnode has absorbed.
    #[inline(always)]
    pub(crate) fn applied_cell(&self) -> &'p PmU64 {
        &self.words[Geometry::<K, V, LEAF>::APPLIED]
    }

    /// Returns the sequence number up to which this Bnode has absorbed its chain.
    pub(crate) fn applied(&self, pm: &impl Medium) -> Result<u64, PmError> {
        let applied = pm.load_word(self.applied_cell());
        if applied > SEQ_MAX {
            let what = "which log entries a Bnode has";
            return Err(PmError::Corrupt { what, offset: self.offset() });
        }
        Ok(applied)
    }

    /// Returns the cells of the low key.
    pub(crate) fn low_cells(&self) -> &'p [PmU64] {
        &self.words[Geometry::<K, V, LEAF>::LOW..][..Geometry::<K, V, LEAF>::LOW_WORDS]
    }

    /// Returns the cells of the tags.
    #[inline(always)]
    pub(crate) fn tag_cells(&self) -> &'p [PmU64] {
        &self.words[Geometry::<K, V, LEAF>::TAGS..][..MAX_LEAF / 8]
    }

    /// Orders this Bnode's low key, which is not the first's, against a route.
    pub(crate) fn cmp_low<M: Medium>(
        &self,
        pool: &Pool<M>,
        route: &Route<'_>,
    ) -> Result<std::cmp::Ordering, PmError> {
        let mut room = [0; 32];
        self.low(pool).map(|low| low.as_slice().cmp(route.encoded::<K>(&mut room)))
    }

    /// This Bnode's low key, which is not the first's, as bytes that order as keys do.
    pub(crate) fn low<M: Medium>(&self, pool: &Pool<M>) -> Result<Vec<u8>, PmError> {
        let pm = pool.pm();
        match K::SHAPE {
            Shape::Inline(_) => {
                Ok(self.low_cells().iter().flat_map(|c| pm.load_word(c).to_be_bytes()).collect())
            }
            Shape::Bytes => {
                let block = pm.load_word(&self.low_cells()[0]);
                Ok(RecordBlock::at(pool, block)?.key(pm))
            }
        }
    }

    /// Returns the slot of the probe's key, by the tags in PM: for reads without an Mnode.
    pub(crate) fn find<M: Medium>(
        &self,
        pool: &Pool<M>,
        probe: &Probe<'_, K>,
    ) -> Result<Option<usize>, PmError> {
        let pm = pool.pm();
        // In this order: recovery writes the tag, and only later writes clear `pending`.
        let pending = self.pending_slot(pm).map_or(0, |i| 1 << i);
        let taken = self.taken_without_lost(pm).slots();
        let tagged = pm.match_byte(self.tag_cells(), tag_of(probe)) & taken;
        self.find_among(pool, tagged | pending, probe)
    }

    /// Returns `true` if a record has the inline key of these words. Compares nothing but words: no conversion and no
    /// damaged record can interrupt it.
    pub(crate) fn has_words(&self, pm: &impl Medium, key: &[u64]) -> bool {
        let taken = bits(self.taken_without_lost(pm).slots()).filter(|&i| i < LEAF);
        taken
            .map(|i| self.slot(i))
            .any(|slot| slot.iter().zip(key).all(|(cell, &word)| pm.load_word(cell) == word))
    }

    /// Returns the slot with the probe's key, among these. Racing: validate.
    #[inline(always)]
    pub(crate) fn find_among<M: Medium>(
        &self,
        pool: &Pool<M>,
        slots: u64,
        probe: &Probe<'_, K>,
    ) -> Result<Option<usize>, PmError> {
        // A pending record may have another tag, or be incomplete.
        let is_whole = |i| self.pending_slot(pool.pm()) != Some(i);
        Slot::<K, V>::find_among(pool, (slots, LEAF), probe, |i| self.slot(i), is_whole)
    }

    /// Stores the tag of slot `i`.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn put_tag(&self, pm: &impl Medium, i: usize, tag: u8) {
        let cell = &self.tag_cells()[i / 8];
        let shift = 8 * (i % 8);
        let rest = pm.load_word(cell) & !(0xff << shift);
        pm.store_word(cell, rest | u64::from(tag) << shift);
    }

    /// Writes and flushes a record without its block, and its tag (step P1).
    #[inline(always)]
    #[track_caller]
    pub(crate) fn write(
        &self,
        pm: &impl Medium,
        i: usize,
        record: &Incoming<'_, K, V>,
        block: u64,
    ) -> Flushed {
        let Incoming { probe, datum } = *record;
        let written = Slot::<K, V>::write(pm, self.slot(i), probe, datum, block);
        written.and(self.write_tag(pm, i, tag_of(probe)))
    }

    /// As [`write`](Self::write), without the flush; returns the words filled, which the caller flushes.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn fill(
        &self,
        pm: &impl Medium,
        i: usize,
        record: &Incoming<'_, K, V>,
        block: u64,
    ) -> [&'p [PmU64]; 2] {
        let Incoming { probe, datum } = *record;
        let filled = Slot::<K, V>::fill(pm, self.slot(i), probe, datum, block);
        self.put_tag(pm, i, tag_of(probe));
        [filled, words_of(&self.tag_cells()[i / 8])]
    }

    /// Copies a record without its block into a free slot and flushes it (step P1).
    #[track_caller]
    pub(crate) fn copy_in(&self, pm: &impl Medium, i: usize, words: &[u64], tag: u8) -> Flushed {
        pm.write_words(self.slot(i), words);
        pm.flush_words(self.slot(i)).and(self.write_tag(pm, i, tag))
    }

    /// Returns the tag of slot `i`.
    pub(crate) fn tag(&self, pm: &impl Medium, i: usize) -> u8 {
        pm.load_word(&self.tag_cells()[i / 8]).to_le_bytes()[i % 8]
    }

    /// Stores the bitmap and flushes its line.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn commit(&self, pm: &impl Medium, taken: Taken) -> Flushed {
        self.put_taken(pm, taken);
        self.flush_header(pm)
    }

    /// Stores the bitmap. Clears `pending` first: the last insert is durable, and `pending` would be wrong
    /// of another record in its slot.
    #[inline(always)]
    pub(crate) fn put_taken(&self, pm: &impl Medium, taken: Taken) {
        if pm.load_word(self.pending_cell()) != 0 {
            pm.store_word(self.pending_cell(), Pending::NONE.into_word(0));
            pm.in_order();
        }
        pm.store_word(self.bitmap_cell(), taken.into_word());
    }

    /// Stores and flushes the bitmap without a lost insert. `pending` stays: a reader may have read the
    /// bit before.
    #[track_caller]
    pub(crate) fn clear_lost(&self, pm: &impl Medium, taken: Taken) -> Flushed {
        pm.store_word(self.bitmap_cell(), taken.into_word());
        self.flush_header(pm)
    }

    /// Stores and flushes the tag of slot `i`.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn write_tag(&self, pm: &impl Medium, i: usize, tag: u8) -> Flushed {
        self.put_tag(pm, i, tag);
        pm.flush_words(words_of(&self.tag_cells()[i / 8]))
    }

    /// Stores the link to the next Bnode.
    #[track_caller]
    pub(crate) fn put_next(&self, pm: &impl Medium, next: Next) {
        pm.store_word(self.next_cell(), next.into_word());
    }

    /// Stores bitmap and link so that each prefix of the stores is consistent (see [`crate::split`],
    /// [`crate::merge`]): `via` with the ghosts bit, the bitmap, the link. One line keeps the order.
    pub(crate) fn relink(&self, pm: &impl Medium, via: Next, taken: Taken, next: Next) {
        self.put_next(pm, via.with_ghosts());
        pm.in_order();
        self.put_taken(pm, taken);
        pm.in_order();
        self.put_next(pm, next);
    }

    /// Flushes the line of bitmap and next.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn flush_header(&self, pm: &impl Medium) -> Flushed {
        pm.flush_words(self.header())
    }

    /// Owner of the block of slot `i`: its bit of the bitmap.
    pub(crate) fn owner(&self, i: usize) -> Owner<'p> {
        Owner { word: self.bitmap_cell(), mask: 1 << i, expect: 1 << i }
    }

    /// Owner of the next Bnode, at `offset`: this one's link.
    pub(crate) fn owner_of_next(&self, offset: u64) -> Owner<'p> {
        Owner { word: self.next_cell(), mask: Next::OFFSET, expect: offset }
    }
}

/// A record to insert.
pub(crate) struct Incoming<'r, K, V> {
    pub(crate) probe: &'r Probe<'r, K>,
    pub(crate) datum: &'r EncodedValue<'r, V>,
}

impl<K: Key, V: Value, const LEAF: usize> Bnode<'_, K, V, LEAF> {
    /// Inserts a record, whose key is not there, into the free slot `i`. What stands in free slots is durable.
    #[inline(always)]
    pub(crate) fn insert<M: Medium>(
        &self,
        pool: &Pool<M>,
        taken: Taken,
        i: usize,
        record: &Incoming<'_, K, V>,
    ) -> Result<(), PmError> {
        if Slot::<K, V>::HAS_BLOCK {
            return self.insert_block(pool, taken, i, record);
        }
        let (pm, slot) = (pool.pm(), self.slot(i));
        if Slot::<K, V>::IN_LINE
            && let Some(pending) = Pending::new(i, pm.load_word(&slot[0]), record.probe.words()[0])
        {
            // P1: in any order.
            let written = Slot::<K, V>::write_key_last(pm, slot, record.probe, record.datum);
            let tagged = self.write_tag(pm, i, tag_of(record.probe));
            pm.store_word(self.pending_cell(), pending.into_word(0));
            pm.in_order();
            pm.store_word(self.bitmap_cell(), taken.with(i).into_word());
            let committed = self.flush_header(pm);
            pm.fence(written.and(tagged).and(committed))?; // DUR
            return Ok(());
        }
        // P1: the record and its tag, before any bit names them.
        let written = self.write(pm, i, record, 0);
        pm.fence(written)?;
        // P2: the bit.
        let committed = self.commit(pm, taken.with(i));
        pm.fence(committed)?; // DUR
        Ok(())
    }

    fn insert_block<M: Medium>(
        &self,
        pool: &Pool<M>,
        taken: Taken,
        i: usize,
        record: &Incoming<'_, K, V>,
    ) -> Result<(), PmError> {
        let Incoming { probe, datum } = *record;
        let pm = pool.pm();
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Slot::<K, V>::block_size(probe, datum), 8)?;
        // P1: block, slot, tag, ticket.
        let filled = Slot::<K, V>::write_block(pool, block.ptr(), probe, datum)?;
        let written = self.write(pm, i, record, block.ptr().offset());
        op.allocate(&block, self.owner(i))?;
        op.prepare(filled.and(written))?;
        // P2: the bit.
        self.put_taken(pm, taken.with(i));
        finish(pool, op, || self.flush_header(pm)) // DUR
    }

    /// Replaces the value in slot `i`; returns the slot where the record is then.
    ///
    /// Returns `None`, and does nothing, if that takes a free slot and there is none.
    #[inline(always)]
    pub(crate) fn update<M: Medium>(
        &self,
        pool: &Pool<M>,
        taken: Taken,
        i: usize,
        record: &Incoming<'_, K, V>,
    ) -> Result<Option<usize>, PmError> {
        let pm = pool.pm();
        if V::SHAPE.is_bytes() {
            self.swing_block(pool, i, record)?;
            Ok(Some(i))
        } else if Slot::<K, V>::ONE_WORD_UPDATE {
            // P2: one word in place.
            let cell = &self.slot(i)[Slot::<K, V>::KEY_WORDS];
            pm.store_word(cell, record.datum.words()[0]);
            let stored = pm.flush_words(words_of(cell));
            pm.fence(stored)?; // DUR
            Ok(Some(i))
        } else {
            let Some(free) = taken.free_slot(LEAF) else { return Ok(None) };
            if Slot::<K, V>::HAS_BLOCK {
                // The block of the key stays; slot and owner change.
                pool.settle(self.bitmap_cell())?;
            }
            // P1: the new record.
            let block = Slot::<K, V>::block(pm, self.slot(i));
            let written = self.write(pm, free, record, block);
            pm.fence(written)?;
            // P2: one store sets the new bit and clears the old.
            let committed = self.commit(pm, taken.with(free).without(i));
            pm.fence(committed)?; // DUR
            Ok(Some(free))
        }
    }

    /// Replaces the record block of slot `i` by one with the new value.
    fn swing_block<M: Medium>(
        &self,
        pool: &Pool<M>,
        i: usize,
        record: &Incoming<'_, K, V>,
    ) -> Result<(), PmError> {
        let Incoming { probe, datum } = *record;
        let pm = pool.pm();
        let cell = &self.slot(i)[Slot::<K, V>::BLOCK_WORD];
        let old = pm.load_word(cell);
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Slot::<K, V>::block_size(probe, datum), 8)?;
        let new = block.ptr().offset();
        // P1: the new block; both tickets name the word that points to one of the two.
        let filled = Slot::<K, V>::write_block(pool, block.ptr(), probe, datum)?;
        op.allocate(&block, Owner { word: cell, mask: u64::MAX, expect: new })?;
        op.free(BnodePtr::new(old), Owner { word: cell, mask: u64::MAX, expect: old })?;
        op.prepare(filled)?;
        // P2: the pointer.
        pm.store_word(cell, new);
        finish(pool, op, || pm.flush_words(words_of(cell))) // DUR
    }

    /// Removes the record in slot `i`.
    #[inline(always)]
    pub(crate) fn remove<M: Medium>(
        &self,
        pool: &Pool<M>,
        taken: Taken,
        i: usize,
    ) -> Result<(), PmError> {
        let pm = pool.pm();
        if !Slot::<K, V>::HAS_BLOCK {
            // P2: the bit.
            let committed = self.commit(pm, taken.without(i));
            pm.fence(committed)?; // DUR
            return Ok(());
        }
        let block = Slot::<K, V>::block(pm, self.slot(i));
        let mut op = pool.op()?;
        // P1: the ticket. An earlier one may name the slot's word, which is free from now on.
        op.free(BnodePtr::new(block), self.owner(i))?;
        op.changes(&self.slot(i)[Slot::<K, V>::BLOCK_WORD]);
        op.prepare(Flushed::nothing())?;
        // P2: the bit.
        self.put_taken(pm, taken.without(i));
        finish(pool, op, || self.flush_header(pm)) // DUR
    }
}

/// Ends an operation after its commit store: the allocation bits follow, `flush` writes what was
/// committed back, one fence makes both durable. In this order, because the atomic changes of bits
/// would wait for the write-back.
#[track_caller]
pub(crate) fn finish<M: Medium>(
    pool: &Pool<M>,
    mut op: Op<'_, M>,
    flush: impl FnOnce() -> Flushed,
) -> Result<(), PmError> {
    let sealed = op.seal();
    let durable: Durable = pool.pm().fence(flush().and(sealed))?;
    op.finish(durable);
    Ok(())
}
