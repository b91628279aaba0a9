//! The last insert into a leaf, noted where its record and the bit that names it become durable under one
//! fence.

/// The insert that a crash may have interrupted: the last one into this leaf.
///
/// Its record and its bit became durable under one fence, in any order. The record is complete if and only if
/// the bit noted here, of the slot's first key word, has the value noted here; it is a bit in which the key
/// differs from the slot's former word. If it is not, the insert never returned, and the slot is free
/// whatever the state says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pending(u64);

impl Pending {
    const ARMED: u64 = 1 << 15;
    /// No insert is noted.
    pub const NONE: Self = Self(0);

    /// Notes that `new` goes to `slot`, which held `old`; `None` if they are equal.
    #[inline(always)]
    #[must_use]
    pub const fn new(slot: usize, old: u64, new: u64) -> Option<Self> {
        if old == new {
            return None;
        }
        let bit = (old ^ new).trailing_zeros() as u64;
        Some(Self(Self::ARMED | (new >> bit & 1) << 14 | bit << 8 | slot as u64))
    }
    /// Unpacks the upper 16 bits of a word.
    #[inline(always)]
    #[must_use]
    pub const fn of_word(word: u64) -> Self {
        Self(word >> 48)
    }
    /// Packs into the upper 16 bits of a word.
    #[inline(always)]
    #[must_use]
    pub const fn into_word(self, word: u64) -> u64 {
        word & (u64::MAX >> 16) | self.0 << 48
    }
    /// Returns the slot, if an insert is noted.
    #[inline(always)]
    #[must_use]
    pub const fn slot(self) -> Option<usize> {
        if self.0 & Self::ARMED == 0 { None } else { Some((self.0 & 63) as usize) }
    }
    /// Returns `true` if the record is complete, by the slot's first key word.
    #[inline(always)]
    #[must_use]
    pub const fn is_there(self, key: u64) -> bool {
        key >> (self.0 >> 8 & 63) & 1 == self.0 >> 14 & 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_tells_the_new_key_from_the_old_one_and_no_other_pair() {
        for (old, new) in [(0, 1), (1, 0), (u64::MAX, 0), (8, 12), (1 << 63, 0), (5, 4)] {
            let pending = Pending::new(53, old, new).expect("they differ");
            assert_eq!(pending.slot(), Some(53));
            assert!(pending.is_there(new) && !pending.is_there(old), "{old} {new}");
            assert_eq!(Pending::of_word(pending.into_word(u64::MAX)), pending);
            assert_eq!(pending.into_word(0x1122_3344_5566) & (u64::MAX >> 16), 0x1122_3344_5566);
        }
        assert_eq!(Pending::new(1, 7, 7), None);
        assert_eq!(Pending::NONE.slot(), None);
    }
}
