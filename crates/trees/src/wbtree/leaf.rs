//! A leaf: unsorted records, a bitmap word that commits, and the order of the records.
//!
//! Nothing here takes a lock: a wBTree has one writer.
//!
//! | operation | step | store | durable before |
//! |-----------|------|-------|----------------|
//! | insert (a record in one line) | P1 | the slot, its first key word last; the order line; on line 0 fingerprint, [`Pending`], state (LIN) | return (DUR) |
//! | insert (others) | P1 | the record's block (byte strings), its slot | P2 |
//! |           | P2 | the order line; on line 0 fingerprint, state (LIN) | return (DUR) |
//! | update    | P1 | the new block (byte strings) | P2 |
//! |           | P2 | the one word of the value or block (LIN); values of several words: [`redo`](super::redo) | return (DUR) |
//! | remove    | P1 | byte strings: the ticket of the block | P2 |
//! |           | P2 | bit of the state (LIN) | return (DUR) |
//!
//! An insert of a record that lies in one line takes **one fence** (the paper: four flushes, each
//! with its fence). Three lines become durable in any order:
//!
//! * without line 0 nothing has happened: the bit is clear, and the order names a slot that is free;
//! * without the order line its tag is not that of the state: a scan that needs the order sorts;
//! * without the slot the state names a record that is not there. [`Pending`], on line 0, detects this
//!   exactly, and every reader of the state treats the slot as free. The insert has not returned.
//!
//! A removal clears a bit and leaves the order unchanged: a reader of the order skips free slots, and the
//! next insert drops them. So bitmap and order never contradict each other, whatever a crash leaves.

use std::marker::PhantomData;

use pmindex_core::{
    Durable, Flushed, Medium, Op, Owner, PPtr, PmError, PmU64, Pool, Word, words_of,
};
use pmindex_index::{Key, Value};
use pmindex_record::{EncodedValue, Probe, Slot};

use super::layout::{Geometry, LINE_WORDS, LeafState, Pending, free_slot};
use super::order::Order;

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

/// The geometry of leaves does not depend on that of inner nodes.
type Parts<K, V, const LEAF: usize> = Geometry<K, V, LEAF, 3>;

impl<'p, K: Key, V: Value, const LEAF: usize> Leaf<'p, K, V, LEAF> {
    /// Returns the leaf at `offset`.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the pool has no room for a leaf there.
    #[inline(always)]
    pub(super) fn at<M: Medium>(pool: &'p Pool<M>, offset: u64) -> Result<Self, PmError> {
        let words = pool.words(offset, Parts::<K, V, LEAF>::LEAF_WORDS)?;
        Ok(Self { words, offset, record: PhantomData })
    }

    /// Returns its offset.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn words(&self) -> &'p [PmU64] {
        self.words
    }

    pub(super) fn corrupt(&self, what: &'static str) -> PmError {
        PmError::Corrupt { what, offset: self.offset }
    }

    /// State, fingerprints, and what is pending.
    #[inline(always)]
    pub(super) fn line(&self) -> &'p [PmU64] {
        &self.words[..LINE_WORDS]
    }

    /// Returns the order and its tail.
    #[inline(always)]
    pub(super) fn order_line(&self) -> &'p [PmU64] {
        &self.words[LINE_WORDS..2 * LINE_WORDS]
    }

    /// Returns the commit word.
    #[inline(always)]
    pub(super) fn state_cell(&self) -> &'p PmU64 {
        &self.words[0]
    }

    #[inline(always)]
    pub(super) fn state(&self, pm: &impl Medium) -> LeafState {
        LeafState::from_word(pm.load_word(self.state_cell()))
    }

    #[inline(always)]
    pub(super) fn pending(&self, pm: &impl Medium) -> Pending {
        Pending::of_word(pm.load_word(&self.words[LINE_WORDS - 1]))
    }

    /// Returns the first word of slot `i`, counted from that of the leaf.
    #[inline(always)]
    pub(super) const fn slot_word(i: usize) -> usize {
        Parts::<K, V, LEAF>::SLOTS + i * Slot::<K, V>::WORDS
    }

    /// Slot `i`.
    #[inline(always)]
    pub(super) fn slot(&self, i: usize) -> &'p [PmU64] {
        &self.words[Self::slot_word(i)..][..Slot::<K, V>::WORDS]
    }

    /// Returns all slots.
    #[inline(always)]
    pub(super) fn slots(&self) -> &'p [PmU64] {
        &self.words[Parts::<K, V, LEAF>::SLOTS..][..LEAF * Slot::<K, V>::WORDS]
    }

    /// Returns the fingerprint of slot `i`.
    pub(super) fn fingerprint(&self, pm: &impl Medium, i: usize) -> u8 {
        pm.load_word(&self.words[1 + i / 8]).to_le_bytes()[i % 8]
    }

    /// Returns the bit of the slot whose insert a crash cut short, or 0.
    #[inline(always)]
    pub(super) fn missing(&self, pm: &impl Medium, state: LeafState) -> u64 {
        let pending = self.pending(pm);
        match pending.slot() {
            Some(i) if i < LEAF && state.slots() >> i & 1 == 1 => {
                let there = pending.is_there(pm.load_word(&self.slot(i)[0]));
                u64::from(!there) << i
            }
            _ => 0,
        }
    }

    /// Returns `true` if slot `i`, whose bit is set, is that of an insert which a crash cut short. Reads the slot
    /// only if it is the last insert's.
    #[inline(always)]
    fn is_missing(&self, pm: &impl Medium, i: usize) -> bool {
        let pending = self.pending(pm);
        pending.slot() == Some(i) && !pending.is_there(pm.load_word(&self.slot(i)[0]))
    }

    /// Returns the slots that hold records, as bits.
    #[inline(always)]
    pub(super) fn live(&self, pm: &impl Medium, state: LeafState) -> u64 {
        state.slots() & (u64::MAX >> (64 - LEAF)) & !self.missing(pm, state)
    }

    /// Returns the slots whose fingerprints are the probe's, as bits.
    #[inline(always)]
    pub(super) fn matches(&self, pm: &impl Medium, state: LeafState, probe: &Probe<'_, K>) -> u64 {
        // Bytes 0 to 7 of the line are the state itself.
        (pm.match_byte(self.line(), probe.fingerprint()) >> 8) & state.slots()
    }

    /// Returns the slot of the probe's key.
    #[inline(always)]
    pub(super) fn find<M: Medium>(
        &self,
        pool: &Pool<M>,
        state: LeafState,
        probe: &Probe<'_, K>,
    ) -> Result<Option<usize>, PmError> {
        self.find_among(pool, self.matches(pool.pm(), state, probe), probe)
    }

    /// Returns the slot of the probe's key, among these.
    #[inline(always)]
    pub(super) fn find_among<M: Medium>(
        &self,
        pool: &Pool<M>,
        candidates: u64,
        probe: &Probe<'_, K>,
    ) -> Result<Option<usize>, PmError> {
        let slot = self.find_stored(pool, candidates, probe)?;
        Ok(slot.filter(|&i| !self.is_missing(pool.pm(), i)))
    }

    /// Returns the slot of the probe's key, among these, which hold records whatever is pending.
    #[inline(always)]
    pub(super) fn find_stored<M: Medium>(
        &self,
        pool: &Pool<M>,
        candidates: u64,
        probe: &Probe<'_, K>,
    ) -> Result<Option<usize>, PmError> {
        // A pending record may be stored in part.
        let is_whole = |i| !self.is_missing(pool.pm(), i);
        Slot::<K, V>::find_among(pool, (candidates, LEAF), probe, |i| self.slot(i), is_whole)
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

    #[inline(always)]
    fn put_pending(&self, pm: &impl Medium, pending: Pending) {
        let cell = &self.words[LINE_WORDS - 1];
        let word = pm.load_word(cell);
        if Pending::of_word(word) != pending {
            pm.store_word(cell, pending.into_word(word));
        }
    }

    /// Stores an order and the state with these slots, whose fingerprints are stored; flush both
    /// [lines](Self::flush_lines).
    #[inline(always)]
    pub(super) fn publish(
        &self,
        pm: &impl Medium,
        state: LeafState,
        slots: u64,
        order: &Order,
        pending: Pending,
    ) {
        let tag = order.store(pm, self.order_line(), state);
        // Line 0, the state last: what it names is on the line before it. What was pending and is not
        // there leaves the state before it is forgotten.
        if pm.load_word(self.state_cell()) != state.into_word() {
            pm.store_word(self.state_cell(), state.into_word());
            pm.in_order();
        }
        self.put_pending(pm, pending);
        pm.in_order(); // what is pending and the fingerprints, on the same line
        let state = state.with_slots(slots).with_tag(tag);
        pm.store_word(self.state_cell(), state.into_word()); // LIN
    }

    /// Names the records of this order, all of them in their slots; returns the flush of it.
    #[track_caller]
    pub(super) fn grow(&self, pm: &impl Medium, order: &Order) -> Flushed {
        let state = self.state(pm);
        let settled = state.with_slots(state.slots() & !self.missing(pm, state));
        self.publish(pm, settled, order.named(), order, Pending::NONE);
        self.flush_lines(pm)
    }

    /// Returns the lines that slot `i` lies on, as bits.
    pub(super) fn lines_of_slot(i: usize) -> u64 {
        let first = Self::slot_word(i);
        let last = first + Slot::<K, V>::WORDS - 1;
        1 << (first / LINE_WORDS) | 1 << (last / LINE_WORDS)
    }

    /// Flushes the state and the order.
    #[inline(always)]
    #[track_caller]
    pub(super) fn flush_lines(&self, pm: &impl Medium) -> Flushed {
        pm.flush_words(&self.words[..2 * LINE_WORDS])
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

impl<K, V> Clone for Incoming<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, V> Copy for Incoming<'_, K, V> {}

/// A leaf as a writer found it.
pub(super) struct Found<'p, K, V, const LEAF: usize> {
    pub(super) leaf: Leaf<'p, K, V, LEAF>,
    /// Its state, with the slot of an insert that a crash cut short, if there is one: that slot is
    /// not used before another state is durable.
    pub(super) state: LeafState,
    /// The slot of the key.
    pub(super) slot: Option<usize>,
}

impl<K: Key, V: Value, const LEAF: usize> Found<'_, K, V, LEAF> {
    fn slots(&self) -> u64 {
        self.state.slots()
    }

    /// Returns `true` if nothing, or nothing but what is pending, is left when the record in slot `i` is gone.
    #[inline(always)]
    pub(super) fn may_be_last(&self, pm: &impl Medium, i: usize) -> bool {
        let pending = self.leaf.pending(pm).slot().map_or(0, |pending| 1 << pending);
        self.slots() & !(1 << i) & !pending == 0
    }

    /// Returns about the number of records that are left when that in slot `i` is removed.
    #[inline(always)]
    pub(super) fn len_without(&self, i: usize) -> usize {
        (self.slots() & !(1 << i)).count_ones() as usize
    }

    /// Returns a slot for a record with the probe's key.
    #[inline(always)]
    fn free_slot(&self, probe: &Probe<'_, K>) -> Option<usize> {
        free_slot(self.slots(), probe.preferred_slot(LEAF), LEAF)
    }

    /// Returns the state without the slot of an insert that a crash cut short.
    #[inline(always)]
    fn settled(&self, pm: &impl Medium) -> LeafState {
        self.state.with_slots(self.slots() & !self.leaf.missing(pm, self.state))
    }

    /// Inserts a record, whose key is not there; `false`, and nothing done, without a free slot.
    #[inline(always)]
    pub(super) fn insert<M: Medium>(
        &self,
        pool: &Pool<M>,
        record: Incoming<'_, K, V>,
    ) -> Result<bool, PmError> {
        let (pm, leaf) = (pool.pm(), &self.leaf);
        let Some(i) = self.free_slot(record.probe) else { return Ok(false) };
        let state = self.settled(pm);
        let slots = state.slots() | 1 << i;
        let order = Order::with(pool, leaf, state, i, record.probe)?;
        if Slot::<K, V>::HAS_BLOCK {
            self.insert_block(pool, i, record, &order)?;
            return Ok(true);
        }
        let slot = leaf.slot(i);
        let pending = Pending::new(i, pm.load_word(&slot[0]), record.probe.words()[0]);
        if Slot::<K, V>::IN_LINE
            && let Some(pending) = pending
        {
            // P1, LIN: in any order.
            let Incoming { probe, datum } = record;
            let written = Slot::<K, V>::write_key_last(pm, slot, probe, datum);
            leaf.put_fingerprint(pm, i, record.probe.fingerprint());
            leaf.publish(pm, state, slots, &order, pending);
            let published = leaf.flush_lines(pm);
            pm.fence(written.and(published))?; // DUR
            return Ok(true);
        }
        // P1: the record, before any bit names it.
        let written = Slot::<K, V>::write(pm, slot, record.probe, record.datum, 0);
        pm.fence(written)?;
        // P2, LIN.
        leaf.put_fingerprint(pm, i, record.probe.fingerprint());
        leaf.publish(pm, state, slots, &order, Pending::NONE);
        let published = leaf.flush_lines(pm);
        pm.fence(published)?; // DUR
        Ok(true)
    }

    fn insert_block<M: Medium>(
        &self,
        pool: &Pool<M>,
        i: usize,
        record: Incoming<'_, K, V>,
        order: &Order,
    ) -> Result<(), PmError> {
        let (pm, leaf) = (pool.pm(), &self.leaf);
        let mut op = pool.op()?;
        // P1: block, slot, ticket.
        let mut written = fill_record(pool, &mut op, leaf, i, record)?;
        op.prepare(pm.flush_together(&mut written))?;
        // P2, LIN. Records with blocks are never pending: the state is settled.
        leaf.put_fingerprint(pm, i, record.probe.fingerprint());
        leaf.publish(pm, self.state, self.slots() | 1 << i, order, Pending::NONE);
        let sealed = op.seal();
        let published = leaf.flush_lines(pm);
        let durable = pm.fence(sealed.and(published))?; // DUR
        op.finish(durable);
        Ok(())
    }

    /// Replaces the value in slot `i` by one store.
    #[inline(always)]
    pub(super) fn update<M: Medium>(
        &self,
        pool: &Pool<M>,
        i: usize,
        record: Incoming<'_, K, V>,
    ) -> Result<(), PmError> {
        if V::SHAPE.is_bytes() {
            return self.swing_block(pool, i, record);
        }
        // P2, LIN: one word in place.
        let pm = pool.pm();
        let cell = &self.leaf.slot(i)[Slot::<K, V>::KEY_WORDS];
        pm.store_word(cell, record.datum.words()[0]);
        let stored = pm.flush_words(words_of(cell));
        pm.fence(stored)?; // DUR
        Ok(())
    }

    /// Replaces the record block of slot `i` by one with the new value.
    fn swing_block<M: Medium>(
        &self,
        pool: &Pool<M>,
        i: usize,
        record: Incoming<'_, K, V>,
    ) -> Result<(), PmError> {
        let pm = pool.pm();
        let cell = &self.leaf.slot(i)[Slot::<K, V>::BLOCK_WORD];
        let old = pm.load_word(cell);
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Slot::<K, V>::block_size(record.probe, record.datum), 8)?;
        let new = block.ptr().offset();
        // P1: the new block; both tickets name the word that points to one of the two.
        let filled = Slot::<K, V>::write_block(pool, block.ptr(), record.probe, record.datum)?;
        op.allocate(&block, Owner { word: cell, mask: u64::MAX, expect: new })?;
        op.free(PPtr::<PmU64>::new(old), Owner { word: cell, mask: u64::MAX, expect: old })?;
        op.prepare(filled)?;
        // P2, LIN: the pointer.
        link(pool, op, cell, new)
    }

    /// Removes the record in slot `i`. What is pending stays so: its line says what it is.
    #[inline(always)]
    pub(super) fn remove<M: Medium>(&self, pool: &Pool<M>, i: usize) -> Result<(), PmError> {
        let (pm, leaf) = (pool.pm(), &self.leaf);
        let left = self.slots() & !(1 << i);
        if !Slot::<K, V>::HAS_BLOCK {
            // P2, LIN: the bit. The order goes on naming the slot, which its readers skip.
            pm.store_word(leaf.state_cell(), self.state.with_slots(left).into_word());
            persist(pm, leaf.line())?; // DUR
            return Ok(());
        }
        let cell = &leaf.slot(i)[Slot::<K, V>::BLOCK_WORD];
        let mut op = pool.op()?;
        // P1: the ticket. An earlier one may name the slot's word, which is free from now on.
        op.free(PPtr::<PmU64>::new(pm.load_word(cell)), leaf.owner(i))?;
        op.changes(cell);
        op.prepare(Flushed::nothing())?;
        // P2, LIN: the bit.
        pm.store_word(leaf.state_cell(), self.state.with_slots(left).into_word());
        let sealed = op.seal();
        let committed = pm.flush_words(leaf.line());
        let durable = pm.fence(sealed.and(committed))?; // DUR
        op.finish(durable);
        Ok(())
    }
}

/// Fills the free slot `i` and a block with a record, under a ticket, without flushes; returns
/// the words filled.
pub(super) fn fill_record<'p, K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &'p Pool<M>,
    op: &mut Op<'_, M>,
    leaf: &Leaf<'p, K, V, LEAF>,
    i: usize,
    record: Incoming<'_, K, V>,
) -> Result<[&'p [PmU64]; 2], PmError> {
    let Incoming { probe, datum } = record;
    let block = op.reserve_bytes(Slot::<K, V>::block_size(probe, datum), 8)?;
    let filled = Slot::<K, V>::fill_block(pool, block.ptr(), probe, datum)?;
    op.allocate(&block, leaf.owner(i))?;
    let slot = leaf.slot(i);
    Ok([filled, Slot::<K, V>::fill(pool.pm(), slot, probe, datum, block.ptr().offset())])
}

/// Flushes words of one line that say what is so, and fences.
pub(super) fn persist(pm: &impl Medium, words: &[PmU64]) -> Result<Durable, PmError> {
    let flushed = pm.flush_words(words);
    Ok(pm.fence(flushed)?)
}

/// Commits an operation by one pointer: stores it, seals, flushes it and fences.
pub(super) fn link<M: Medium>(
    pool: &Pool<M>,
    mut op: Op<'_, M>,
    cell: &PmU64,
    target: u64,
) -> Result<(), PmError> {
    let pm = pool.pm();
    pm.store_word(cell, target); // LIN
    let sealed = op.seal();
    let linked = pm.flush_words(words_of(cell));
    let durable: Durable = pm.fence(sealed.and(linked))?; // DUR
    op.finish(durable);
    Ok(())
}
