//! The layout of an FPTree in a pool.
//!
//! # Leaf
//!
//! `S` is the number of words of a slot, `F` of a fence; `LEAF` slots, at most 54. With 8-byte keys
//! and values and 54 slots a leaf is 15 lines, 960 bytes:
//!
//! ```text
//! word  0        1 .. 7           8                 8 + S * LEAF   + 1
//!       | state  | fingerprints   | LEAF slots, S   | next         | fence: F words |
//!       |<------ line 0 --------->|
//! ```
//!
//! * `state` is the **commit word** ([`LeafState`]): bit `i` says that slot `i` holds a record, bit
//!   63 that a split or a merge is, or was, in progress. The fingerprints (one byte of each key's hash) share its line,
//!   and so does, in the last two bytes, the insert that a crash may have cut short
//!   ([`Pending`](pmindex_record::Pending)): what an insert commits is one line.
//! * A slot of a byte-string key begins with the key's first 8 bytes, as a number that orders keys
//!   but for ties ([`PrefixedSlot`]); then the record's block. So scans and splits know the order of
//!   most records, and lookups tell most keys apart, without a look at the blocks.
//! * `next` is the following leaf in key order, or null.
//! * `fence` is a lower bound: every key of this leaf and the leaves after it is greater. It is
//!   written once, when the leaf is filled; the first leaf's is zero and has no meaning. Leaves of
//!   byte-string keys have none: recovery reads their keys.
//!
//! # Root
//!
//! One block per index, named in the pool's directory. The first leaf is never freed.

use pmindex_core::{LINE, PPtr, PmPtr, PmU64, Word, pm_struct};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{PrefixedSlot, Probe, hash_bytes, slot_near};

/// The type of an index in the pool's directory.
pub(super) const KIND: [u8; 8] = *b"fptree\0\0";
/// Version of the layout on this page (in version 1 inline keys had nothing pending, and byte-string keys no prefixes).
const FORMAT: u64 = 2;
/// The version with byte-string values that are replaced in place: a program that does not know the redo log must not
/// read them.
const FORMAT_WITH_REDO: u64 = 3;

/// Words before the slots: the state and the fingerprints.
pub(super) const HEADER_WORDS: usize = LINE / 8;
/// The maximum number of slots of a leaf: the fingerprints that fit the header line, with what is pending.
pub(super) const MAX_LEAF: usize = LINE - 8 - 2;

pm_struct! {
    /// The root block.
    ///
    /// ```text
    /// 0       8           16       24     32
    /// | head  | bulk load | image  | redo | reserved |
    /// ```
    #[align(64)]
    pub struct Root: size 64 {
        /// The first leaf; never null, never freed.
        pub head @ 0: PmPtr<PmU64>,
        /// Not 0 while a bulk load is in progress: whatever hangs off the head is not in the index.
        pub bulk_load @ 8: PmU64,
        /// The image of the inner nodes that the last clean shutdown left, or null.
        pub image @ 16: PmPtr<ImagePiece>,
        /// The offset of the log by which byte-string values are replaced in place, or 0: always in version 2.
        pub redo @ 24: PmU64,
        /// Zero.
        pub reserved: [PmU64; 4],
    }

    /// The header of a piece of the clean-shutdown image. For each leaf there follow its offset and
    /// the separator on its left: the words of an inline key, or of a byte string its length and its
    /// bytes, the first one in the most significant byte of the first word.
    ///
    /// ```text
    /// 0       8        16      24        32         40      48
    /// | next  | leaves | total | records | checksum | words | reserved |
    /// ```
    #[align(64)]
    pub struct ImagePiece: size 64 {
        /// The next piece, or null.
        pub next @ 0: PmPtr<ImagePiece>,
        /// Leaves in this piece.
        pub leaves @ 8: PmU64,
        /// Leaves in this piece and those after it.
        pub total @ 16: PmU64,
        /// Records in all leaves of the image (first piece only).
        pub records @ 24: PmU64,
        /// A checksum of these numbers and of what follows.
        pub checksum @ 32: PmU64,
        /// The number of words that follow.
        pub words @ 40: PmU64,
        /// Zero.
        pub reserved: [PmU64; 2],
    }
}

/// A leaf's commit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct LeafState(u64);

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
    const SPLITTING: u64 = 1 << 63;
    const SLOTS: u64 = (1 << MAX_LEAF) - 1;

    /// These slots taken, no split.
    pub(super) const fn of_slots(slots: u64) -> Self {
        Self(slots & Self::SLOTS)
    }
    /// Returns the slots that hold records, as bits.
    #[inline(always)]
    pub(super) const fn slots(self) -> u64 {
        self.0 & Self::SLOTS
    }
    #[inline(always)]
    pub(super) const fn len(self) -> usize {
        self.slots().count_ones() as usize
    }
    #[inline(always)]
    pub(super) const fn with(self, slot: usize) -> Self {
        Self(self.0 | 1 << slot)
    }
    #[inline(always)]
    pub(super) const fn without(self, slot: usize) -> Self {
        Self(self.0 & !(1 << slot))
    }
    #[inline(always)]
    pub(super) const fn without_all(self, others: Self) -> Self {
        Self(self.0 & !others.slots())
    }
    /// Returns `true` if slot `slot` holds a record.
    #[cfg(test)]
    pub(super) const fn has(self, slot: usize) -> bool {
        self.0 >> slot & 1 == 1
    }
    /// Returns the state with the bit of a split or merge in progress: the next leaf may hold some of the same
    /// records. (After a merge the bit stays until the state changes.)
    pub(super) const fn splitting(self) -> Self {
        Self(self.0 | Self::SPLITTING)
    }
    pub(super) const fn is_splitting(self) -> bool {
        self.0 & Self::SPLITTING != 0
    }
    /// Returns `true` if only bits of a leaf of `leaf` slots are set.
    pub(super) const fn is_valid(self, leaf: usize) -> bool {
        self.0 & !Self::SPLITTING & !((1 << leaf) - 1) == 0
    }
    /// Returns a free slot of `leaf`: `preferred`, or one of its `group` (slots of one line), or the first
    /// free one after it, round the end.
    #[inline(always)]
    pub(super) const fn free_slot(
        self,
        preferred: usize,
        group: usize,
        leaf: usize,
    ) -> Option<usize> {
        slot_near(!self.0 & ((1 << leaf) - 1), preferred, group)
    }
}

/// The places of parts in a leaf of `LEAF` slots for keys `K` and values `V`.
pub(super) struct Geometry<K, V, const LEAF: usize>(core::marker::PhantomData<fn() -> (K, V)>);

impl<K: Key, V: Value, const LEAF: usize> Geometry<K, V, LEAF> {
    /// Words of the fence.
    pub(super) const FENCE_WORDS: usize = match K::SHAPE {
        Shape::Inline(n) => n,
        Shape::Bytes => 0,
    };
    /// The word of the first slot.
    pub(super) const SLOTS: usize = HEADER_WORDS;
    /// The word of `next`; the fence follows.
    pub(super) const NEXT: usize = Self::SLOTS + LEAF * Slot::<K, V>::WORDS;
    /// Words of a leaf, in whole lines.
    pub(super) const WORDS: usize = (Self::NEXT + 1 + Self::FENCE_WORDS).next_multiple_of(LINE / 8);
    /// Bytes of a leaf.
    pub(super) const BYTES: u64 = 8 * Self::WORDS as u64;

    /// Two neighbours with at most this many records together become one. Few enough that the leaf
    /// is not split soon; enough that leaves are more than three eighths full on average.
    pub(super) const MERGED: usize = LEAF * 3 / 4;
    /// Returns the slot that a record with the probe's key takes if it is free.
    #[inline(always)]
    pub(super) fn preferred_slot(probe: &Probe<'_, K>) -> usize {
        match K::SHAPE {
            Shape::Inline(_) => probe.preferred_slot(LEAF),
            Shape::Bytes => Self::slot_of_fingerprint(probe.fingerprint()),
        }
    }

    /// Returns the preferred slot of byte-string keys: it follows from what a leaf has of a key, so that a
    /// split need not read the key.
    #[inline(always)]
    pub(super) fn slot_of_fingerprint(fingerprint: u8) -> usize {
        (usize::from(fingerprint) * LEAF) >> 8
    }

    /// Returns a free slot for the probe's key.
    #[inline(always)]
    pub(super) fn free_slot_for(state: LeafState, probe: &Probe<'_, K>) -> Option<usize> {
        Self::free_slot(state, Self::preferred_slot(probe))
    }

    /// Returns a free slot for a record that prefers one: that; or one of the same line, which a lookup
    /// fetches together with the header; or any.
    #[inline(always)]
    pub(super) fn free_slot(state: LeafState, preferred: usize) -> Option<usize> {
        state.free_slot(preferred, Slot::<K, V>::GROUP, LEAF)
    }

    const VALID: () = assert!(
        LEAF >= 2 && LEAF <= MAX_LEAF,
        "a leaf has 2 to 54 slots: its fingerprints share a line with the commit word"
    );

    /// Returns the hash of this layout for the pool's directory.
    pub(super) fn id() -> u64 {
        let () = Self::VALID;
        Self::id_of(&K::type_name(), &V::type_name(), V::SHAPE.is_bytes())
    }

    /// Returns the hash of the layout of an index without a redo log. An index that was created with it keeps it.
    pub(super) fn id_without_redo() -> u64 {
        Self::id_of(&K::type_name(), &V::type_name(), false)
    }

    /// Returns the hash of the layout for types with these names, with a redo log or without.
    pub(super) fn id_of(key: &str, value: &str, redo: bool) -> u64 {
        let format = if redo { FORMAT_WITH_REDO } else { FORMAT };
        hash_bytes(format!("{format} {key} {value} {LEAF}").as_bytes())
    }
}

/// The slot of a record in a leaf.
pub(super) type Slot<K, V> = PrefixedSlot<K, V>;

/// A pointer to a leaf or a record block: words.
pub(super) type LeafPtr = PPtr<PmU64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaf_of_8_byte_records_is_15_lines() {
        assert_eq!(Geometry::<u64, u64, 54>::BYTES, 960);
        assert_eq!(Geometry::<u64, u64, 54>::NEXT, 116);
    }

    #[test]
    fn free_slot_prefers_and_wraps() {
        let state = LeafState::of_slots(0b1011);
        assert_eq!(state.free_slot(2, 1, 4), Some(2));
        assert_eq!(state.free_slot(3, 1, 4), Some(2));
        assert_eq!(state.free_slot(3, 1, 5), Some(4));
        assert_eq!(LeafState::of_slots(0b1111).free_slot(1, 1, 4), None);
    }

    #[test]
    fn free_slot_stays_in_the_line_if_it_can() {
        let state = LeafState::of_slots(0b1110_1011);
        assert_eq!(state.free_slot(2, 4, 12), Some(2));
        assert_eq!(state.free_slot(3, 4, 12), Some(2), "of the same line, before it");
        assert_eq!(state.free_slot(5, 4, 12), Some(4));
        assert_eq!(state.with(2).free_slot(1, 4, 12), Some(4), "the line is full");
        assert_eq!(state.with(2).with(4).free_slot(7, 4, 8), None);
        assert_eq!(LeafState::of_slots(0b11_0000).free_slot(5, 4, 6), Some(0), "round the end");
        assert_eq!(Slot::<u64, u64>::GROUP, 4);
        assert_eq!(Slot::<u64, (u64, u64)>::GROUP, 1);
    }
}
