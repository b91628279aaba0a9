//! Owners: the words that decide whether a block is live, and blocks that have no owner yet.

use crate::cell::{PmCell, PmU64, Word};
use crate::ptr::PPtr;

/// The condition under which a block is live: `word & mask == expect`.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'p> {
    /// The word, in the same pool.
    pub word: &'p PmU64,
    /// The bits of the word that count.
    pub mask: u64,
    /// Their value while the block is live.
    pub expect: u64,
}

impl<'p> Owner<'p> {
    /// Makes a block live while `cell` holds `ptr`.
    pub fn pointer<T, U>(cell: &'p PmCell<PPtr<T>>, ptr: PPtr<U>) -> Self {
        Self { word: cell.as_word(), mask: u64::MAX, expect: ptr.offset() }
    }

    /// Makes a block live while bit `bit` of `cell` is set.
    pub fn bit<W: Word>(cell: &'p PmCell<W>, bit: u32) -> Self {
        Self { word: cell.as_word(), mask: 1 << bit, expect: 1 << bit }
    }
}

/// A block that is reserved by an [`Op`](crate::Op): no other operation has it, and a crash frees it.
#[derive(Debug)]
#[must_use = "a reservation that is not allocated goes back when the operation ends"]
pub struct Reserved<T> {
    ptr: PPtr<T>,
    /// Its place among the operation's blocks.
    pub(super) entry: u32,
}

impl<T> Reserved<T> {
    pub(super) fn new(ptr: PPtr<T>, entry: u32) -> Self {
        Self { ptr, entry }
    }

    /// Returns the block's place. Its contents are unspecified.
    #[must_use]
    pub fn ptr(&self) -> PPtr<T> {
        self.ptr
    }

    /// Returns the same block as another type.
    pub fn cast<U>(self) -> Reserved<U> {
        Reserved { ptr: self.ptr.cast(), entry: self.entry }
    }
}
