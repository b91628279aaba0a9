//! The hash directory: one radix tree per prefix of the keys.
//!
//! The first `PREFIX` bytes of a key choose its tree; the tree orders the rest. The hash is perfect
//! and keeps the order: a prefix is numbered by its rank among all prefixes, those shorter than
//! `PREFIX` bytes included, so that no two share an entry and the next entry has the next prefixes.
//! With `S(0) = 1` and `S(n) = 1 + 256 S(n - 1)` the rank of the empty prefix is 0, and that of
//! `b` followed by `rest` is `1 + b S(n - 1) + rank(rest)`.
//!
//! Entries that were ever used are marked in a bitmap, and its words in another, so that a scan finds
//! the next tree.

use pmindex_art::Root as TreeRoot;
use pmindex_core::{Arena, Mapped, Medium, PmError, PmU64, Rmw};

/// The greatest possible `PREFIX`.
const MAX_PREFIX: usize = 3;

/// The trees of an index.
#[derive(Debug)]
pub(crate) struct Directory<const PREFIX: usize> {
    dram: Mapped,
    roots: Arena<TreeRoot>,
    /// One bit per entry, and one per word of these.
    used: Arena<PmU64>,
    used_words: Arena<PmU64>,
}

/// `S(n)`: how many prefixes of at most `n` bytes there are.
const fn prefixes(n: usize) -> usize {
    if n == 0 { 1 } else { 1 + 256 * prefixes(n - 1) }
}

/// By how much each byte of a prefix moves on.
const fn steps<const PREFIX: usize>() -> [usize; PREFIX] {
    let mut steps = [0; PREFIX];
    let mut at = 0;
    while at < PREFIX {
        steps[at] = prefixes(PREFIX - 1 - at);
        at += 1;
    }
    steps
}

/// The place of a key: a directory entry, and the part of the key that orders it in the tree there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyLocation<'k> {
    pub(crate) entry: usize,
    pub(crate) rest: &'k [u8],
}

impl<const PREFIX: usize> Directory<PREFIX> {
    /// The number of entries.
    pub(crate) const ENTRIES: usize = prefixes(PREFIX);

    /// Returns an empty directory.
    pub(crate) fn new() -> Result<Self, PmError> {
        const { assert!(PREFIX <= MAX_PREFIX, "a prefix has at most 3 bytes") };
        let words = Self::ENTRIES.div_ceil(64);
        Ok(Self {
            dram: Mapped::dram(),
            roots: Arena::new(Self::ENTRIES as u32)?,
            used: Arena::new(words as u32)?,
            used_words: Arena::new(words.div_ceil(64) as u32)?,
        })
    }

    /// Returns the place of a key.
    #[inline(always)]
    pub(crate) fn home(key: &[u8]) -> KeyLocation<'_> {
        let steps = const { steps::<PREFIX>() };
        let mut entry = 0;
        if let Some((first, rest)) = key.split_first_chunk::<PREFIX>() {
            for (&byte, step) in first.iter().zip(steps) {
                entry += 1 + usize::from(byte) * step;
            }
            return KeyLocation { entry, rest };
        }
        for (&byte, step) in key.iter().zip(steps) {
            entry += 1 + usize::from(byte) * step;
        }
        KeyLocation { entry, rest: &[] }
    }

    /// Returns the part of a key that its tree orders.
    #[inline(always)]
    pub(crate) fn rest(key: &[u8]) -> &[u8] {
        &key[PREFIX.min(key.len())..]
    }

    /// Returns the root of an entry's tree.
    #[inline(always)]
    pub(crate) fn root(&self, entry: usize) -> &TreeRoot {
        self.roots.get(entry as u32)
    }

    /// Marks an entry as used, before its tree gets its first leaf.
    #[inline(always)]
    pub(crate) fn mark(&self, entry: usize) {
        let cell = self.used.get((entry / 64) as u32);
        if self.dram.load(cell) >> (entry % 64) & 1 == 0 {
            let word = entry / 64;
            self.dram.rmw_word(self.used_words.get((word / 64) as u32), Rmw::Or(1 << (word % 64)));
            self.dram.rmw_word(cell, Rmw::Or(1 << (entry % 64)));
        }
    }

    /// Returns the first used entry from `from` on, or the last one up to it.
    pub(crate) fn next(&self, from: usize, up: bool) -> Option<usize> {
        let word = |at: usize| self.dram.load(self.used.get(at as u32));
        if let Some(found) = in_word(word(from / 64), from % 64, up) {
            return Some(from / 64 * 64 + found);
        }
        let at = if up { from / 64 + 1 } else { (from / 64).checked_sub(1)? };
        if at >= Self::ENTRIES.div_ceil(64) {
            return None;
        }
        let words = Self::ENTRIES.div_ceil(64).div_ceil(64);
        let mut group = at / 64;
        let mut from = at % 64;
        loop {
            let bits = self.dram.load(self.used_words.get(group as u32));
            if let Some(found) = in_word(bits, from, up) {
                let at = group * 64 + found;
                // Marked first, so its own bit may not be set yet.
                if let Some(bit) = in_word(word(at), if up { 0 } else { 63 }, up) {
                    return Some(at * 64 + bit);
                }
                from = found;
                if from == if up { 63 } else { 0 } {
                    // The group ends with it.
                } else {
                    from = if up { from + 1 } else { from - 1 };
                    continue;
                }
            }
            group = if up { group + 1 } else { group.checked_sub(1)? };
            if group >= words {
                return None;
            }
            from = if up { 0 } else { 63 };
        }
    }

    /// Returns the entry after one, or before it.
    pub(crate) fn step(entry: usize, up: bool) -> Option<usize> {
        if up { Some(entry + 1).filter(|&e| e < Self::ENTRIES) } else { entry.checked_sub(1) }
    }

    /// DRAM in use, if all of it is touched.
    pub(crate) fn bytes() -> u64 {
        (Self::ENTRIES * size_of::<TreeRoot>() + Self::ENTRIES / 8) as u64
    }
}

/// Returns the first bit set of `word` from bit `from` on, or the last one up to it.
fn in_word(word: u64, from: usize, up: bool) -> Option<usize> {
    let bits = if up { word & (u64::MAX << from) } else { word & (u64::MAX >> (63 - from)) };
    match (bits, up) {
        (0, _) => None,
        (bits, true) => Some(bits.trailing_zeros() as usize),
        (bits, false) => Some(63 - bits.leading_zeros() as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn homes_keep_the_order_of_keys(
            a in proptest::collection::vec(prop_oneof![Just(0u8), Just(255), any::<u8>()], 0..5),
            b in proptest::collection::vec(prop_oneof![Just(0u8), Just(255), any::<u8>()], 0..5),
        ) {
            fn order<const P: usize>(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
                let (a, b) = (Directory::<P>::home(a), Directory::<P>::home(b));
                assert!(a.entry < Directory::<P>::ENTRIES && b.entry < Directory::<P>::ENTRIES);
                (a.entry, a.rest).cmp(&(b.entry, b.rest))
            }
            prop_assert_eq!(order::<0>(&a, &b), a.cmp(&b));
            prop_assert_eq!(order::<1>(&a, &b), a.cmp(&b));
            prop_assert_eq!(order::<2>(&a, &b), a.cmp(&b));
            prop_assert_eq!(order::<3>(&a, &b), a.cmp(&b));
        }

        #[test]
        fn next_finds_the_nearest_entry(
            entries in proptest::collection::btree_set(0..Directory::<2>::ENTRIES, 0..12),
            probes in proptest::collection::vec(0..Directory::<2>::ENTRIES, 20),
        ) {
            let directory = Directory::<2>::new().expect("memory");
            for &entry in &entries {
                directory.mark(entry);
            }
            for from in probes.into_iter().chain(entries.iter().copied()) {
                prop_assert_eq!(directory.next(from, true), entries.range(from..).next().copied());
                let below = entries.range(..=from).next_back().copied();
                prop_assert_eq!(directory.next(from, false), below);
            }
        }
    }
}
