//! A node: finding, placing, replacing and removing one record.
//!
//! Everything that persists here runs under the node's version lock, which is held until the last fence, so
//! no other thread sees what a crash could take back.
//!
//! | operation | step | store | durable before |
//! |-----------|------|-------|----------------|
//! | insert    | P1 | the record's block and its ticket (byte strings), slot, fingerprint | P2 |
//! |           | P2 | bit of the bitmap (LIN: the unlock after it) | return (DUR) |
//! | update    | P1 | the new block, or the new record and its fingerprint in a free slot | P2 |
//! |           | P2 | the one word of the value or block, or two bits of the bitmap (LIN: as above) | return (DUR) |
//! | remove    | P1 | byte strings: the ticket of the block | P2 |
//! |           | P2 | bit of the bitmap (LIN: as above) | return (DUR) |
//!
//! An update of an 8-byte value has no P1, nor has the removal of an inline record: one line, one fence.

use std::cmp::Ordering;
use std::marker::PhantomData;

use pmindex_core::{Flushed, Medium, Op, Owner, PmError, PmU64, Pool, Word, rank_sort, words_of};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{EncodedValue, Probe, RecordBlock, bits, link, slot_near};

use crate::layout::{Geometry, MAX_LEAF, Next, NodePtr, Slot};

/// A node in a pool, its bounds checked.
pub(crate) struct Node<'p, K, V, const LEAF: usize> {
    words: &'p [PmU64],
    offset: u64,
    record: PhantomData<fn() -> (K, V)>,
}

impl<K, V, const LEAF: usize> Clone for Node<'_, K, V, LEAF> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, V, const LEAF: usize> Copy for Node<'_, K, V, LEAF> {}

/// A record to insert.
pub(crate) struct Incoming<'r, K, V> {
    pub(crate) probe: &'r Probe<'r, K>,
    pub(crate) datum: &'r EncodedValue<'r, V>,
}

/// A node's slots in the order of their keys.
pub(crate) struct Order {
    slots: [u8; MAX_LEAF],
    len: usize,
}

impl Order {
    pub(crate) fn slots(&self) -> &[u8] {
        &self.slots[..self.len]
    }
}

impl<'p, K: Key, V: Value, const LEAF: usize> Node<'p, K, V, LEAF> {
    /// Returns the node at `offset`.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the pool has no room for a node there.
    #[inline(always)]
    pub(crate) fn at<M: Medium>(pool: &'p Pool<M>, offset: u64) -> Result<Self, PmError> {
        let words = pool.words(offset, Geometry::<K, V, LEAF>::WORDS)?;
        Ok(Self { words, offset, record: PhantomData })
    }

    /// Returns its offset.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }
    /// Returns all its words.
    pub(crate) fn words(&self) -> &'p [PmU64] {
        self.words
    }
    /// Returns the line that commits.
    #[inline(always)]
    pub(crate) fn header(&self) -> &'p [PmU64] {
        &self.words[..Geometry::<K, V, LEAF>::FINGERPRINTS]
    }
    /// Returns the commit word.
    #[inline(always)]
    pub(crate) fn bitmap_cell(&self) -> &'p PmU64 {
        &self.words[0]
    }
    /// Returns the slots that hold records.
    #[inline(always)]
    pub(crate) fn bitmap(&self, pm: &impl Medium) -> u64 {
        pm.load_word(self.bitmap_cell())
    }
    /// Returns the cell of the link to the next node.
    #[inline(always)]
    pub(crate) fn next_cell(&self) -> &'p PmU64 {
        &self.words[1]
    }
    /// Returns the next node.
    #[inline(always)]
    pub(crate) fn next(&self, pm: &impl Medium) -> Next {
        Next::from_word(pm.load_word(self.next_cell()))
    }
    /// Returns the cell of the offset of the node before. It changes under that node's lock.
    #[inline(always)]
    pub(crate) fn prev_cell(&self) -> &'p PmU64 {
        &self.words[2]
    }
    /// Returns the node before.
    #[inline(always)]
    pub(crate) fn prev(&self, pm: &impl Medium) -> u64 {
        pm.load_word(self.prev_cell())
    }
    fn low_cells(&self) -> &'p [PmU64] {
        &self.words[Geometry::<K, V, LEAF>::LOW..][..Geometry::<K, V, LEAF>::LOW_WORDS]
    }
    fn fingerprint_cells(&self) -> &'p [PmU64] {
        &self.words[Geometry::<K, V, LEAF>::FINGERPRINTS..][..MAX_LEAF / 8]
    }
    /// Returns slot `i`.
    #[inline(always)]
    pub(crate) fn slot(&self, i: usize) -> &'p [PmU64] {
        let words = Slot::<K, V>::WORDS;
        &self.words[Geometry::<K, V, LEAF>::SLOTS + i * words..][..words]
    }

    /// Returns this node's low key, which is not the first's, as bytes that order as keys do.
    pub(crate) fn low<M: Medium>(&self, pool: &Pool<M>) -> Result<Vec<u8>, PmError> {
        let pm = pool.pm();
        match self.low_block(pm) {
            Some(block) => Ok(RecordBlock::at(pool, block)?.key(pm)),
            None => {
                Ok(self.low_cells().iter().flat_map(|c| pm.load_word(c).to_be_bytes()).collect())
            }
        }
    }

    /// Returns the block of the low key, where it has one.
    pub(crate) fn low_block(&self, pm: &impl Medium) -> Option<u64> {
        K::SHAPE.is_bytes().then(|| pm.load_word(&self.low_cells()[0]))
    }

    /// Orders the low key, which is not the first's, against a key's bytes. Racing: validate.
    #[inline]
    pub(crate) fn cmp_low<M: Medium>(
        &self,
        pool: &Pool<M>,
        key: &[u8],
    ) -> Result<Ordering, PmError> {
        let pm = pool.pm();
        if let Some(block) = self.low_block(pm) {
            return Ok(RecordBlock::at(pool, block)?.cmp_key(pm, key));
        }
        let words = key.as_chunks().0.iter().map(|bytes| u64::from_be_bytes(*bytes));
        Ok(self.low_cells().iter().map(|cell| pm.load_word(cell)).cmp(words))
    }

    /// Returns the fingerprint of slot `i`.
    pub(crate) fn fingerprint(&self, pm: &impl Medium, i: usize) -> u8 {
        pm.load_word(&self.fingerprint_cells()[i / 8]).to_le_bytes()[i % 8]
    }

    /// Stores the fingerprint of slot `i`; returns its words, to be flushed.
    #[inline(always)]
    pub(crate) fn put_fingerprint(
        &self,
        pm: &impl Medium,
        i: usize,
        fingerprint: u8,
    ) -> &'p [PmU64] {
        let cell = &self.fingerprint_cells()[i / 8];
        let shift = 8 * (i % 8);
        let rest = pm.load_word(cell) & !(0xff << shift);
        pm.store_word(cell, rest | u64::from(fingerprint) << shift);
        words_of(cell)
    }

    /// Returns the slot of the probe's key. Racing: validate.
    #[inline(always)]
    pub(crate) fn find<M: Medium>(
        &self,
        pool: &Pool<M>,
        bitmap: u64,
        probe: &Probe<'_, K>,
    ) -> Result<Option<usize>, PmError> {
        let pm = pool.pm();
        let namesakes = pm.match_byte(self.fingerprint_cells(), probe.fingerprint()) & bitmap;
        let found =
            Slot::<K, V>::find_among(pool, (namesakes, LEAF), probe, |i| self.slot(i), |_| true)?;
        if found.is_some() {
            return Ok(found);
        }
        if bitmap & !Geometry::<K, V, LEAF>::ALL != 0 {
            return Err(PmError::Corrupt { what: "the bitmap of a node", offset: self.offset });
        }
        Ok(None)
    }

    /// Returns a free slot: the first one.
    #[inline(always)]
    pub(crate) fn free_slot(bitmap: u64) -> Option<usize> {
        Self::free_slot_near(bitmap, 0)
    }

    /// Returns a free slot for the probe's key.
    #[inline(always)]
    pub(crate) fn free_slot_for(bitmap: u64, probe: &Probe<'_, K>) -> Option<usize> {
        Self::free_slot_near(bitmap, Geometry::<K, V, LEAF>::preferred_slot(probe))
    }

    /// Returns a free slot for a record that prefers one.
    #[inline(always)]
    pub(crate) fn free_slot_near(bitmap: u64, preferred: usize) -> Option<usize> {
        slot_near(!bitmap & Geometry::<K, V, LEAF>::ALL, preferred, Slot::<K, V>::GROUP)
    }

    /// Returns the slot that the record in slot `i` prefers in any node.
    pub(crate) fn home<M: Medium>(&self, pool: &Pool<M>, i: usize) -> Result<usize, PmError> {
        Ok(match K::SHAPE {
            Shape::Inline(_) => {
                let key = Slot::<K, V>::key(pool, self.slot(i))?;
                Geometry::<K, V, LEAF>::preferred_slot(&Probe::of_stored(&key))
            }
            Shape::Bytes => {
                let fingerprint = self.fingerprint(pool.pm(), i);
                Geometry::<K, V, LEAF>::slot_of_fingerprint(fingerprint)
            }
        })
    }

    /// Returns the first word of the key in slot `i`: orders keys, ties excepted.
    #[inline(always)]
    pub(crate) fn prefix(&self, pm: &impl Medium, i: usize) -> u64 {
        pm.load_word(&self.slot(i)[0])
    }

    /// Returns some slots in the order of their keys. Racing: validate; they have an order whatever is raced with.
    #[inline]
    pub(crate) fn order<M: Medium>(&self, pool: &Pool<M>, slots: u64) -> Result<Order, PmError> {
        let pm = pool.pm();
        let (mut words, mut places) = ([0; MAX_LEAF], [0u8; MAX_LEAF]);
        let mut len = 0;
        for i in bits(slots & Geometry::<K, V, LEAF>::ALL) {
            words[len] = self.prefix(pm, i);
            places[len] = i as u8;
            len += 1;
        }
        let mut ranks = [0; MAX_LEAF];
        let ranks = rank_sort(&words[..len], &mut ranks);
        let mut order = Order { slots: [0; MAX_LEAF], len };
        for (slot, &rank) in order.slots.iter_mut().zip(ranks) {
            *slot = places[usize::from(rank)];
        }
        if K::SHAPE != Shape::Inline(1) {
            let prefix = |rank: &u8| words[usize::from(*rank)];
            let mut start = 0;
            for tied in ranks.chunk_by(|a, b| prefix(a) == prefix(b)) {
                if tied.len() > 1 {
                    let tied = &mut order.slots[start..start + tied.len()];
                    Slot::<K, V>::sort_tied(pool, tied, |i| self.slot(i))?;
                }
                start += tied.len();
            }
        }
        Ok(order)
    }

    /// Returns the owner of the block of slot `i`: its bit of the bitmap.
    fn owner(&self, i: usize) -> Owner<'p> {
        Owner { word: self.bitmap_cell(), mask: 1 << i, expect: 1 << i }
    }

    /// Stores the bitmap and flushes its line.
    #[inline(always)]
    #[track_caller]
    fn commit(&self, pm: &impl Medium, bitmap: u64) -> Flushed {
        pm.store_word(self.bitmap_cell(), bitmap);
        pm.flush_words(words_of(self.bitmap_cell()))
    }

    /// Fills slot `i` and its fingerprint and flushes both.
    #[inline(always)]
    #[track_caller]
    fn write(&self, pm: &impl Medium, i: usize, record: &Incoming<'_, K, V>, at: u64) -> Flushed {
        let Incoming { probe, datum } = *record;
        let written = Slot::<K, V>::write(pm, self.slot(i), probe, datum, at);
        let named = self.put_fingerprint(pm, i, probe.fingerprint());
        written.and(pm.flush_words(named))
    }

    /// Inserts a record, whose key is not there, into the free slot `i`.
    #[inline(always)]
    pub(crate) fn insert<M: Medium>(
        &self,
        pool: &Pool<M>,
        bitmap: u64,
        i: usize,
        record: &Incoming<'_, K, V>,
    ) -> Result<(), PmError> {
        if Slot::<K, V>::HAS_BLOCK {
            return self.insert_block(pool, bitmap, i, record);
        }
        let pm = pool.pm();
        // P1.
        let written = self.write(pm, i, record, 0);
        pm.fence(written)?;
        // P2: the bit.
        let committed = self.commit(pm, bitmap | 1 << i);
        pm.fence(committed)?; // DUR
        Ok(())
    }

    fn insert_block<M: Medium>(
        &self,
        pool: &Pool<M>,
        bitmap: u64,
        i: usize,
        record: &Incoming<'_, K, V>,
    ) -> Result<(), PmError> {
        let Incoming { probe, datum } = *record;
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Slot::<K, V>::block_size(probe, datum), 8)?;
        // P1.
        let filled = Slot::<K, V>::write_block(pool, block.ptr(), probe, datum)?;
        let written = self.write(pool.pm(), i, record, block.ptr().offset());
        op.allocate(&block, self.owner(i))?;
        op.prepare(filled.and(written))?;
        // P2: the bit.
        link(pool, op, self.bitmap_cell(), bitmap | 1 << i) // DUR
    }

    /// Replaces the value in slot `i`.
    ///
    /// Returns `false`, and does nothing, if that takes a free slot and there is none.
    #[inline(always)]
    pub(crate) fn update<M: Medium>(
        &self,
        pool: &Pool<M>,
        bitmap: u64,
        i: usize,
        record: &Incoming<'_, K, V>,
    ) -> Result<bool, PmError> {
        let (pm, probe) = (pool.pm(), record.probe);
        if V::SHAPE.is_bytes() {
            self.swing_block(pool, i, record)?;
        } else if Slot::<K, V>::ONE_WORD_UPDATE {
            // P2: one word in place.
            let cell = &self.slot(i)[Slot::<K, V>::KEY_WORDS];
            pm.store_word(cell, record.datum.words()[0]);
            let stored = pm.flush_words(words_of(cell));
            pm.fence(stored)?; // DUR
        } else {
            let Some(free) = Self::free_slot_for(bitmap, probe) else { return Ok(false) };
            if Slot::<K, V>::HAS_BLOCK {
                // The block of the key stays; slot and owner change.
                pool.settle(self.bitmap_cell())?;
            }
            // P1: the new record.
            let block = Slot::<K, V>::block(pm, self.slot(i));
            let written = self.write(pm, free, record, block);
            pm.fence(written)?;
            // P2: one store sets the new bit and clears the old.
            let committed = self.commit(pm, (bitmap | 1 << free) & !(1 << i));
            pm.fence(committed)?; // DUR
        }
        Ok(true)
    }

    /// Replaces the record block of slot `i` by one with the new value.
    fn swing_block<M: Medium>(
        &self,
        pool: &Pool<M>,
        i: usize,
        record: &Incoming<'_, K, V>,
    ) -> Result<(), PmError> {
        let Incoming { probe, datum } = *record;
        let cell = &self.slot(i)[Slot::<K, V>::BLOCK_WORD];
        let old = pool.pm().load_word(cell);
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Slot::<K, V>::block_size(probe, datum), 8)?;
        let new = block.ptr().offset();
        // P1: the new block; both tickets name the word that points to one of the two.
        let filled = Slot::<K, V>::write_block(pool, block.ptr(), probe, datum)?;
        op.allocate(&block, Owner { word: cell, mask: u64::MAX, expect: new })?;
        op.free(NodePtr::new(old), Owner { word: cell, mask: u64::MAX, expect: old })?;
        op.prepare(filled)?;
        // P2: the pointer.
        link(pool, op, cell, new) // DUR
    }

    /// Removes the record in slot `i`.
    #[inline(always)]
    pub(crate) fn remove<M: Medium>(
        &self,
        pool: &Pool<M>,
        bitmap: u64,
        i: usize,
    ) -> Result<(), PmError> {
        let pm = pool.pm();
        if !Slot::<K, V>::HAS_BLOCK {
            // P2: the bit.
            let committed = self.commit(pm, bitmap & !(1 << i));
            pm.fence(committed)?; // DUR
            return Ok(());
        }
        let block = Slot::<K, V>::block(pm, self.slot(i));
        let mut op = pool.op()?;
        // P1: the ticket. An earlier one may name the slot's word, which is free from now on.
        op.free(NodePtr::new(block), self.owner(i))?;
        op.changes(&self.slot(i)[Slot::<K, V>::BLOCK_WORD]);
        op.prepare(Flushed::nothing())?;
        // P2: the bit.
        link(pool, op, self.bitmap_cell(), bitmap & !(1 << i)) // DUR
    }

    /// Announces that records of some slots get or lose this node as the owner of their blocks: earlier
    /// tickets may name its words.
    pub(crate) fn announce<M: Medium>(&self, op: &mut Op<'_, M>, slots: u64) {
        if Slot::<K, V>::HAS_BLOCK {
            op.changes(self.bitmap_cell());
            for i in bits(slots & Geometry::<K, V, LEAF>::ALL) {
                op.changes(&self.slot(i)[Slot::<K, V>::BLOCK_WORD]);
            }
        }
    }
}

/// A low key that is being made: its bytes, and its words in a node.
pub(crate) struct Low {
    pub(crate) bytes: Vec<u8>,
}

impl Low {
    /// Fills the words of the low key in the image of a node; byte strings get a block, live with the node.
    /// Returns the lines to flush.
    #[track_caller]
    pub(crate) fn put<K: Key, M: Medium>(
        &self,
        pool: &Pool<M>,
        op: &mut Op<'_, M>,
        words: &mut [u64],
        owner: Owner<'_>,
    ) -> Result<Flushed, PmError> {
        if !K::SHAPE.is_bytes() {
            for (word, bytes) in words.iter_mut().zip(self.bytes.as_chunks().0) {
                *word = u64::from_be_bytes(*bytes);
            }
            return Ok(Flushed::nothing());
        }
        let block = op.reserve_bytes(RecordBlock::size_for(self.bytes.len(), 0), 8)?;
        op.allocate(&block, owner)?;
        words[0] = block.ptr().offset();
        RecordBlock::write(pool, block.ptr(), &self.bytes, &[])
    }
}

#[cold]
pub(crate) fn more_than_slots(offset: u64) -> PmError {
    PmError::Corrupt { what: "more records than slots", offset }
}
