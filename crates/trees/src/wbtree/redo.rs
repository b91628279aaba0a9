//! A value of several words is replaced in place, under one fence: a redo log says what it shall be.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | an entry of the log: where, which words (DUR); the words of the update before | return |
//! | – | the words in place (LIN) | the next update but one |
//!
//! The entries take turns in a ring. An update's own words are flushed by the update after it, whose
//! entry may be durable before they are: so the last *two* entries count, and recovery stores what
//! they say, the older one first. That must not hit a slot that has another record by then: an operation that
//! frees a slot that one of the two names, or moves records, first makes the log
//! [void](WbTree::void_redo). Other writes leave it alone.
//!
//! A writer flushes the words of the update before, of any thread: a fence orders the flushes of
//! its own thread only.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Flushed, Medium, PmError, PmU64, Pool};
use pmindex_index::{Key, MAX_INLINE_WORDS, Value};
use pmindex_record::{EncodedValue, Slot};

use super::layout::{LINE_WORDS, REDO_ENTRIES, Root};
use super::leaf::Leaf;
use super::tree::WbTree;

/// Words of an entry: its number, where, and a value.
const NUMBER: usize = 0;
const PLACE: usize = 1;
const VALUE: usize = 2;
const _: () = assert!(VALUE + MAX_INLINE_WORDS <= LINE_WORDS);

/// The state of the log, in DRAM.
#[derive(Debug, Default)]
pub(super) struct Redo {
    /// The number of the last entry.
    number: AtomicU64,
    /// The places of the words of the last two valid entries, or 0; that of entry `n` in `n % 2`.
    places: [AtomicU64; 2],
}

impl Redo {
    /// Begins after this entry: no entry up to it is valid.
    pub(super) fn begin_after(&self, number: u64) {
        self.number.store(number, Relaxed);
        for place in &self.places {
            place.store(0, Relaxed);
        }
    }

    fn places(&self) -> [u64; 2] {
        [self.places[0].load(Relaxed), self.places[1].load(Relaxed)]
    }
}

/// Returns the entry with this number, whose line another one had before.
fn entry(root: &Root, number: u64) -> &[PmU64] {
    let line = (number % REDO_ENTRIES as u64) as usize;
    &root.redo[line * LINE_WORDS..][..LINE_WORDS]
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    WbTree<K, V, M, LEAF, INNER>
{
    const LOGGED: bool = !Slot::<K, V>::ONE_WORD_UPDATE;

    /// Returns the place of the words of the value in slot `i`.
    fn place_of(leaf: &Leaf<'_, K, V, LEAF>, i: usize) -> u64 {
        let word = Leaf::<K, V, LEAF>::slot_word(i) + Slot::<K, V>::KEY_WORDS;
        leaf.offset() + 8 * word as u64
    }

    fn value_words(pool: &Pool<M>, place: u64) -> Result<&[PmU64], PmError> {
        pool.words(place, V::SHAPE.words())
    }

    /// Replaces the value in slot `i` of a leaf.
    #[inline(always)]
    pub(super) fn update_in_place(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        i: usize,
        datum: &EncodedValue<'_, V>,
    ) -> Result<(), PmError> {
        let (pool, pm, redo) = (&*self.pool, self.pm(), &self.redo);
        let before = redo.number.load(Relaxed);
        let number = before + 1;
        // From here on the number is taken, whatever becomes of the entry.
        redo.number.store(number, Relaxed);
        let place = Self::place_of(leaf, i);
        // P1: one line, stored in this order: an entry that has its number is whole. The one whose line
        // it takes is not one of the last two.
        let line = entry(self.root()?, number);
        pm.store_word(&line[PLACE], place);
        let words = datum.words();
        for (cell, &word) in line[VALUE..].iter().zip(words) {
            pm.store_word(cell, word);
        }
        pm.in_order();
        pm.store_word(&line[NUMBER], number);
        let logged = pm.flush_words(line);
        let last = self.flush_place(redo.places[(before % 2) as usize].load(Relaxed))?;
        pm.fence(logged.and(last))?; // DUR
        redo.places[(number % 2) as usize].store(place, Relaxed);
        // LIN.
        for (cell, &word) in Self::value_words(pool, place)?.iter().zip(words) {
            pm.store_word(cell, word);
        }
        Ok(())
    }

    #[track_caller]
    fn flush_place(&self, place: u64) -> Result<Flushed, PmError> {
        if place == 0 {
            return Ok(Flushed::nothing());
        }
        Ok(self.pm().flush_words(Self::value_words(&self.pool, place)?))
    }

    /// Before slot `i` of a leaf is freed.
    #[inline(always)]
    pub(super) fn redo_leaves_slot(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        i: usize,
    ) -> Result<(), PmError> {
        if Self::LOGGED && self.redo.places().contains(&Self::place_of(leaf, i)) {
            self.void_redo()?;
        }
        Ok(())
    }

    /// Before records move.
    pub(super) fn redo_leaves_all(&self) -> Result<(), PmError> {
        if Self::LOGGED && self.redo.places() != [0, 0] {
            self.void_redo()?;
        }
        Ok(())
    }

    /// Makes durable in place what the log says, and the log void.
    #[cold]
    #[inline(never)]
    fn void_redo(&self) -> Result<(), PmError> {
        let [one, other] = self.redo.places();
        let flushed = self.flush_place(one)?.and(self.flush_place(other)?);
        self.pm().fence(flushed)?; // durable before: that they need not be redone
        let number = self.redo.number.load(Relaxed);
        settle(self.pm(), self.root()?, number)?;
        self.redo.begin_after(number);
        Ok(())
    }

    /// Finishes the update that a panic cut short, if its entry was made.
    pub(super) fn redo_after_panic(&self) -> Result<(), PmError> {
        let root = self.root()?;
        if Self::LOGGED && Self::last_entry(&self.pool, root)? > self.pm().load(&root.settled) {
            // Durable before: what it says is in place.
            let logged = self.pm().flush_words(&root.redo);
            self.pm().fence(logged)?;
            let (number, _) = Self::redo(&self.pool, root)?;
            self.redo.begin_after(number);
        }
        Ok(())
    }

    /// Returns the number of the last entry, or of the last one that is void.
    fn last_entry(pool: &Pool<M>, root: &Root) -> Result<u64, PmError> {
        let pm = pool.pm();
        let numbers = root.redo.iter().step_by(LINE_WORDS).map(|cell| pm.load_word(cell));
        let last = numbers.max().unwrap_or(0).max(pm.load(&root.settled));
        if last > u64::MAX / 2 {
            let offset = pool.pptr(&root.redo[0]).offset();
            return Err(PmError::Corrupt { what: "the numbers of the redo log", offset });
        }
        Ok(last)
    }

    /// Finishes what a crash or a panic interrupted; returns the number of the last entry and whether there was
    /// anything to do. No entry is valid from here on. Idempotent.
    pub(super) fn redo(pool: &Pool<M>, root: &Root) -> Result<(u64, bool), PmError> {
        let pm = pool.pm();
        if !Self::LOGGED {
            return Ok((0, false));
        }
        let (settled, last) = (pm.load(&root.settled), Self::last_entry(pool, root)?);
        if last == settled {
            return Ok((settled, false));
        }
        for number in [last - 1, last] {
            let line = entry(root, number);
            if number > settled && pm.load_word(&line[NUMBER]) == number {
                let words = Self::value_words(pool, pm.load_word(&line[PLACE]))?;
                for (cell, logged) in words.iter().zip(&line[VALUE..]) {
                    pm.store_word(cell, pm.load_word(logged));
                }
                let redone = pm.flush_words(words);
                pm.fence(redone)?;
            }
        }
        settle(pm, root, last)?;
        Ok((last, true))
    }
}

/// Voids the entries up to this one.
fn settle(pm: &impl Medium, root: &Root, number: u64) -> Result<(), PmError> {
    pm.store(&root.settled, number);
    let settled = pm.flush(&root.settled);
    pm.fence(settled)?;
    Ok(())
}
