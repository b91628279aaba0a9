//! Entries of a descriptor: one target word each, or one block of memory.

use crate::status::low_of;

/// Says which outcome frees the blocks that a word's old and new values point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Neither value is freed: they are no pointers, or the caller manages their blocks.
    None,
    /// The block allocated for the new value is freed if the operation fails.
    FreeNewOnFailure,
    /// What the old value points to is freed if the operation succeeds.
    FreeOldOnSuccess,
    /// Both: the value that is not in the word afterwards is freed (the paper's FREE-ONE).
    FreeOne,
}

impl Policy {
    pub(crate) const fn frees_new(self) -> bool {
        matches!(self, Self::FreeNewOnFailure | Self::FreeOne)
    }

    pub(crate) const fn frees_old(self) -> bool {
        matches!(self, Self::FreeOldOnSuccess | Self::FreeOne)
    }

    const fn bits(self) -> u64 {
        self.frees_new() as u64 | (self.frees_old() as u64) << 1
    }

    const fn from_bits(bits: u64) -> Self {
        match bits & 3 {
            0 => Self::None,
            1 => Self::FreeNewOnFailure,
            2 => Self::FreeOldOnSuccess,
            _ => Self::FreeOne,
        }
    }
}

/// One entry, as a private copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The offset of the target word; 0 for an entry that only owns memory.
    pub(crate) target: u64,
    /// The expected value, or (without a target) a block to free on success.
    pub(crate) old: u64,
    /// The new value, or (without a target) a block to free on failure.
    pub(crate) new: u64,
    pub(crate) policy: Policy,
    /// `true` if another word of this operation covers the word: no operation changes it without the claim of
    /// that other word.
    pub(crate) covered: bool,
}

const OFFSET_BITS: u32 = 48;
const POLICY_SHIFT: u32 = OFFSET_BITS;
const LOW_SHIFT: u32 = POLICY_SHIFT + 2;
const COVERED: u64 = 1 << (LOW_SHIFT + 8);

impl Entry {
    /// An entry without a word or block.
    pub(crate) const EMPTY: Self =
        Self { target: 0, old: 0, new: 0, policy: Policy::None, covered: false };

    /// Returns the sort key of the order of installation: ascending targets, then the entries without one.
    pub(crate) const fn order(&self) -> u64 {
        self.target.wrapping_sub(1)
    }

    /// Returns the entry's first word on the medium:
    /// `| 63..59: 0 | 58 covered | 57..50 incarnation | 49..48 policy | 47..0 offset |`.
    pub(crate) const fn pack_target(&self, seq: u64) -> u64 {
        let covered = if self.covered { COVERED } else { 0 };
        self.target | self.policy.bits() << POLICY_SHIFT | low_of(seq) << LOW_SHIFT | covered
    }

    /// Unpacks the medium's three words; returns the incarnation's low bits separately.
    pub(crate) const fn unpack(words: [u64; 3]) -> (Self, u64) {
        let [target, old, new] = words;
        let entry = Self {
            target: target & ((1 << OFFSET_BITS) - 1),
            old,
            new,
            policy: Policy::from_bits(target >> POLICY_SHIFT),
            covered: target & COVERED != 0,
        };
        (entry, target >> LOW_SHIFT & 0xff)
    }

    /// Returns the block to free if the operation succeeded.
    pub(crate) fn freed_by_success(&self) -> Option<u64> {
        (self.policy.frees_old() && self.old != 0 && (self.old != self.new || self.target == 0))
            .then_some(self.old)
    }

    /// Returns the block to free if the operation failed.
    pub(crate) fn freed_by_failure(&self) -> Option<u64> {
        (self.policy.frees_new() && self.new != 0).then_some(self.new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_packing() {
        for policy in
            [Policy::None, Policy::FreeNewOnFailure, Policy::FreeOldOnSuccess, Policy::FreeOne]
        {
            for covered in [false, true] {
                let entry = Entry { target: (1 << 48) - 8, old: 1, new: 2, policy, covered };
                let packed = entry.pack_target(0x1fe);
                assert_eq!(Entry::unpack([packed, 1, 2]), (entry, 0xfe));
            }
        }
    }

    #[test]
    fn memory_entries_come_last() {
        let at = |target| Entry { target, ..Entry::EMPTY };
        assert!(at(8).order() < at(16).order());
        assert!(at(1 << 40).order() < at(0).order());
    }
}
