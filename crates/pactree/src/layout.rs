//! What a PACTree keeps in a pool.
//!
//! # Node
//!
//! `S` is the number of words of a slot; `LEAF` slots, at most 64. With 8-byte keys and values and 64 slots a
//! node is 18 lines, 1152 bytes:
//!
//! ```text
//! word  0        1      2      3 .. 7    7          8 .. 15        16 ..
//!       | bitmap | next | prev | low     | reserved | fingerprints | LEAF slots, S words each |
//!       |<------- line 0 ------------------------->|<--- line 1 -->|
//! ```
//!
//! * `bitmap` commits: bit `i` says that slot `i` holds a record.
//! * `next` and `prev` are the neighbours in key order, or null. `next` shares the bitmap's line: stores to
//!   one line become durable in program order, and a split and a merge rely on it. Its bit 0 says that the
//!   node has left the list and waits for the trie to forget it.
//! * `low` is the least key that may be here, written once: the words of an inline key; for byte strings the
//!   offset of a block with the key. The range ends where the next node's begins. The first node's has no
//!   meaning.
//! * `fingerprints`: a byte of each key's hash.
//! * A record is in any slot: a lookup finds it by its fingerprint. It is put near the one that its key prefers
//!   where that is free, because a lookup fetches that one's line together with the header.
//! * A slot of a byte-string key begins with the key's first 8 bytes as a number ([`PrefixedSlot`]).
//!
//! # Trie
//!
//! A WOART whose topmost word is in the root: to the low key of each node but the first, the node's offset.
//!
//! # Log
//!
//! Lane 0 of a log (`pm-log`) has an entry for each change of the list of nodes: tag, left node, node.
//!
//! ```text
//! tag 1  a split: the node comes behind the left one
//! tag 2  a merge: the left node has the records of the node behind it, which leaves the list
//! tag 3  the entry before is void
//! ```
//!
//! The log's anchor is the position up to which the trie has followed.

use std::marker::PhantomData;

use pmindex_core::{LINE, PPtr, PmPtr, PmU64, Word, pm_struct};
use pmindex_index::{Key, Shape, Value};
use pmindex_log::LogRoot;
use pmindex_record::{PrefixedSlot, Probe, hash_bytes};

/// The type of an index in the pool's directory.
pub(crate) const KIND: [u8; 8] = *b"pactree\0";
/// Version of the layout on this page.
const FORMAT: u64 = 1;

/// The maximum number of slots of a node: the bits of its bitmap.
pub(crate) const MAX_LEAF: usize = 64;

pm_struct! {
    /// The root block.
    ///
    /// ```text
    /// 0      8     16     24       32          40
    /// | head | log | trie | closed | bulk load | reserved |
    /// ```
    #[align(64)]
    pub struct Root: size 64 {
        /// The first node; never null, never freed.
        pub head @ 0: PmPtr<PmU64>,
        /// The log of changes of the list.
        pub log @ 8: PmPtr<LogRoot>,
        /// The topmost word of the trie.
        pub trie @ 16: PmU64,
        /// After a clean shutdown the number of records and 1; else 0.
        pub closed @ 24: PmU64,
        /// Not 0 while a bulk load is in progress: no record of any node is in the index.
        pub bulk_load @ 32: PmU64,
        /// Zero.
        pub reserved: [PmU64; 3],
    }
}

/// The offset of the topmost word of the trie in the root.
pub(crate) const TRIE: u64 = std::mem::offset_of!(Root, trie) as u64;

/// A node's link to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next(u64);

impl Word for Next {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.0
    }
}

impl Next {
    const GONE: u64 = 1;
    /// The bits that say which node is next.
    pub(crate) const OFFSET: u64 = !(LINE as u64 - 1);

    /// Returns the node at `offset`, or none.
    pub(crate) const fn to(offset: u64) -> Self {
        Self(offset)
    }
    /// Returns the same link, of a node that has left the list.
    pub(crate) const fn gone(self) -> Self {
        Self(self.0 | Self::GONE)
    }
    #[inline(always)]
    pub(crate) const fn offset(self) -> u64 {
        self.0 & Self::OFFSET
    }
    /// Returns `true` if the node has left the list.
    #[inline(always)]
    pub(crate) const fn is_gone(self) -> bool {
        self.0 & Self::GONE != 0
    }
}

/// Where things are in a node of `LEAF` slots for keys `K` and values `V`.
pub(crate) struct Geometry<K, V, const LEAF: usize>(PhantomData<fn() -> (K, V)>);

impl<K: Key, V: Value, const LEAF: usize> Geometry<K, V, LEAF> {
    /// The word of the low key.
    pub(crate) const LOW: usize = 3;
    /// Words of the low key, or of the pointer to it.
    pub(crate) const LOW_WORDS: usize = match K::SHAPE {
        Shape::Inline(n) => n,
        Shape::Bytes => 1,
    };
    /// The word of the first fingerprints.
    pub(crate) const FINGERPRINTS: usize = LINE / 8;
    /// The word of the first slot.
    pub(crate) const SLOTS: usize = 2 * (LINE / 8);
    /// Words of a node, in whole lines.
    pub(crate) const WORDS: usize =
        (Self::SLOTS + LEAF * Slot::<K, V>::WORDS).next_multiple_of(LINE / 8);
    /// Bytes of a node.
    pub(crate) const BYTES: u64 = 8 * Self::WORDS as u64;
    /// The bits of all slots.
    pub(crate) const ALL: u64 = u64::MAX >> (MAX_LEAF - LEAF);
    /// Neighbours that together have no more records than this become one node.
    pub(crate) const MERGED: usize = LEAF * 3 / 4;

    /// Returns the slot that a record with the probe's key takes if it is free.
    #[inline(always)]
    pub(crate) fn preferred_slot(probe: &Probe<'_, K>) -> usize {
        match K::SHAPE {
            Shape::Inline(_) => probe.preferred_slot(LEAF),
            Shape::Bytes => Self::slot_of_fingerprint(probe.fingerprint()),
        }
    }

    /// Returns the preferred slot of byte-string keys: it follows from what a node has of a key, so that a split
    /// need not read the key.
    #[inline(always)]
    pub(crate) fn slot_of_fingerprint(fingerprint: u8) -> usize {
        (usize::from(fingerprint) * LEAF) >> 8
    }

    /// Returns the offset in a node of the (first) line of a slot.
    #[inline(always)]
    pub(crate) fn line_of_slot(slot: usize) -> u64 {
        let word = Self::SLOTS + slot * Slot::<K, V>::WORDS;
        (8 * word / LINE * LINE) as u64
    }

    const VALID: () = assert!(
        LEAF >= 2 && LEAF <= MAX_LEAF && Self::LOW + Self::LOW_WORDS <= LINE / 8,
        "a node has 2 to 64 slots: the bits of one word"
    );

    /// Returns the hash of this layout for the pool's directory.
    pub(crate) fn id() -> u64 {
        let () = Self::VALID;
        Self::id_of(&K::type_name(), &V::type_name())
    }

    /// Returns the hash of the layout for types with these names.
    pub(crate) fn id_of(key: &str, value: &str) -> u64 {
        hash_bytes(format!("{FORMAT} {key} {value} {LEAF}").as_bytes())
    }
}

/// How records sit in a node.
pub(crate) type Slot<K, V> = PrefixedSlot<K, V>;

/// A pointer to a node or a record block: words.
pub(crate) type NodePtr = PPtr<PmU64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_8_byte_records_is_18_lines() {
        assert_eq!(Geometry::<u64, u64, 64>::BYTES, 1152);
        assert_eq!(Geometry::<[u8; 32], u64, 64>::LOW_WORDS, 4);
        assert_eq!((Geometry::<u64, u64, 64>::ALL, Geometry::<u64, u64, 4>::ALL), (u64::MAX, 15));
        assert_eq!(TRIE, 16);
    }

    #[test]
    fn links_say_where_and_whether_the_node_is_gone() {
        let next = Next::to(4096);
        assert!(!next.is_gone() && next.gone().is_gone());
        assert_eq!(next.gone().offset(), 4096);
    }
}
