//! A leaf: finding, placing, replacing and removing one record.
//!
//! Everything that persists here runs under the leaf's version lock, which is held until the last
//! fence, so no thread sees what a crash could take back.
//!
//! | operation | step | store | durable before |
//! |-----------|------|-------|----------------|
//! | insert (a record in one line) | P1 | the slot, its first key word last; fingerprint, [`Pending`], bit of the state (LIN) | return (DUR) |
//! | insert (others) | P1 | the record's block (byte strings), its slot | P2 |
//! |           | P2 | fingerprint, then bit of the state (LIN), one line | return (DUR) |
//! | update    | P1 | the new block (byte strings), or the new record in a free slot | P2 |
//! |           | P2 | the one word of the value or block; or fingerprint, then two bits of the state (LIN) | return (DUR) |
//! | update (a byte string of the old one's length) | P1 | an entry of the redo log (DUR) | P2 |
//! |           | P2 | the value, in its block (LIN) | the entry is overwritten |
//! | remove    | P1 | byte strings: the ticket of the block; the redo log without the block, if it names it | P2 |
//! |           | P2 | bit of the state (LIN) | return (DUR) |
//!
//! An insert of a record that lies in one line takes **one fence** (the paper: three flushes, each with
//! its fence). Its two lines become durable in any order: without the header's nothing has happened;
//! without the slot's the state names a record that is not there, which [`Pending`] tells exactly, so
//! recovery clears the bit. The insert has not returned, and no thread has seen it: its lock was held.
//!
//! A byte-string value is replaced in place by one of the same length, under one fence: the
//! [`RedoLog`](pmindex_record::RedoLog) has it until it is durable in its block. It is stored there after that fence and
//! before the lock is released, so a reader sees all of the old value or all of the new one, and the new one only when
//! a crash cannot take it back. An index that was created before there was such a log has none.
//!
//! An update of an 8-byte value has no P1, nor has the removal of an inline record: one line, one fence.

use std::marker::PhantomData;

use pmindex_core::{
    Durable, Flushed, Medium, Op, Owner, PmError, PmU64, Pool, Word, rank_sort, words_of,
};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{EncodedValue, Pending, Probe, bits};

use super::layout::{Geometry, HEADER_WORDS, LeafPtr, LeafState, MAX_LEAF, Slot};

/// A leaf in a pool, its bounds checked.
pub(super) struct Leaf<'p, K, V, const LEAF: usize> {
    words: &'p [PmU64],
    offset: u64,
    record: PhantomData<fn() -> (K, V)>,
}

impl<K, V, const LEAF: usize> Clone for Leaf<'_, K, V, LEAF> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, V, const LEAF: usize> Copy for Leaf<'_, K, V, LEAF> {}

impl<'p, K: Key, V: Value, const LEAF: usize> Leaf<'p, K, V, LEAF> {
    /// Returns the leaf at `offset`.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the pool has no room for a leaf there.
    #[inline(always)]
    pub(super) fn at<M: Medium>(pool: &'p Pool<M>, offset: u64) -> Result<Self, PmError> {
        let words = pool.words(offset, Geometry::<K, V, LEAF>::WORDS)?;
        Ok(Self { words, offset, record: PhantomData })
    }

    /// Returns its offset.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the whole leaf, for bulk reads and prefetches.
    pub(super) fn words(&self) -> &'p [PmU64] {
        self.words
    }

    #[inline(always)]
    fn header(&self) -> &'p [PmU64] {
        &self.words[..HEADER_WORDS]
    }

    /// Returns the commit word.
    #[inline(always)]
    pub(super) fn state_cell(&self) -> &'p PmU64 {
        &self.words[0]
    }

    /// Returns the commit word's value.
    #[inline(always)]
    pub(super) fn state(&self, pm: &impl Medium) -> LeafState {
        LeafState::from_word(pm.load_word(self.state_cell()))
    }

    fn pending_cell(&self) -> &'p PmU64 {
        &self.words[HEADER_WORDS - 1]
    }

    /// Returns the state without the insert that a crash cut short, if it did: before recovery only.
    pub(super) fn settled(&self, pm: &impl Medium) -> LeafState {
        let state = self.state(pm);
        let pending = Pending::of_word(pm.load_word(self.pending_cell()));
        match pending.slot() {
            Some(i) if i < LEAF && !pending.is_there(self.prefix(pm, i)) => state.without(i),
            _ => state,
        }
    }

    /// Returns the slot of the last insert with one fence.
    pub(super) fn pending_slot(&self, pm: &impl Medium) -> Option<usize> {
        let pending = Pending::of_word(pm.load_word(self.pending_cell()));
        pending.slot().filter(|&i| i < LEAF)
    }

    #[inline(always)]
    #[track_caller]
    fn put_pending(&self, pm: &impl Medium, pending: Pending) {
        let word = pm.load_word(self.pending_cell());
        if Pending::of_word(word) != pending {
            pm.store_word(self.pending_cell(), pending.into_word(word));
        }
    }

    /// Says that no insert is pending: the last one is durable. Before another record comes into its
    /// slot, of whose key it would be wrong.
    #[inline(always)]
    #[track_caller]
    pub(super) fn forget_pending(&self, pm: &impl Medium) {
        self.put_pending(pm, Pending::NONE);
    }

    /// Slot `i`.
    #[inline(always)]
    pub(super) fn slot(&self, i: usize) -> &'p [PmU64] {
        let words = Slot::<K, V>::WORDS;
        &self.words[Geometry::<K, V, LEAF>::SLOTS + i * words..][..words]
    }

    /// Returns the cell of the next leaf's offset.
    #[inline(always)]
    pub(super) fn next_cell(&self) -> &'p PmU64 {
        &self.words[Geometry::<K, V, LEAF>::NEXT]
    }

    /// Returns the next leaf's offset, or 0.
    #[inline(always)]
    pub(super) fn next(&self, pm: &impl Medium) -> u64 {
        pm.load_word(self.next_cell())
    }

    /// Returns the cells of the fence.
    pub(super) fn fence_cells(&self) -> &'p [PmU64] {
        let fence = Geometry::<K, V, LEAF>::NEXT + 1;
        &self.words[fence..fence + Geometry::<K, V, LEAF>::FENCE_WORDS]
    }

    /// Returns the fingerprint of slot `i`.
    pub(super) fn fingerprint(&self, pm: &impl Medium, i: usize) -> u8 {
        pm.load_word(&self.words[1 + i / 8]).to_le_bytes()[i % 8]
    }

    /// Returns the slots whose fingerprints are the probe's. Racing: validate.
    #[inline(always)]
    pub(super) fn matches(&self, pm: &impl Medium, state: LeafState, probe: &Probe<'_, K>) -> u64 {
        // Bytes 0 to 7 of the line are the state itself.
        (pm.match_byte(self.header(), probe.fingerprint()) >> 8) & state.slots()
    }

    /// Returns the slot of the probe's key. Racing: validate.
    #[inline(always)]
    pub(super) fn find<M: Medium>(
        &self,
        pool: &Pool<M>,
        state: LeafState,
        probe: &Probe<'_, K>,
    ) -> Result<Option<usize>, PmError> {
        let namesakes = self.matches(pool.pm(), state, probe);
        let found =
            Slot::<K, V>::find_among(pool, (namesakes, LEAF), probe, |i| self.slot(i), |_| true)?;
        if found.is_some() {
            return Ok(found);
        }
        if !state.is_valid(LEAF) {
            return Err(PmError::Corrupt { what: "a leaf's state", offset: self.offset() });
        }
        Ok(None)
    }

    /// Returns the keys with their slots, in order. Not racing, or validate.
    pub(super) fn sorted<M: Medium>(
        &self,
        pool: &Pool<M>,
        state: LeafState,
    ) -> Result<Vec<(K, usize)>, PmError> {
        let order = self.order(pool, state)?;
        order.into_iter().map(|i| Ok((Slot::<K, V>::key(pool, self.slot(i))?, i))).collect()
    }

    /// Returns the slots in the order of their keys. Not racing, or validate.
    pub(super) fn order<M: Medium>(
        &self,
        pool: &Pool<M>,
        state: LeafState,
    ) -> Result<Vec<usize>, PmError> {
        let (mut words, mut slots) = ([0; MAX_LEAF], [0u8; MAX_LEAF]);
        let mut count = 0;
        for i in bits(state.slots()).filter(|&i| i < LEAF) {
            words[count] = self.prefix(pool.pm(), i);
            slots[count] = i as u8;
            count += 1;
        }
        let mut ranks = [0; 64];
        let ranks = rank_sort(&words[..count], &mut ranks);
        let mut order: Vec<u8> = ranks.iter().map(|&rank| slots[usize::from(rank)]).collect();
        let prefix = |&rank: &u8| words[usize::from(rank)];
        let mut start = 0;
        for tied in ranks.chunk_by(|a, b| prefix(a) == prefix(b)) {
            self.put_in_order(pool, &mut order[start..start + tied.len()])?;
            start += tied.len();
        }
        Ok(order.into_iter().map(usize::from).collect())
    }

    /// Puts slots whose keys have the same first word in the order of their keys. Racing: validate; they
    /// have an order whatever is raced with.
    #[inline(always)]
    pub(super) fn put_in_order<M: Medium>(
        &self,
        pool: &Pool<M>,
        slots: &mut [u8],
    ) -> Result<(), PmError> {
        if slots.len() < 2 || K::SHAPE == Shape::Inline(1) {
            return Ok(());
        }
        Slot::<K, V>::sort_tied(pool, slots, |i| self.slot(i))
    }

    /// Returns the first word of the key in slot `i`: its words or its first 8 bytes order keys, ties
    /// excepted.
    #[inline(always)]
    pub(super) fn prefix(&self, pm: &impl Medium, i: usize) -> u64 {
        pm.load_word(&self.slot(i)[0])
    }

    /// Stores the fingerprint of slot `i`; flushed with the state, whose line it shares.
    #[inline(always)]
    #[track_caller]
    pub(super) fn put_fingerprint(&self, pm: &impl Medium, i: usize, fingerprint: u8) {
        let cell = &self.words[1 + i / 8];
        let shift = 8 * (i % 8);
        let rest = pm.load_word(cell) & !(0xff << shift);
        pm.store_word(cell, rest | u64::from(fingerprint) << shift);
    }

    /// Stores the state and flushes its line.
    #[inline(always)]
    #[track_caller]
    pub(super) fn commit(&self, pm: &impl Medium, state: LeafState) -> Flushed {
        self.put_state(pm, state);
        self.flush_state(pm)
    }

    /// Stores the state, behind what was stored to its line: fingerprints, and which insert is pending.
    #[inline(always)]
    pub(super) fn put_state(&self, pm: &impl Medium, state: LeafState) {
        pm.in_order();
        pm.store_word(self.state_cell(), state.into_word());
    }

    /// Flushes the line of the state and the fingerprints.
    #[inline(always)]
    #[track_caller]
    pub(super) fn flush_state(&self, pm: &impl Medium) -> Flushed {
        pm.flush_words(self.header())
    }

    /// Owner of the block of slot `i`: its bit of the state.
    pub(super) fn owner(&self, i: usize) -> Owner<'p> {
        Owner { word: self.state_cell(), mask: 1 << i, expect: 1 << i }
    }
}

/// A record to insert.
pub(super) struct Incoming<'r, K, V> {
    pub(super) probe: &'r Probe<'r, K>,
    pub(super) datum: &'r EncodedValue<'r, V>,
}

impl<K: Key, V: Value, const LEAF: usize> Leaf<'_, K, V, LEAF> {
    /// Inserts a record, whose key is not there, into the free slot `i`; `sure`: what stands in free
    /// slots is durable.
    #[inline(always)]
    pub(super) fn insert<M: Medium>(
        &self,
        pool: &Pool<M>,
        state: LeafState,
        i: usize,
        record: &Incoming<'_, K, V>,
        sure: bool,
    ) -> Result<(), PmError> {
        if Slot::<K, V>::HAS_BLOCK {
            return self.insert_block(pool, state, i, record);
        }
        let pm = pool.pm();
        if Slot::<K, V>::IN_LINE
            && sure
            && let Some(pending) = Pending::new(i, self.prefix(pm, i), record.probe.words()[0])
        {
            // P1, LIN: in any order.
            let slot = self.slot(i);
            let written = Slot::<K, V>::write_key_last(pm, slot, record.probe, record.datum);
            self.put_fingerprint(pm, i, record.probe.fingerprint());
            self.put_pending(pm, pending);
            let committed = self.commit(pm, state.with(i));
            pm.fence(written.and(committed))?; // DUR
            return Ok(());
        }
        // P1: the record, before any bit names it.
        let written = Slot::<K, V>::write(pm, self.slot(i), record.probe, record.datum, 0);
        pm.fence(written)?;
        // P2, LIN: the bit. The fingerprint precedes it on the same line.
        self.put_fingerprint(pm, i, record.probe.fingerprint());
        self.forget_pending(pm);
        let committed = self.commit(pm, state.with(i));
        pm.fence(committed)?; // DUR
        Ok(())
    }

    fn insert_block<M: Medium>(
        &self,
        pool: &Pool<M>,
        state: LeafState,
        i: usize,
        record: &Incoming<'_, K, V>,
    ) -> Result<(), PmError> {
        let Incoming { probe, datum } = *record;
        let pm = pool.pm();
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Slot::<K, V>::block_size(probe, datum), 8)?;
        // P1: block, slot, ticket.
        let filled = Slot::<K, V>::write_block(pool, block.ptr(), probe, datum)?;
        let slot = Slot::<K, V>::write(pm, self.slot(i), probe, datum, block.ptr().offset());
        op.allocate(&block, self.owner(i))?;
        op.prepare(filled.and(slot))?;
        // P2, LIN: the bit.
        self.put_fingerprint(pm, i, probe.fingerprint());
        self.put_state(pm, state.with(i));
        finish(pool, op, || self.flush_state(pm)) // DUR
    }

    /// Replaces the value in slot `i`.
    ///
    /// Returns `false`, and does nothing, if that takes a free slot and there is none.
    pub(super) fn update<M: Medium>(
        &self,
        pool: &Pool<M>,
        state: LeafState,
        i: usize,
        record: &Incoming<'_, K, V>,
    ) -> Result<bool, PmError> {
        let Incoming { probe, datum } = *record;
        let pm = pool.pm();
        if V::SHAPE.is_bytes() {
            self.swing_block(pool, i, record)?;
        } else if Slot::<K, V>::ONE_WORD_UPDATE {
            // P2, LIN: one word in place.
            let cell = &self.slot(i)[Slot::<K, V>::KEY_WORDS];
            pm.store_word(cell, datum.words()[0]);
            let stored = pm.flush_words(words_of(cell));
            pm.fence(stored)?; // DUR
        } else {
            let Some(free) = Geometry::<K, V, LEAF>::free_slot_for(state, probe) else {
                return Ok(false);
            };
            if Slot::<K, V>::HAS_BLOCK {
                // The block of the key stays; slot and owner change.
                pool.settle(self.state_cell())?;
            }
            // P1: the new record.
            let block = Slot::<K, V>::block(pm, self.slot(i));
            let written = Slot::<K, V>::write(pm, self.slot(free), probe, datum, block);
            pm.fence(written)?;
            // P2, LIN: one store sets the new bit and clears the old.
            self.put_fingerprint(pm, free, probe.fingerprint());
            self.forget_pending(pm);
            let committed = self.commit(pm, state.with(free).without(i));
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
        let pm = pool.pm();
        let cell = &self.slot(i)[Slot::<K, V>::BLOCK_WORD];
        let old = pm.load_word(cell);
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Slot::<K, V>::block_size(probe, datum), 8)?;
        let new = block.ptr().offset();
        // P1: the new block; both tickets name the word that points to one of the two.
        let filled = Slot::<K, V>::write_block(pool, block.ptr(), probe, datum)?;
        op.allocate(&block, Owner { word: cell, mask: u64::MAX, expect: new })?;
        op.free(LeafPtr::new(old), Owner { word: cell, mask: u64::MAX, expect: old })?;
        op.prepare(filled)?;
        // P2, LIN: the pointer.
        pm.store_word(cell, new);
        finish(pool, op, || pm.flush_words(words_of(cell))) // DUR
    }

    /// Removes the record in slot `i`, which has no block.
    #[inline(always)]
    pub(super) fn remove_inline<M: Medium>(
        &self,
        pool: &Pool<M>,
        state: LeafState,
        i: usize,
    ) -> Result<(), PmError> {
        let pm = pool.pm();
        // P2, LIN: the bit.
        let committed = self.commit(pm, state.without(i));
        pm.fence(committed)?; // DUR
        Ok(())
    }

    /// Stages and flushes the ticket by which the record in slot `i` is removed.
    #[inline(always)]
    pub(super) fn begin_removal<'m, M: Medium>(
        &self,
        pool: &'m Pool<M>,
        i: usize,
    ) -> Result<(Op<'m, M>, Flushed), PmError> {
        let block = Slot::<K, V>::block(pool.pm(), self.slot(i));
        let mut op = pool.op()?;
        // P1: the ticket. An earlier one may name the slot's word, which is free from now on.
        op.free(LeafPtr::new(block), self.owner(i))?;
        op.changes(&self.slot(i)[Slot::<K, V>::BLOCK_WORD]);
        let staged = op.stage();
        Ok((op, staged))
    }

    /// Removes the record in slot `i`, whose removal was [begun](Self::begin_removal).
    #[inline(always)]
    pub(super) fn end_removal<M: Medium>(
        &self,
        pool: &Pool<M>,
        state: LeafState,
        i: usize,
        (op, staged): (Op<'_, M>, Flushed),
    ) -> Result<(), PmError> {
        let pm = pool.pm();
        pm.fence(staged)?; // durable before: P2
        // P2, LIN: the bit.
        self.put_state(pm, state.without(i));
        finish(pool, op, || self.flush_state(pm)) // DUR
    }
}

/// Ends an operation after its commit store: the allocation bits follow, `flush` writes what was
/// committed back, one fence makes both durable. In this order, because the atomic changes of bits
/// would wait for the write-back.
#[track_caller]
pub(super) fn finish<M: Medium>(
    pool: &Pool<M>,
    mut op: Op<'_, M>,
    flush: impl FnOnce() -> Flushed,
) -> Result<(), PmError> {
    let sealed = op.seal();
    let durable: Durable = pool.pm().fence(flush().and(sealed))?;
    op.finish(durable);
    Ok(())
}

/// Commits an operation by one pointer: stores it, seals, flushes and fences.
pub(super) fn link<M: Medium>(
    pool: &Pool<M>,
    op: Op<'_, M>,
    cell: &PmU64,
    target: u64,
) -> Result<(), PmError> {
    let pm = pool.pm();
    pm.store_word(cell, target); // LIN
    finish(pool, op, || pm.flush_words(words_of(cell))) // DUR
}
