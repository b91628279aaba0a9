//! An undo log for each thread: the words it stored and has not made durable.
//!
//! When a write-back fails, the words that the fence was to make durable must not stay visible: the operation
//! is refused. Each thread takes back its own words, in the fence that fails, while it still holds the locks
//! under which it stored them. A word that another thread has changed since keeps that thread's value; in a
//! word whose bits belong to several threads only the thread's own bits are taken back.

use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::cell::PmU64;
use crate::line::LINE;
use crate::threadlist::thread_list;

thread_list! {
    /// For each medium, what this thread stored since its last fence.
    const STORED: (Weak<()>, Stores), kept if |stored| !stored.1.stores.is_empty();
}

/// The stores after which those of the same words are merged: a thread may store for long without a fence.
const MERGED_AFTER: usize = 1 << 16;

/// A store.
#[derive(Clone, Copy, Debug)]
struct Store {
    address: usize,
    old: u64,
    new: u64,
    mask: u64,
}

/// A stored word.
#[derive(Clone, Copy, Debug)]
struct Stored {
    /// The word's former value.
    old: u64,
    /// What this thread stored last.
    new: u64,
    /// The bits that are this thread's: all, except after a change of single bits.
    mask: u64,
}

impl Stored {
    /// Adds a later store of the word.
    fn add(&mut self, Store { old, new, mask, .. }: Store) {
        if (old ^ self.new) & self.mask != 0 {
            // Another thread has changed the word meanwhile: its value stays.
            *self = Self { old, new: old, mask: 0 };
        }
        // Bits that this thread had not touched before keep their present value.
        self.old = self.old & self.mask | old & !self.mask;
        self.mask |= mask;
        self.new = new;
    }
}

/// Stores in their order.
#[derive(Debug, Default)]
struct Stores {
    stores: Vec<Store>,
    /// The number that were left when they were last merged.
    merged: usize,
}

impl Stores {
    fn push(&mut self, store: Store) {
        if self.stores.len() >= MERGED_AFTER + 2 * self.merged {
            let words = self.words().into_iter();
            let store = |(address, Stored { old, new, mask })| Store { address, old, new, mask };
            self.stores = words.map(store).collect();
            self.merged = self.stores.len();
        }
        self.stores.push(store);
    }

    fn clear(&mut self) {
        self.stores.clear();
        self.merged = 0;
    }

    /// Forgets the stores to the addresses for which this returns `true`.
    fn forget(&mut self, mut is_durable: impl FnMut(usize) -> bool) {
        self.stores.retain(|store| !is_durable(store.address));
        self.merged = self.merged.min(self.stores.len());
    }

    /// Returns the words by address.
    fn words(&self) -> HashMap<usize, Stored> {
        let mut words = HashMap::new();
        for &store in &self.stores {
            let none = Stored { old: store.old, new: store.old, mask: 0 };
            words.entry(store.address).or_insert(none).add(store);
        }
        words
    }
}

/// Identifies a medium of this process.
#[derive(Debug, Default)]
pub(crate) struct Undo(Arc<()>);

impl Undo {
    fn with<R>(&self, use_stores: impl FnOnce(&mut Stores) -> R) -> R {
        STORED.with(|stored| {
            let mine = |entry: &(Weak<()>, Stores)| entry.0.as_ptr() == Arc::as_ptr(&self.0);
            if let Some(at) = stored.iter().position(mine) {
                return use_stores(&mut stored[at].1);
            }
            stored.retain(|entry| entry.0.strong_count() > 0);
            stored.push((Arc::downgrade(&self.0), Stores::default()));
            let last = stored.len() - 1;
            use_stores(&mut stored[last].1)
        })
    }

    /// Notes that this thread replaced `old` by `new` in the bits of `mask`.
    fn note(&self, cell: &PmU64, old: u64, new: u64, mask: u64) {
        let address = core::ptr::from_ref(cell).addr();
        self.with(|stores| stores.push(Store { address, old, new, mask }));
    }

    /// Stores a word, and notes its former value.
    #[cold]
    #[inline(never)]
    pub(crate) fn store(&self, cell: &PmU64, value: u64) {
        let old = cell.atomic().swap(value, AcqRel);
        self.note(cell, old, value, u64::MAX);
    }

    /// Notes that this thread has changed these bits of a word.
    #[cold]
    #[inline(never)]
    pub(crate) fn changed(&self, cell: &PmU64, old: u64, new: u64, bits: u64) {
        self.note(cell, old, new, bits);
    }

    /// Forgets the words in these lines, whose addresses are sorted: they are durable.
    pub(crate) fn forget_lines(&self, lines: &[usize]) {
        // The next store is often to the same line or the next one.
        let mut last = 0;
        let mut is_durable = |address: usize| {
            let line = address & !(LINE - 1);
            if lines.get(last) != Some(&line) {
                match lines.get(last + 1) {
                    Some(next) if *next == line => last += 1,
                    _ => match lines.binary_search(&line) {
                        Ok(at) => last = at,
                        Err(_) => return false,
                    },
                }
            }
            true
        };
        self.with(|stores| stores.forget(&mut is_durable));
    }

    /// Forgets the words in these pages: they are durable.
    pub(crate) fn forget(&self, pages: &Range<usize>) {
        self.with(|stores| stores.forget(|address| pages.contains(&address)));
    }

    /// Keeps the words that this thread stored so far, even if its next fence fails.
    pub(crate) fn keep(&self) {
        self.with(Stores::clear);
    }

    /// Takes back what this thread stored; `cell_at` resolves addresses.
    pub(crate) fn take_back<'c>(&self, cell_at: impl Fn(usize) -> Option<&'c PmU64>) {
        let stores = self.with(core::mem::take);
        for (address, Stored { old, new, mask }) in stores.words() {
            let Some(cell) = cell_at(address).map(PmU64::atomic) else { continue };
            let back = |word: u64| {
                let whole = mask == u64::MAX;
                (!whole || word == new).then_some(word & !mask | old & mask)
            };
            let _ = cell.fetch_update(AcqRel, Acquire, back);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use super::*;

    fn back(undo: &Undo, cells: &[PmU64]) {
        let at = |address| cells.iter().find(|cell| core::ptr::from_ref(*cell).addr() == address);
        undo.take_back(at);
    }

    fn value(cell: &PmU64) -> u64 {
        cell.atomic().load(Acquire)
    }

    fn store(undo: &Undo, cell: &PmU64, word: u64) {
        let old = cell.atomic().swap(word, AcqRel);
        undo.note(cell, old, word, u64::MAX);
    }

    #[test]
    fn a_thread_takes_back_its_own_words_and_no_others() {
        let (undo, other) = (Undo::default(), Undo::default());
        let cells = [1, 2, 3, 4].map(PmU64::new);
        store(&undo, &cells[0], 10);
        store(&undo, &cells[0], 11);
        store(&other, &cells[1], 20);
        store(&undo, &cells[2], 30);
        cells[2].atomic().store(31, Relaxed); // another thread
        store(&undo, &cells[3], 40);
        cells[3].atomic().store(41, Relaxed); // another thread, and then this one again
        store(&undo, &cells[3], 42);
        back(&undo, &cells);
        assert_eq!(cells.each_ref().map(value), [1, 20, 31, 41]);
        back(&undo, &cells);
        assert_eq!(cells.each_ref().map(value), [1, 20, 31, 41], "once");
    }

    #[test]
    fn the_words_of_durable_lines_are_forgotten_and_no_others() {
        // Lines of 8 words: of 64 cells, whatever their alignment, at most 9 lines.
        let cells: Vec<_> = (0..64).map(PmU64::new).collect();
        let line_of = |cell: &PmU64| core::ptr::from_ref(cell).addr() & !(LINE - 1);
        let mut random = 1_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % below
        };
        let (mut forgotten, mut kept) = (0, 0);
        for _ in 0..200 {
            let undo = Undo::default();
            for (at, cell) in (0..).zip(&cells) {
                cell.atomic().store(at, Relaxed);
            }
            let stored: Vec<usize> = (0..next(100)).map(|_| next(64)).collect();
            for &at in &stored {
                store(&undo, &cells[at], 1000 + at as u64);
            }
            let mut lines: Vec<usize> = cells.iter().map(line_of).collect();
            lines.dedup();
            lines.retain(|_| next(2) == 0);
            undo.forget_lines(&lines);
            back(&undo, &cells);
            for (at, cell) in cells.iter().enumerate() {
                let is_durable = stored.contains(&at) && lines.contains(&line_of(cell));
                let expected = if is_durable { 1000 + at as u64 } else { at as u64 };
                assert_eq!(value(cell), expected, "word {at}");
                forgotten += usize::from(is_durable);
                kept += usize::from(stored.contains(&at) && !is_durable);
            }
        }
        assert!(forgotten > 1000 && kept > 1000, "{forgotten}, {kept}");
    }

    #[test]
    fn long_without_a_fence_takes_memory_for_its_words_alone() {
        let undo = Undo::default();
        let cells: Vec<_> = (0..100).map(PmU64::new).collect();
        for number in 0..(5 * MERGED_AFTER) {
            store(&undo, &cells[number % 100], number as u64 + 1000);
        }
        let kept = undo.with(|stores| (stores.stores.len(), stores.stores.capacity()));
        assert!(kept.0 <= MERGED_AFTER + 200 && kept.1 < 3 * MERGED_AFTER, "{kept:?}");
        back(&undo, &cells);
        assert!(cells.iter().map(value).eq(0..100));
    }

    #[test]
    fn bits_of_others_stay() {
        let undo = Undo::default();
        let cells = [PmU64::new(0b1001)];
        for (bits, set) in [(0b0110, true), (0b0001, false)] {
            let old = value(&cells[0]);
            let new = if set { old | bits } else { old & !bits };
            cells[0].atomic().store(new, Relaxed);
            undo.note(&cells[0], old, new, bits);
        }
        cells[0].atomic().fetch_or(0b1_0000, Relaxed); // another thread
        back(&undo, &cells);
        assert_eq!(value(&cells[0]), 0b1_1001);
    }

    #[test]
    fn what_is_durable_or_kept_is_not_taken_back() {
        let undo = Undo::default();
        let cells = [1, 2].map(PmU64::new);
        store(&undo, &cells[0], 10);
        store(&undo, &cells[1], 20);
        let start = core::ptr::from_ref(&cells[0]).addr();
        undo.forget(&(start..start + 8));
        back(&undo, &cells);
        assert_eq!(cells.each_ref().map(value), [10, 2]);
        store(&undo, &cells[0], 11);
        undo.keep();
        back(&undo, &cells);
        assert_eq!(value(&cells[0]), 11);
    }
}
