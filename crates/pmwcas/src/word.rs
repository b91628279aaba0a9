//! Target words: a user's value, or a pointer to the descriptor that is changing the word.
//!
//! ```text
//!  63 62 | 61            29 | 28        15 | 14   10 | 9        0
//!   tag  |  sequence (33)   | descriptor   | entry   | installer
//! ```
//!
//! Tag `00` is a value, so users have the low [`VALUE_BITS`] bits. A pointer names the descriptor,
//! its incarnation, and which of its entries this word is; a *tentative* pointer also names the
//! partition that put it there. Within one incarnation a partition succeeds at most once in putting
//! its tentative pointer into one word, so no pointer is ever seen, taken away and seen again: what
//! the promotion in `install` relies on.

use core::fmt;

/// How many bits of a target word are the user's.
pub const VALUE_BITS: u32 = 62;
/// The largest value a target word can hold.
pub const MAX_VALUE: u64 = (1 << VALUE_BITS) - 1;

const INSTALLER_BITS: u32 = 10;
const ENTRY_BITS: u32 = 5;
const SLOT_BITS: u32 = 14;
const SEQ_BITS: u32 = VALUE_BITS - SLOT_BITS - ENTRY_BITS - INSTALLER_BITS;

/// The most partitions.
pub(crate) const MAX_PARTITIONS: u32 = 1 << INSTALLER_BITS;
/// The most words of a descriptor.
pub(crate) const MAX_WORDS: u32 = 1 << ENTRY_BITS;
/// The most descriptors.
pub(crate) const MAX_SLOTS: u32 = 1 << SLOT_BITS;
/// The bits of an incarnation number.
pub(crate) const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;

const FULL: u64 = 0b10;
const TENTATIVE: u64 = 0b01;

/// What a target word holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Value(u64),
    Pointer(Pointer),
    /// Both tag bits: never written.
    Garbage,
}

/// A pointer to one entry of one incarnation of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pointer(u64);

impl Pointer {
    const fn new(tag: u64, slot: u32, seq: u64, entry: usize, installer: u32) -> Self {
        Self(
            tag << VALUE_BITS
                | (seq & SEQ_MASK) << (VALUE_BITS - SEQ_BITS)
                | (slot as u64) << (ENTRY_BITS + INSTALLER_BITS)
                | (entry as u64) << INSTALLER_BITS
                | installer as u64,
        )
    }

    /// The word belongs to the descriptor until its outcome is known.
    pub(crate) const fn full(slot: u32, seq: u64, entry: usize) -> Self {
        Self::new(FULL, slot, seq, entry, 0)
    }

    /// `installer` found the expected value here and has yet to see that the outcome is open.
    pub(crate) const fn tentative(slot: u32, seq: u64, entry: usize, installer: u32) -> Self {
        Self::new(TENTATIVE, slot, seq, entry, installer)
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    pub(crate) const fn is_full(self) -> bool {
        self.0 >> VALUE_BITS == FULL
    }

    pub(crate) const fn seq(self) -> u64 {
        (self.0 >> (VALUE_BITS - SEQ_BITS)) & SEQ_MASK
    }

    pub(crate) const fn slot(self) -> u32 {
        ((self.0 >> (ENTRY_BITS + INSTALLER_BITS)) & (MAX_SLOTS as u64 - 1)) as u32
    }

    pub(crate) const fn entry(self) -> usize {
        ((self.0 >> INSTALLER_BITS) & (MAX_WORDS as u64 - 1)) as usize
    }

    /// Whether this names entry `entry` of that incarnation, tentatively or fully.
    pub(crate) const fn names(self, slot: u32, seq: u64, entry: usize) -> bool {
        self.slot() == slot && self.seq() == seq & SEQ_MASK && self.entry() == entry
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_full() { "full" } else { "tentative" };
        write!(f, "{kind}({}.{} entry {})", self.slot(), self.seq(), self.entry())
    }
}

impl Content {
    #[inline(always)]
    pub(crate) const fn of(word: u64) -> Self {
        match word >> VALUE_BITS {
            0 => Self::Value(word),
            FULL | TENTATIVE => Self::Pointer(Pointer(word)),
            _ => Self::Garbage,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_keep_their_parts_and_differ_from_every_value() {
        for (slot, seq, entry, installer) in
            [(0, 0, 0, 0), (16_383, SEQ_MASK, 31, 1023), (5, 1 << 32, 7, 3), (1, 2, 3, 4)]
        {
            let full = Pointer::full(slot, seq, entry);
            let tentative = Pointer::tentative(slot, seq, entry, installer);
            for p in [full, tentative] {
                assert!(p.word() > MAX_VALUE);
                assert_eq!(Content::of(p.word()), Content::Pointer(p));
                assert_eq!((p.slot(), p.seq(), p.entry()), (slot, seq, entry));
                assert!(p.names(slot, seq, entry));
                assert!(!p.names(slot, seq + 1, entry));
            }
            assert!(full.is_full() && !tentative.is_full());
        }
        assert_eq!(Content::of(MAX_VALUE), Content::Value(MAX_VALUE));
        assert_eq!(Content::of(u64::MAX), Content::Garbage);
    }
}
