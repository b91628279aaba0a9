//! Target words: a user's value, or a pointer to the descriptor that is changing the word.
//!
//! ```text
//!  63  59 | 58            29 | 28        15 | 14   10 | 9        0
//!  11111  |  sequence (30)   | descriptor   | entry   | installer
//! ```
//!
//! Every other word is a value: users have all words up to [`MAX_VALUE`], which are 31 of 32 random words. A
//! pointer names the descriptor, its incarnation, and the entry that this word belongs to; a *tentative*
//! pointer also names the partition that put it there, a *full* one none. Within one incarnation a partition
//! puts its tentative pointer into a word at most once, so no pointer is ever seen, removed and seen again.
//! The promotion in `install` relies on that.

use core::fmt;

const TAG_BITS: u32 = 5;
const TAG_SHIFT: u32 = u64::BITS - TAG_BITS;
const TAG: u64 = u64::MAX << TAG_SHIFT;
/// The largest value a target word can hold; a larger one has all of its five highest bits set.
pub const MAX_VALUE: u64 = TAG - 1;

const INSTALLER_BITS: u32 = 10;
const ENTRY_BITS: u32 = 5;
const SLOT_BITS: u32 = 14;
const SEQ_BITS: u32 = TAG_SHIFT - SLOT_BITS - ENTRY_BITS - INSTALLER_BITS;

/// The largest number of partitions: one installer's number means none.
pub(crate) const MAX_PARTITIONS: u32 = NO_INSTALLER;
/// The largest number of words of a descriptor.
pub(crate) const MAX_WORDS: u32 = 1 << ENTRY_BITS;
/// The largest number of descriptors.
pub(crate) const MAX_SLOTS: u32 = 1 << SLOT_BITS;
/// The bits of an incarnation number.
pub(crate) const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;

/// The installer's number in a full pointer: none.
const NO_INSTALLER: u32 = (1 << INSTALLER_BITS) - 1;

/// What a target word holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Value(u64),
    Pointer(Pointer),
}

/// A pointer to one entry of one incarnation of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pointer(u64);

impl Pointer {
    const fn new(slot: u32, seq: u64, entry: usize, installer: u32) -> Self {
        Self(
            TAG | (seq & SEQ_MASK) << (TAG_SHIFT - SEQ_BITS)
                | (slot as u64) << (ENTRY_BITS + INSTALLER_BITS)
                | (entry as u64) << INSTALLER_BITS
                | installer as u64,
        )
    }

    /// Makes a full pointer: the word belongs to the descriptor until its outcome is known.
    pub(crate) const fn full(slot: u32, seq: u64, entry: usize) -> Self {
        Self::new(slot, seq, entry, NO_INSTALLER)
    }

    /// Makes a tentative pointer: `installer` found the expected value and has yet to check that the outcome
    /// is open.
    pub(crate) const fn tentative(slot: u32, seq: u64, entry: usize, installer: u32) -> Self {
        Self::new(slot, seq, entry, installer)
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    pub(crate) const fn is_full(self) -> bool {
        self.0 & NO_INSTALLER as u64 == NO_INSTALLER as u64
    }

    pub(crate) const fn seq(self) -> u64 {
        (self.0 >> (TAG_SHIFT - SEQ_BITS)) & SEQ_MASK
    }

    pub(crate) const fn slot(self) -> u32 {
        ((self.0 >> (ENTRY_BITS + INSTALLER_BITS)) & (MAX_SLOTS as u64 - 1)) as u32
    }

    pub(crate) const fn entry(self) -> usize {
        ((self.0 >> INSTALLER_BITS) & (MAX_WORDS as u64 - 1)) as usize
    }

    /// Returns `true` if this names entry `entry` of that incarnation, tentatively or fully.
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
        if word <= MAX_VALUE { Self::Value(word) } else { Self::Pointer(Pointer(word)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_keep_their_parts_and_differ_from_every_value() {
        for (slot, seq, entry, installer) in
            [(0, 0, 0, 0), (16_383, SEQ_MASK, 31, 1022), (5, 1 << 29, 7, 3), (1, 2, 3, 4)]
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
        assert_eq!(MAX_VALUE, u64::MAX - (1 << 59));
    }
}
