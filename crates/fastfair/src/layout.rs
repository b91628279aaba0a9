//! The layout of a FAST&FAIR tree in a pool.
//!
//! # Leaf
//!
//! `LEAF` entries of two words, at most 30; with 30 a leaf is 8 lines, 512 bytes:
//!
//! ```text
//! word  0       1      2     3          4                 6
//!       | state | next | low | reserved | entry 0: id, other | entry 1 | ..
//!       |<------------------ line 0: the header and entries 0 and 1 ------------>|
//! ```
//!
//! * `state` is `era << 1 | zero` ([`LeafState`]). The era is that of the last process that knew
//!   the leaf to be whole; any other era means that what a crash left may still be in it.
//! * `next` is the following leaf in key order, or null.
//! * `low`: every key of this leaf and of those after it is greater. The key itself, or the offset
//!   of a block with it, which the leaf owns; the first leaf's is 0 and has no meaning. Written
//!   once, when the leaf is made.
//! * Entries are sorted, with gaps. The **id** of a record is a word that no other record of the
//!   leaf has: the key where it is one word, else the offset of the record's block. An entry is
//!   *dead* if its id is 0, or that of an entry to its left, or if its key is greater than the low
//!   of the next leaf. (The key 0 stands in entry 0 only, and the bit `zero` says whether it does.)
//!
//! ```text
//! key      value    id       other
//! 1 word   1 word   key      value
//! 1 word   else     key      block: value
//! else     any      block    first word of the key       block: key and value
//! ```
//!
//! # Inner node
//!
//! `F` separators and one child more, written once; only the child words change, and in a pool without room for a copy
//! the separators of a leaf that is removed:
//!
//! ```text
//! word 0 ..       F       F + 1      F + 2 ..          2 F + 3 ..
//! | prefixes F    | count | reserved | children F + 1  | blocks F (keys longer than a word) |
//! ```
//!
//! A child word is `offset | level`, the level being 0 for leaves. Child `i` holds the keys greater
//! than separator `i - 1` and not greater than separator `i`; unused prefixes are `u64::MAX`. The
//! separator on a child's left is the low of the leftmost leaf below that child, and its block is
//! that leaf's block: the leaf outlives every separator that names it. No key takes a child between two equal separators.

use std::marker::PhantomData;

use pmindex_core::{LINE, PPtr, PmPtr, PmU64, Word, pm_struct};
use pmindex_index::{Key, Value};
use pmindex_record::{Pair, hash_bytes};

/// The type of an index in the pool's directory.
pub(crate) const KIND: [u8; 8] = *b"fastfair";
/// Version of the layout on this page.
const FORMAT: u64 = 1;

/// Words of a line.
pub(crate) const LINE_WORDS: usize = LINE / 8;
/// Words before the entries.
pub(crate) const HEADER_WORDS: usize = 4;
/// The largest number of entries in a leaf: the ids that are compared at once.
pub(crate) const MAX_LEAF: usize = 30;
/// Room for any leaf.
pub(crate) const MAX_LEAF_WORDS: usize = HEADER_WORDS + 2 * MAX_LEAF;
/// More levels than there can be.
pub(crate) const MAX_LEVEL: u64 = 40;

pm_struct! {
    /// The root block.
    ///
    /// ```text
    /// 0       8     16    24       32          40
    /// | head  | top | era | closed | bulk load | reserved |
    /// ```
    #[align(64)]
    pub struct Root: size 64 {
        /// The first leaf; null only until it is made, never freed.
        pub head @ 0: PmPtr<PmU64>,
        /// The child word of the topmost node; 0 while there are no inner nodes.
        pub top @ 8: PmU64,
        /// Counts the openings after a crash; leaves of other eras are looked at again.
        pub era @ 16: PmU64,
        /// After a clean shutdown the number of records and 1; else 0.
        pub closed @ 24: PmU64,
        /// Not 0 while a bulk load is in progress: no record of any leaf is in the index.
        pub bulk_load @ 32: PmU64,
        /// Zero.
        pub reserved: [PmU64; 3],
    }
}

/// A leaf's first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct LeafState(u64);

impl Word for LeafState {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.0
    }
}

impl LeafState {
    /// The bit of a leaf that has the key 0 in entry 0.
    pub(crate) const ZERO: u64 = 1;

    /// Whole in this era, without the key 0.
    pub(crate) const fn of_era(era: u64) -> Self {
        Self(era << 1)
    }
    #[inline(always)]
    pub(crate) const fn is_of(self, era: u64) -> bool {
        self.0 >> 1 == era
    }
    /// Returns `true` if no process has written it up to `era`: the root's era, or this word, is damaged.
    pub(crate) const fn is_after(self, era: u64) -> bool {
        self.0 >> 1 > era
    }
    #[inline(always)]
    pub(crate) const fn has_zero(self) -> bool {
        self.0 & Self::ZERO != 0
    }
    pub(crate) const fn with_zero(self, zero: bool) -> Self {
        Self(self.0 & !Self::ZERO | zero as u64)
    }
    /// Returns the same leaf, whole in `era`.
    pub(crate) const fn in_era(self, era: u64) -> Self {
        Self(era << 1 | self.0 & Self::ZERO)
    }
}

/// A child word: an offset, which is a multiple of 64, and a level below 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Child(pub(crate) u64);

impl Child {
    pub(crate) const fn new(offset: u64, level: u64) -> Self {
        Self(offset | level)
    }
    #[inline(always)]
    pub(crate) const fn offset(self) -> u64 {
        self.0 & !63
    }
    #[inline(always)]
    pub(crate) const fn level(self) -> u64 {
        self.0 & 63
    }
}

/// The layout of records of these types in entries.
pub(crate) struct Form<K, V>(PhantomData<fn() -> (K, V)>);

impl<K: Key, V: Value> Form<K, V> {
    /// `true` if the key is the id.
    pub(crate) const WORD_KEY: bool = Pair::<K, V>::WORD_KEY;
    /// `true` if records have a block out of line.
    pub(crate) const HAS_BLOCK: bool = Pair::<K, V>::HAS_BLOCK;
    /// The word of an entry that points to the block.
    pub(crate) const BLOCK_WORD: usize = Self::WORD_KEY as usize;
}

/// Words of a leaf, in whole lines.
pub(crate) const fn leaf_words(leaf: usize) -> usize {
    (HEADER_WORDS + 2 * leaf).next_multiple_of(LINE_WORDS)
}

/// The places in the nodes of a tree.
pub(crate) struct Geometry<K, V, const LEAF: usize, const F: usize>(PhantomData<fn() -> (K, V)>);

impl<K: Key, V: Value, const LEAF: usize, const F: usize> Geometry<K, V, LEAF, F> {
    /// Bytes of a leaf.
    pub(crate) const LEAF_BYTES: u64 = 8 * leaf_words(LEAF) as u64;
    /// The word of an inner node's first child.
    pub(crate) const CHILDREN: usize = F + 2;
    /// The word of an inner node's first block.
    pub(crate) const BLOCKS: usize = 2 * F + 3;
    /// Words of an inner node, in whole lines.
    pub(crate) const INNER_WORDS: usize =
        (Self::BLOCKS + if Form::<K, V>::WORD_KEY { 0 } else { F }).next_multiple_of(LINE_WORDS);
    /// Bytes of an inner node.
    pub(crate) const INNER_BYTES: u64 = 8 * Self::INNER_WORDS as u64;

    const VALID: () = {
        assert!(LEAF >= 2 && LEAF <= MAX_LEAF, "a leaf has 2 to 30 entries");
        assert!(F >= 3 && F <= 1024, "an inner node has 3 to 1024 separators");
    };

    /// Returns the hash of this layout for the pool's directory.
    pub(crate) fn id() -> u64 {
        let () = Self::VALID;
        Self::id_of(&K::type_name(), &V::type_name())
    }

    /// Returns the hash of the layout for types with these names.
    pub(crate) fn id_of(key: &str, value: &str) -> u64 {
        hash_bytes(format!("{FORMAT} {key} {value} {LEAF} {F}").as_bytes())
    }
}

/// A pointer to a node or a record block: words.
pub(crate) type WordsPtr = PPtr<PmU64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_8_byte_records_are_8_lines() {
        assert_eq!(Geometry::<u64, u64, 30, 30>::LEAF_BYTES, 512);
        assert_eq!(Geometry::<u64, u64, 30, 30>::INNER_BYTES, 512);
        assert_eq!(Geometry::<Vec<u8>, u64, 30, 30>::INNER_BYTES, 768);
    }

    #[test]
    fn states_keep_era_and_zero_apart() {
        let state = LeafState::of_era(7).with_zero(true);
        assert!(state.is_of(7) && state.has_zero());
        assert!(state.in_era(9).has_zero() && !state.in_era(9).is_of(7));
        assert_eq!(state.with_zero(false), LeafState::of_era(7));
    }
}
