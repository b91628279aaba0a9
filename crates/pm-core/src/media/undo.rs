//! An undo log for each thread: the words it stored and has not made durable.
//!
//! When a write-back fails, the words that the fence was to make durable must not stay visible: the operation
//! is refused. Each thread takes back its own words, in the fence that fails, while it still holds the locks
//! under which it stored them. A word that another thread has changed since keeps that thread's value; in a
//! word whose bits belong to several threads only the thread's own bits are taken back.

use core::cell::RefCell;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::cell::PmU64;
use crate::line::LINE;

thread_local! {
    /// For each medium, the words this thread stored since its last fence, by address.
    static STORED: RefCell<Vec<(Weak<()>, Words)>> = const { RefCell::new(Vec::new()) };
}

type Words = HashMap<usize, Stored>;

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

/// Identifies a medium of this process.
#[derive(Debug, Default)]
pub(crate) struct Undo(Arc<()>);

impl Undo {
    fn with<R>(&self, use_words: impl FnOnce(&mut Words) -> R) -> Option<R> {
        STORED
            .try_with(|stored| {
                let mut stored = stored.borrow_mut();
                let mine = |entry: &(Weak<()>, Words)| entry.0.as_ptr() == Arc::as_ptr(&self.0);
                if let Some(at) = stored.iter().position(mine) {
                    return use_words(&mut stored[at].1);
                }
                stored.retain(|entry| entry.0.strong_count() > 0);
                stored.push((Arc::downgrade(&self.0), Words::new()));
                let last = stored.len() - 1;
                use_words(&mut stored[last].1)
            })
            .ok()
    }

    /// Notes that this thread replaced `old` by `new` in the bits of `mask`.
    fn note(&self, cell: &PmU64, old: u64, new: u64, mask: u64) {
        self.with(|words| {
            let address = core::ptr::from_ref(cell).addr();
            let stored = words.entry(address).or_insert(Stored { old, new: old, mask: 0 });
            if (old ^ stored.new) & stored.mask != 0 {
                // Another thread has changed the word meanwhile: its value stays.
                *stored = Stored { old, new: old, mask: 0 };
            }
            // Bits that this thread had not touched before keep their present value.
            stored.old = stored.old & stored.mask | old & !stored.mask;
            stored.mask |= mask;
            stored.new = new;
        });
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
        let is_durable = |address: &usize| lines.binary_search(&(address & !(LINE - 1))).is_ok();
        self.with(|words| words.retain(|address, _| !is_durable(address)));
    }

    /// Forgets the words in these pages: they are durable.
    pub(crate) fn forget(&self, pages: &Range<usize>) {
        self.with(|words| words.retain(|address, _| !pages.contains(address)));
    }

    /// Keeps the words that this thread stored so far, even if its next fence fails.
    pub(crate) fn keep(&self) {
        self.with(HashMap::clear);
    }

    /// Takes back what this thread stored; `cell_at` resolves addresses.
    pub(crate) fn take_back<'c>(&self, cell_at: impl Fn(usize) -> Option<&'c PmU64>) {
        let words = self.with(core::mem::take).unwrap_or_default();
        for (address, Stored { old, new, mask }) in words {
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
