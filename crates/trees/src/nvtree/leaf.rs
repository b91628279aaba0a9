//! A leaf: finding, appending and cancelling one record.
//!
//! Everything that persists here runs under the leaf's version lock, which is held until the last
//! fence, so no thread sees what a crash could take back.
//!
//! | operation | step | store | durable before |
//! |-----------|------|-------|----------------|
//! | append    | P1 | byte strings: the record's block, the tickets of the new and of the old one; a slot wider than a line | P2 |
//! |           | P2 | the slot, then on the same line its mark in the counter (LIN) | return (DUR) |
//! |           | P3 | fingerprint and hint: derived, never flushed | |
//! | cancel    | P1 | the hint's distrust; byte strings: the ticket of the block | P2 |
//! |           | P2 | the record's own mark turns negative (LIN) | return (DUR) |
//! |           | P3 | the hint | |
//!
//! An insert appends a positive record, an update one that replaces another, a removal a negative
//! one. Only in a full leaf a removal *cancels* the record where it stands: so it never needs room.
//! A bulk load that fails does so with all of its records.
//! The record and the counter that commits it are on one line, which becomes durable in the order of
//! its stores: an append of inline records has no P1, hence one line and one fence.

use std::marker::PhantomData;

use pmindex_core::{Flushed, Medium, Op, Owner, PmError, PmU64, Pool, Word, rank_sort, words_of};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{EncodedValue, Probe, Slot, bits};

use super::layout::{Geometry, Hint, LeafPtr, MAX_LEAF, Mark, NEXT};

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

    /// Returns the header line.
    #[inline(always)]
    pub(super) fn header(&self) -> &'p [PmU64] {
        &self.words[..=NEXT]
    }

    /// What the counters amount to.
    #[inline(always)]
    pub(super) fn hint(&self, pm: &impl Medium) -> Hint {
        Hint::from_word(pm.load_word(&self.words[0]))
    }

    /// Stores the hint. Derived: it need not be durable.
    #[inline(always)]
    pub(super) fn put_hint(&self, pm: &impl Medium, hint: Hint) {
        pm.in_order(); // durable before: the fingerprints of what it counts, on the same line
        pm.store_word(&self.words[0], hint.into_word());
    }

    /// Slot `i`.
    #[inline(always)]
    pub(super) fn slot(&self, i: usize) -> &'p [PmU64] {
        &self.words[Geometry::<K, V, LEAF>::slot(i)..][..Slot::<K, V>::WORDS]
    }

    /// Returns the counter of slot `i`.
    #[inline(always)]
    pub(super) fn counter(&self, i: usize) -> &'p PmU64 {
        &self.words[Geometry::<K, V, LEAF>::counter(i / Geometry::<K, V, LEAF>::PER_SEGMENT)]
    }

    /// Returns the line of the counter of slot `i`.
    #[inline(always)]
    pub(super) fn counter_line(&self, i: usize) -> &'p [PmU64] {
        let counter = Geometry::<K, V, LEAF>::counter(i / Geometry::<K, V, LEAF>::PER_SEGMENT);
        &self.words[counter..][..=NEXT]
    }

    /// Returns the place of slot `i` in its counter.
    #[inline(always)]
    pub(super) fn place(i: usize) -> usize {
        i % Geometry::<K, V, LEAF>::PER_SEGMENT
    }

    /// What the counter says of slot `i`.
    #[inline(always)]
    pub(super) fn mark(&self, pm: &impl Medium, i: usize) -> Mark {
        Mark::of(pm.load_word(self.counter(i)), Self::place(i))
    }

    /// Returns the cell of the next leaf's offset.
    #[inline(always)]
    pub(super) fn next_cell(&self) -> &'p PmU64 {
        &self.words[NEXT]
    }

    /// Returns the next leaf's offset, or 0.
    #[inline(always)]
    pub(super) fn next(&self, pm: &impl Medium) -> u64 {
        pm.load_word(self.next_cell())
    }

    /// Returns the cells of the fence.
    pub(super) fn fence_cells(&self) -> &'p [PmU64] {
        &self.words[Geometry::<K, V, LEAF>::FENCE..][..Geometry::<K, V, LEAF>::FENCE_WORDS]
    }

    /// Returns the words of the fence.
    pub(super) fn fence(&self, pm: &impl Medium) -> pmindex_index::Words {
        let mut words = [0; 4];
        let cells = self.fence_cells();
        pm.read_words(cells, &mut words[..cells.len()]);
        words
    }

    /// Returns the fingerprint of slot `i`.
    pub(super) fn fingerprint(&self, pm: &impl Medium, i: usize) -> u8 {
        pm.load_word(&self.words[1 + i / 8]).to_le_bytes()[i % 8]
    }

    /// Stores the fingerprint of slot `i`. Derived: it need not be durable.
    #[inline(always)]
    pub(super) fn put_fingerprint(&self, pm: &impl Medium, i: usize, fingerprint: u8) {
        let cell = &self.words[1 + i / 8];
        let shift = 8 * (i % 8);
        let rest = pm.load_word(cell) & !(0xff << shift);
        pm.store_word(cell, rest | u64::from(fingerprint) << shift);
    }

    /// Returns the live slots whose fingerprints are the probe's. Racing: validate.
    #[inline(always)]
    pub(super) fn matches(&self, pm: &impl Medium, hint: Hint, probe: &Probe<'_, K>) -> u64 {
        // Bytes 0 to 7 of the line are the hint itself; those of `next` are no live slots.
        (pm.match_byte(self.header(), probe.fingerprint()) >> 8) & hint.live()
    }

    /// Returns the slot of the probe's key. Racing: validate.
    #[inline(always)]
    pub(super) fn find<M: Medium>(
        &self,
        pool: &Pool<M>,
        hint: Hint,
        probe: &Probe<'_, K>,
    ) -> Result<Option<usize>, PmError> {
        let namesakes = self.matches(pool.pm(), hint, probe);
        Slot::<K, V>::find_among(pool, (namesakes, LEAF), probe, |i| self.slot(i), |_| true)
    }

    /// Returns the keys with their slots, in order. Not racing, or validate.
    pub(super) fn sorted<M: Medium>(
        &self,
        pool: &Pool<M>,
        hint: Hint,
    ) -> Result<Vec<(K, usize)>, PmError> {
        if K::SHAPE == Shape::Inline(1) {
            let (mut words, mut slots, mut len) = ([0; MAX_LEAF], [0u8; MAX_LEAF], 0);
            for i in bits(hint.live()).filter(|&i| i < LEAF) {
                words[len] = pool.pm().load_word(&self.slot(i)[0]);
                slots[len] = i as u8;
                len += 1;
            }
            let mut order = [0; 64];
            let order = rank_sort(&words[..len], &mut order).iter().map(|&at| usize::from(at));
            return Ok(order
                .map(|at| (K::from_words(&[words[at]]), usize::from(slots[at])))
                .collect());
        }
        let mut keys = bits(hint.live())
            .filter(|&i| i < LEAF)
            .map(|i| Ok((Slot::<K, V>::key(pool, self.slot(i))?, i)))
            .collect::<Result<Vec<_>, PmError>>()?;
        keys.sort_unstable();
        Ok(keys)
    }

    /// Owner of a block that becomes live with the append at slot `i`.
    pub(super) fn appended(&self, i: usize) -> Owner<'p> {
        let bit = Mark::used_bit(Self::place(i));
        Owner { word: self.counter(i), mask: bit, expect: bit }
    }

    /// Owner of a block that is live until the append at slot `i`.
    fn until_appended(&self, i: usize) -> Owner<'p> {
        Owner { expect: 0, ..self.appended(i) }
    }

    /// Stores the words of slot `i`.
    #[inline(always)]
    pub(super) fn write_slot(
        &self,
        pm: &impl Medium,
        i: usize,
        record: &Incoming<'_, K, V>,
        block: u64,
    ) {
        let slot = self.slot(i);
        if let Shape::Inline(n) = K::SHAPE {
            for (cell, &word) in slot[..n].iter().zip(record.probe.words()) {
                pm.store_word(cell, word);
            }
        }
        if let Shape::Inline(n) = V::SHAPE {
            for (cell, &word) in
                slot[Slot::<K, V>::KEY_WORDS..][..n].iter().zip(record.datum.words())
            {
                pm.store_word(cell, word);
            }
        }
        if Slot::<K, V>::HAS_BLOCK {
            pm.store_word(&slot[Slot::<K, V>::BLOCK_WORD], block);
        }
    }

    /// Stores the mark of slot `i` behind its record.
    #[inline(always)]
    pub(super) fn put_mark(&self, pm: &impl Medium, i: usize, mark: Mark) {
        let counter = self.counter(i);
        pm.store_word(counter, mark.add_to(pm.load_word(counter), Self::place(i)));
    }
}

/// A record to insert.
pub(super) struct Incoming<'r, K, V> {
    pub(super) probe: &'r Probe<'r, K>,
    pub(super) datum: &'r EncodedValue<'r, V>,
}

impl<K: Key, V: Value, const LEAF: usize> Leaf<'_, K, V, LEAF> {
    /// Appends a record of a key that is not there, or that is in slot `old`; the leaf is not full.
    #[inline(always)]
    pub(super) fn append<M: Medium>(
        &self,
        pool: &Pool<M>,
        hint: Hint,
        old: Option<usize>,
        record: &Incoming<'_, K, V>,
    ) -> Result<(), PmError> {
        let pm = pool.pm();
        let i = hint.count();
        let mark = old.map_or(Mark::POSITIVE, Mark::replacing);
        // P1: the block and the tickets.
        let (op, block) = if Slot::<K, V>::HAS_BLOCK {
            self.prepare_block(pool, i, old, record)?
        } else {
            (None, 0)
        };
        self.write_slot(pm, i, record, block);
        if !Geometry::<K, V, LEAF>::ONE_LINE {
            // P1: the record, before the counter on another line.
            let written = pm.flush_words(self.slot(i));
            pm.fence(written)?;
        }
        // P2, LIN: the mark, behind the record on its line.
        pm.in_order();
        self.put_mark(pm, i, mark);
        commit(pool, op, self.counter_line(i))?; // DUR
        // P3: what readers go by.
        self.put_fingerprint(pm, i, record.probe.fingerprint());
        self.put_hint(pm, hint.appended(i, mark));
        Ok(())
    }

    /// Step P1 of an append at slot `i` of a record with a block.
    fn prepare_block<'p, M: Medium>(
        &self,
        pool: &'p Pool<M>,
        i: usize,
        old: Option<usize>,
        record: &Incoming<'_, K, V>,
    ) -> Result<(Option<Op<'p, M>>, u64), PmError> {
        let Incoming { probe, datum } = *record;
        let old = old.map(|old| Slot::<K, V>::block(pool.pm(), self.slot(old)));
        if let (Some(block), false) = (old, V::SHAPE.is_bytes()) {
            return Ok((None, block)); // the key's block stays
        }
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Slot::<K, V>::block_size(probe, datum), 8)?;
        let filled = Slot::<K, V>::write_block(pool, block.ptr(), probe, datum)?;
        op.allocate(&block, self.appended(i))?;
        if let Some(old) = old {
            op.free(LeafPtr::new(old), self.until_appended(i))?;
        }
        op.prepare(filled)?;
        Ok((Some(op), block.ptr().offset()))
    }

    /// Removes the record in slot `victim`: appends a negative one, or cancels it where the leaf is
    /// full.
    #[inline(always)]
    pub(super) fn remove<M: Medium>(
        &self,
        pool: &Pool<M>,
        hint: Hint,
        victim: usize,
    ) -> Result<(), PmError> {
        let pm = pool.pm();
        let i = hint.count();
        if i >= LEAF {
            return self.cancel(pool, hint, 1 << victim);
        }
        let mut op = None;
        if Slot::<K, V>::HAS_BLOCK {
            // P1: the ticket.
            let block = Slot::<K, V>::block(pm, self.slot(victim));
            op = Some(prepare_free(pool, block, self.until_appended(i), None)?);
        }
        // P2, LIN: the mark. It names the slot of the record that is gone, so it needs no key.
        let mark = Mark::negative(victim);
        self.put_mark(pm, i, mark);
        commit(pool, op, self.counter_line(i))?; // DUR
        // P3: what readers go by.
        self.put_hint(pm, hint.appended(i, mark));
        Ok(())
    }

    /// Turns records negative where they stand: the `victims`, live slots of one segment, or the
    /// first of them, as many as an operation can free.
    #[cold]
    pub(super) fn cancel<M: Medium>(
        &self,
        pool: &Pool<M>,
        hint: Hint,
        victims: u64,
    ) -> Result<(), PmError> {
        let cancelled = self.try_cancel(pool, hint, victims);
        if cancelled.is_err() && pool.pm().is_poisoned() {
            // In memory alone: readers go by what the counters say.
            self.refresh(pool)?;
            pool.pm().keep_stores();
        }
        cancelled
    }

    fn try_cancel<M: Medium>(
        &self,
        pool: &Pool<M>,
        hint: Hint,
        victims: u64,
    ) -> Result<(), PmError> {
        let pm = pool.pm();
        let Some(first) = bits(victims).next() else { return Ok(()) };
        let counter = self.counter(first);
        let mut after = pm.load_word(counter);
        let mut left = hint.cancelling();
        // P1: no other word will tell that the hint is behind, so the hint says so itself. Once is enough.
        let mut distrusted = Flushed::nothing();
        self.put_hint(pm, hint.cancelling());
        if !hint.is_distrusted() {
            distrusted = pm.flush_words(words_of(&self.words[0]));
        }
        let mut op = if Slot::<K, V>::HAS_BLOCK { Some(pool.op()?) } else { None };
        for victim in bits(victims) {
            let negative = Mark::negative_bit(Self::place(victim));
            if let Some(op) = &mut op {
                let block = Slot::<K, V>::block(pm, self.slot(victim));
                let owner = Owner { word: counter, mask: negative, expect: 0 };
                match op.free(LeafPtr::new(block), owner) {
                    Ok(()) => {}
                    Err(error) if victim == first => return Err(error),
                    Err(_) => break, // the operation is full
                }
            }
            after |= negative;
            left = left.without(victim);
        }
        if let Some(op) = &mut op {
            op.prepare(distrusted)?;
        } else if !hint.is_distrusted() {
            pm.fence(distrusted)?;
        }
        // P2, LIN: the signs.
        pm.store_word(counter, after);
        commit(pool, op, self.counter_line(first))?; // DUR
        // P3: what readers go by.
        self.put_hint(pm, left.cancelled());
        Ok(())
    }

    /// Returns `true` if a panic in mid-operation left the hint behind the counters. (After a crash a
    /// distrusted hint may be behind as well.)
    #[inline(always)]
    pub(super) fn is_behind(&self, pm: &impl Medium, hint: Hint) -> bool {
        let count = hint.count();
        hint.is_cancelling() || count < LEAF && self.mark(pm, count).is_used()
    }

    /// Derives hint and fingerprints from the segments, and stores them.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    pub(super) fn refresh<M: Medium>(&self, pool: &Pool<M>) -> Result<Hint, PmError> {
        let pm = pool.pm();
        let hint = self.replay(pm)?;
        for i in bits(hint.live()) {
            let key = Slot::<K, V>::key(pool, self.slot(i))?;
            self.put_fingerprint(pm, i, Probe::<K>::of_stored(&key).fingerprint());
        }
        self.put_hint(pm, hint);
        Ok(hint)
    }

    /// As [`refresh`](Self::refresh), after an operation that a panic interrupted: what it stored
    /// becomes durable before any thread sees it.
    #[cold]
    pub(super) fn heal<M: Medium>(&self, pool: &Pool<M>) -> Result<(), PmError> {
        let flushed = pool.pm().flush_words(self.words);
        pool.pm().fence(flushed)?;
        self.refresh(pool)?;
        Ok(())
    }

    /// Derives the hint from the counters.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]: a record that supersedes a later one.
    pub(super) fn replay(&self, pm: &impl Medium) -> Result<Hint, PmError> {
        let mut hint = Hint::default();
        for i in 0..LEAF {
            let mark = self.mark(pm, i);
            if !mark.is_used() {
                continue;
            }
            if mark.victim().is_some_and(|victim| victim >= i) {
                let what = "a record that supersedes a later one";
                return Err(PmError::Corrupt { what, offset: self.offset });
            }
            hint = hint.appended(i, mark);
        }
        Ok(hint)
    }
}

/// Step P1 of an operation that does nothing but free a block: its ticket, durably. The commit also
/// changes the word `changed`, if there is one.
pub(super) fn prepare_free<'p, M: Medium>(
    pool: &'p Pool<M>,
    block: u64,
    owner: Owner<'_>,
    changed: Option<&PmU64>,
) -> Result<Op<'p, M>, PmError> {
    let mut op = pool.op()?;
    op.free(LeafPtr::new(block), owner)?;
    if let Some(changed) = changed {
        op.changes(changed);
    }
    op.prepare(Flushed::nothing())?;
    Ok(op)
}

/// Ends an operation: flushes the line with the word that decides, which has been stored,
/// and fences; with the allocation bits of `op`, which ends.
#[inline(always)]
pub(super) fn commit<M: Medium>(
    pool: &Pool<M>,
    op: Option<Op<'_, M>>,
    line: &[PmU64],
) -> Result<(), PmError> {
    let Some(op) = op else {
        let flushed = pool.pm().flush_words(line);
        pool.pm().fence(flushed)?;
        return Ok(());
    };
    finish(pool, op, line)
}

/// As [`commit`], with an operation.
pub(super) fn finish<M: Medium>(
    pool: &Pool<M>,
    mut op: Op<'_, M>,
    line: &[PmU64],
) -> Result<(), PmError> {
    let sealed = op.seal(); // before the flush: its atomic changes would wait for it
    let flushed = pool.pm().flush_words(line);
    let durable = pool.pm().fence(flushed.and(sealed))?;
    op.finish(durable);
    Ok(())
}

/// Commits an operation by one pointer.
pub(super) fn link<M: Medium>(
    pool: &Pool<M>,
    op: Op<'_, M>,
    cell: &PmU64,
    target: u64,
) -> Result<(), PmError> {
    pool.pm().store_word(cell, target); // LIN
    finish(pool, op, words_of(cell)) // DUR
}
