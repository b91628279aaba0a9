//! The layout of an SPTree in a pool.
//!
//! # Bnode
//!
//! `S` is the number of words of a slot; `LEAF` slots, at most 64. With 8-byte keys and values and
//! 64 slots a Bnode is 18 lines, 1152 bytes:
//!
//! ```text
//! word  0        1        2 ..      6         7         8 .. 15    16 ..
//!       | bitmap | next   | low | 0 | pending | applied | tags     | LEAF slots, S words each |
//!       |<------- line 0 ------------------------------>|<-line 1->|
//! ```
//!
//! * `bitmap` is the **commit word**: bit `i` says that slot `i` holds a record.
//! * `next` is the following Bnode in key order, or null; its bit 0 ([`Next::ghosts`]) says that this
//!   Bnode may hold records which are not less than the next one's low key. It shares the bitmap's
//!   line: stores to one line become durable in program order, and a split and a merge rely on it.
//! * `low` is the least key that may be here. It is written once, when the Bnode is filled: the words
//!   of an inline key; for byte strings the offset of a block with the key. The first Bnode's is zero
//!   and has no meaning. The range ends where the next Bnode's begins.
//! * `pending`: in its upper 16 bits the last insert whose three lines became durable under one fence
//!   ([`Pending`](pmindex_record::Pending)); the rest is 0.
//! * `applied`: the last sequence number of its chain in the log that this Bnode has absorbed (see
//!   [`buffer`](crate::buffer)); 0 without buffers. It shares the bitmap's line.
//! * `tags`: a byte of each key's hash, never 0. They are written under the fence of their records; the
//!   tag of a pending record may be missing after a crash, and recovery writes it.
//!
//! # Root
//!
//! One block per index, named in the pool's directory. The first Bnode is never freed.

use pmindex_core::{LINE, PPtr, PmPtr, PmU64, Word, pm_struct};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{Probe, Slot, hash_bytes};

use crate::log;

/// The type of an index in the pool's directory.
pub(crate) const KIND: [u8; 8] = *b"sptree\0\0";
/// The type of one with write buffers.
pub(crate) const BUFFERED_KIND: [u8; 8] = *b"sptree-b";
/// Version of the layout on this page.
const FORMAT: u64 = 1;

/// Words of the line of bitmap, next and low.
pub(crate) const HEADER_WORDS: usize = LINE / 8;
/// The largest number of slots in a Bnode: the bits of its bitmap.
pub(crate) const MAX_LEAF: usize = 64;

pm_struct! {
    /// The root block.
    ///
    /// ```text
    /// 0       8           16       24     32
    /// | head  | bulk load | backup | log  | reserved |
    /// ```
    #[align(64)]
    pub struct Root: size 64 {
        /// The first Bnode; never null, never freed.
        pub head @ 0: PmPtr<PmU64>,
        /// Not 0 while a bulk load is in progress: no record of any Bnode is in the index.
        pub bulk_load @ 8: PmU64,
        /// The root of the radix tree's backup, or null.
        pub backup @ 16: PmPtr<pmindex_fastfair::Root>,
        /// The structured log, or null.
        pub log @ 24: PmPtr<PmU64>,
        /// Zero.
        pub reserved: [PmU64; 4],
    }
}

/// A Bnode's bitmap: the slots that hold records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Taken(u64);

impl Word for Taken {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.0
    }
}

impl Taken {
    /// These slots.
    #[inline(always)]
    pub(crate) const fn of(slots: u64) -> Self {
        Self(slots)
    }
    /// Returns the slots, as bits.
    #[inline(always)]
    pub(crate) const fn slots(self) -> u64 {
        self.0
    }
    #[inline(always)]
    pub(crate) const fn len(self) -> usize {
        self.0.count_ones() as usize
    }
    #[inline(always)]
    pub(crate) const fn with(self, slot: usize) -> Self {
        Self(self.0 | 1 << slot)
    }
    #[inline(always)]
    pub(crate) const fn without(self, slot: usize) -> Self {
        Self(self.0 & !(1 << slot))
    }
    /// Returns `true` if only bits of a Bnode of `leaf` slots are set.
    pub(crate) const fn is_valid(self, leaf: usize) -> bool {
        self.0 & !slots_of(leaf) == 0
    }
    /// Returns the first free slot of `leaf`: records that arrive one after the other share lines, and the units in
    /// which the medium writes.
    #[inline(always)]
    pub(crate) const fn free_slot(self, leaf: usize) -> Option<usize> {
        let free = !self.0 & slots_of(leaf);
        if free == 0 { None } else { Some(free.trailing_zeros() as usize) }
    }
}

/// Returns the bits of `leaf` slots.
#[inline(always)]
pub(crate) const fn slots_of(leaf: usize) -> u64 {
    u64::MAX >> (MAX_LEAF - leaf)
}

/// A Bnode's link to the next.
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
    const GHOSTS: u64 = 1;
    /// The bits that say which Bnode is next.
    pub(crate) const OFFSET: u64 = !(LINE as u64 - 1);

    /// The Bnode at `offset`, or none.
    pub(crate) const fn to(offset: u64) -> Self {
        Self(offset & Self::OFFSET)
    }
    /// Returns the same link, with the bit: records of the next Bnode may be here too.
    pub(crate) const fn with_ghosts(self) -> Self {
        Self(self.0 | Self::GHOSTS)
    }
    #[inline(always)]
    pub(crate) const fn offset(self) -> u64 {
        self.0 & Self::OFFSET
    }
    #[inline(always)]
    pub(crate) const fn ghosts(self) -> bool {
        self.0 & Self::GHOSTS != 0
    }
    /// Returns `true` if no bits are set but these.
    pub(crate) const fn is_valid(self) -> bool {
        self.0 & !Self::OFFSET & !Self::GHOSTS == 0
    }
}

/// Returns the tag of a key: never 0, which says in DRAM that a slot is free.
#[inline(always)]
pub(crate) fn tag_of<K: Key>(probe: &Probe<'_, K>) -> u8 {
    probe.fingerprint().max(1)
}

/// The places in a Bnode of `LEAF` slots for keys `K` and values `V`.
pub(crate) struct Geometry<K, V, const LEAF: usize>(core::marker::PhantomData<fn() -> (K, V)>);

impl<K: Key, V: Value, const LEAF: usize> Geometry<K, V, LEAF> {
    /// The word of the low key.
    pub(crate) const LOW: usize = 2;
    /// Words of the low key, or of the pointer to it.
    pub(crate) const LOW_WORDS: usize = match K::SHAPE {
        Shape::Inline(n) => n,
        Shape::Bytes => 1,
    };
    /// The word that says which insert was the last with one fence.
    pub(crate) const PENDING: usize = HEADER_WORDS - 2;
    /// The word that says which log entries the Bnode has absorbed.
    pub(crate) const APPLIED: usize = HEADER_WORDS - 1;
    /// The word of the first tags.
    pub(crate) const TAGS: usize = HEADER_WORDS;
    /// The word of the first slot.
    pub(crate) const SLOTS: usize = Self::TAGS + MAX_LEAF / 8;
    /// Words of a Bnode, in whole lines.
    pub(crate) const WORDS: usize =
        (Self::SLOTS + LEAF * Slot::<K, V>::WORDS).next_multiple_of(LINE / 8);
    /// Bytes of a Bnode.
    pub(crate) const BYTES: u64 = 8 * Self::WORDS as u64;

    const VALID: () = assert!(
        LEAF >= 2 && LEAF <= MAX_LEAF && Self::LOW + Self::LOW_WORDS <= Self::PENDING,
        "a Bnode has 2 to 64 slots: the bits of one word"
    );

    /// Returns the hash of this layout for the pool's directory.
    pub(crate) fn id(buffer: usize) -> u64 {
        let () = Self::VALID;
        Self::id_of(buffer, &K::type_name(), &V::type_name())
    }

    /// Returns the hash of the layout for types with these names.
    pub(crate) fn id_of(buffer: usize, key: &str, value: &str) -> u64 {
        let name = match buffer {
            0 => format!("{FORMAT} {key} {value} {LEAF} 0"),
            _ => format!("{FORMAT} {key} {value} {LEAF} {buffer} log {}", log::FORMAT),
        };
        hash_bytes(name.as_bytes())
    }
}

/// A pointer to a Bnode or a record block: words.
pub(crate) type BnodePtr = PPtr<PmU64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bnode_of_8_byte_records_is_18_lines() {
        assert_eq!(Geometry::<u64, u64, 64>::BYTES, 1152);
        assert_eq!(Geometry::<[u8; 32], u64, 64>::LOW_WORDS, 4);
    }

    #[test]
    fn free_slots_are_taken_in_order_up_to_the_last() {
        assert_eq!(Taken::of(0b1011).free_slot(4), Some(2));
        assert_eq!(Taken::of(0b1111).free_slot(4), None);
        assert_eq!(Taken::of(u64::MAX >> 1).free_slot(64), Some(63));
        assert_eq!(Taken::of(u64::MAX).free_slot(64), None);
        assert!(Taken::of(u64::MAX).is_valid(64) && !Taken::of(0b1_0000).is_valid(4));
    }

    #[test]
    fn links_say_where_and_whether_there_are_ghosts() {
        let next = Next::to(4096);
        assert!(!next.ghosts() && next.with_ghosts().ghosts());
        assert_eq!(next.with_ghosts().offset(), 4096);
        assert!(next.with_ghosts().is_valid() && !Next::from_word(4096 | 2).is_valid());
    }
}
