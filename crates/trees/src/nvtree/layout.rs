//! What an NV-Tree keeps in a pool.
//!
//! # Leaf
//!
//! A header line, then segments. A segment is one line: a counter, and the `R` slots whose records
//! it counts, `S` words each (`R = 7 / S`). With 8-byte keys and values and 42 slots a leaf is 15
//! lines, 960 bytes:
//!
//! ```text
//! word  0       1 .. 6         7        8         9 .. 14       15
//!       | hint  | fingerprints | next   | counter | 3 slots     | fence   | 13 more segments ..
//!       |<------ line 0 -------------->|<------ line 1 ------------------>|
//! ```
//!
//! * `counter` is the **commit word** of its segment. It counts in unary, one byte ([`Mark`]) per
//!   slot: whether a record was appended there, its sign (a *negative* record says that a key is
//!   gone), and which earlier record of the leaf it supersedes. A record and its counter share a
//!   line, so one flush and one fence commit an append. A slot wider than 7 words has a segment of
//!   two lines, and its counter follows the record behind a fence.
//! * `hint` ([`Hint`]) and the fingerprints (one byte of each key's hash) sum the counters up for
//!   readers. They are *not* consistent on the medium: each can be derived from the segments, so they
//!   are stored after the commit and never flushed. See [`recover`](super::recover).
//! * `next` is the following leaf in key order, or null; it commits structure changes.
//! * `fence` is a lower bound: every key of this leaf and the leaves after it is greater. It is
//!   written once, when the leaf is filled; the first leaf's is zero and has no meaning. It stands in
//!   the first segment where that has words left, else behind the last. Leaves of byte-string keys
//!   have none: recovery reads their keys.
//!
//! # Root
//!
//! One block per index, named in the pool's directory.

use pmindex_core::{LINE, PPtr, PmPtr, PmU64, Word, pm_struct};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{Slot, hash_bytes};

/// The type of an index in the pool's directory.
pub(super) const KIND: [u8; 8] = *b"nvtree\0\0";
/// Version of the layout on this page.
const FORMAT: u64 = 1;

/// Words of a line.
const LINE_WORDS: usize = LINE / 8;
/// The word of `next`.
pub(super) const NEXT: usize = LINE_WORDS - 1;
/// The maximum number of slots of a leaf: the fingerprints that fit the header line.
pub(super) const MAX_LEAF: usize = 8 * (NEXT - 1);

pm_struct! {
    /// The root block.
    ///
    /// ```text
    /// 0       8           16       24
    /// | head  | bulk load | image  | 5 waypoints |
    /// ```
    #[align(64)]
    pub struct Root: size 64 {
        /// The first leaf; never null.
        pub head @ 0: PmPtr<PmU64>,
        /// Not 0 while a bulk load is in progress: whatever hangs off the head is not in the index.
        pub bulk_load @ 8: PmU64,
        /// The image of the inner nodes that the last clean shutdown left, or null.
        pub image @ 16: PmPtr<ImagePiece>,
        /// Leaves spread along the list, or 0: hints, never flushed. See
        /// [`waypoints`](super::waypoints).
        pub waypoints @ 24: [PmU64; 5],
    }

    /// The header of a piece of the clean-shutdown image; pairs of fence and leaf follow.
    ///
    /// ```text
    /// 0       8        16        24         32
    /// | next  | leaves | records | checksum | reserved |
    /// ```
    #[align(64)]
    pub struct ImagePiece: size 64 {
        /// The next piece, or null.
        pub next @ 0: PmPtr<ImagePiece>,
        /// Pairs in this piece.
        pub leaves @ 8: PmU64,
        /// Pairs in this piece and those after it.
        pub total @ 16: PmU64,
        /// Records in all leaves of the image (first piece only).
        pub records @ 24: PmU64,
        /// A checksum of the pairs.
        pub checksum @ 32: PmU64,
        /// Zero.
        pub reserved: [PmU64; 3],
    }
}

/// What a counter says of one slot: `used:1 | negative:1 | victim:6`, used the highest bit.
///
/// Recovery replays the marks of a leaf in the order of the slots: each takes its victim away, and a
/// positive one adds its own record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u8);

impl Mark {
    const USED: u8 = 0x80;
    const NEGATIVE: u8 = 0x40;
    const VICTIM: u8 = 0x3f;
    const NO_VICTIM: u8 = 0x3f;

    /// A record that adds a key.
    pub(super) const POSITIVE: Self = Self(Self::USED | Self::NO_VICTIM);

    /// Returns a record that replaces the one in slot `victim`.
    #[inline(always)]
    pub(super) const fn replacing(victim: usize) -> Self {
        Self(Self::USED | victim as u8 & Self::VICTIM)
    }
    /// Returns a negative record: that in slot `victim` is gone.
    #[inline(always)]
    pub(super) const fn negative(victim: usize) -> Self {
        Self(Self::replacing(victim).0 | Self::NEGATIVE)
    }
    #[inline(always)]
    pub(super) const fn is_used(self) -> bool {
        self.0 & Self::USED != 0
    }
    pub(super) const fn is_negative(self) -> bool {
        self.0 & Self::NEGATIVE != 0
    }
    /// Returns the slot of the record that it takes away.
    pub(super) const fn victim(self) -> Option<usize> {
        let victim = self.0 & Self::VICTIM;
        if victim == Self::NO_VICTIM { None } else { Some(victim as usize) }
    }
    /// Returns the mark at place `at` of a counter.
    #[inline(always)]
    pub(super) const fn of(counter: u64, at: usize) -> Self {
        Self((counter >> (8 * at)) as u8)
    }
    /// Returns the counter with this mark at place `at`, which is unused.
    #[inline(always)]
    pub(super) const fn add_to(self, counter: u64, at: usize) -> u64 {
        counter | (self.0 as u64) << (8 * at)
    }
    /// Returns the bit of a counter that says that place `at` is used.
    pub(super) const fn used_bit(at: usize) -> u64 {
        (Self::USED as u64) << (8 * at)
    }
    /// Returns the bit of a counter that makes the record at place `at` negative.
    pub(super) const fn negative_bit(at: usize) -> u64 {
        (Self::NEGATIVE as u64) << (8 * at)
    }
}

/// What the counters of a leaf amount to: `distrusted:1 | cancelling:1 | 0:6 | count:8 | live:48`.
///
/// A hint behind the counters is found out by the slot that it takes for the next free one. What
/// that would not tell (a record of a full leaf turned negative where it stands) is announced by
/// *distrust*, durably, before it happens; while it happens, the hint is *cancelling*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Hint(u64);

impl Word for Hint {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.0
    }
}

impl Hint {
    const LIVE: u64 = (1 << MAX_LEAF) - 1;
    const COUNT: u32 = 48;
    const DISTRUSTED: u64 = 1 << 63;
    const CANCELLING: u64 = 1 << 62;

    /// Returns the slots that hold the newest record of a key that exists, as bits.
    #[inline(always)]
    pub(super) const fn live(self) -> u64 {
        self.0 & Self::LIVE
    }
    /// How many such slots there are.
    #[inline(always)]
    pub(super) const fn len(self) -> usize {
        self.live().count_ones() as usize
    }
    /// Slots that are taken: records appended, of either sign.
    #[inline(always)]
    pub(super) const fn count(self) -> usize {
        (self.0 >> Self::COUNT & 0xff) as usize
    }
    /// With a live record in each of the first `count` slots.
    pub(super) const fn of_first(count: usize) -> Self {
        Self(((1 << count) - 1) | ((count as u64) << Self::COUNT))
    }
    /// After an append of a record at `slot`.
    #[inline(always)]
    pub(super) const fn appended(self, slot: usize, mark: Mark) -> Self {
        let gone = match mark.victim() {
            Some(victim) => 1 << victim,
            None => 0,
        };
        let new = if mark.is_negative() { 0 } else { 1 << slot };
        Self(self.live() & !gone | new | (slot as u64 + 1) << Self::COUNT)
    }
    /// Returns the state with the bit of a cancellation in progress.
    pub(super) const fn cancelling(self) -> Self {
        Self(self.0 | Self::DISTRUSTED | Self::CANCELLING)
    }
    pub(super) const fn is_cancelling(self) -> bool {
        self.0 & Self::CANCELLING != 0
    }
    /// Returns the state without the bit of a cancellation in progress.
    pub(super) const fn cancelled(self) -> Self {
        Self(self.0 & !Self::CANCELLING)
    }
    /// Without the record in `slot`.
    pub(super) const fn without(self, slot: usize) -> Self {
        Self(self.0 & !(1 << slot))
    }
    pub(super) const fn is_distrusted(self) -> bool {
        self.0 & Self::DISTRUSTED != 0
    }
    /// Returns `true` if it may be that of a leaf of `leaf` slots.
    pub(super) const fn is_valid(self, leaf: usize) -> bool {
        let known = Self::LIVE | 0xff << Self::COUNT | Self::DISTRUSTED | Self::CANCELLING;
        self.0 & !known == 0 && self.count() <= leaf && self.live() >> self.count() == 0
    }
}

/// The places of parts in a leaf of `LEAF` slots for keys `K` and values `V`.
pub(super) struct Geometry<K, V, const LEAF: usize>(core::marker::PhantomData<fn() -> (K, V)>);

impl<K: Key, V: Value, const LEAF: usize> Geometry<K, V, LEAF> {
    /// Slots of a segment.
    pub(super) const PER_SEGMENT: usize =
        if Self::ONE_LINE { (LINE_WORDS - 1) / Slot::<K, V>::WORDS } else { 1 };
    /// `true` if a record shares a line with its counter.
    pub(super) const ONE_LINE: bool = Slot::<K, V>::WORDS < LINE_WORDS;
    /// Words of a segment that are taken.
    const SEGMENT_USED: usize = 1 + Self::PER_SEGMENT * Slot::<K, V>::WORDS;
    /// Words of a segment: a whole number of lines.
    const SEGMENT: usize = Self::SEGMENT_USED.next_multiple_of(LINE_WORDS);
    /// Segments of a leaf.
    pub(super) const SEGMENTS: usize = LEAF.div_ceil(Self::PER_SEGMENT);
    /// Words of the fence.
    pub(super) const FENCE_WORDS: usize = match K::SHAPE {
        Shape::Inline(n) => n,
        Shape::Bytes => 0,
    };
    const FENCE_IN_SEGMENT: bool = Self::SEGMENT_USED + Self::FENCE_WORDS <= Self::SEGMENT;
    const END: usize = LINE_WORDS + Self::SEGMENTS * Self::SEGMENT;
    /// The first word of the fence.
    pub(super) const FENCE: usize =
        if Self::FENCE_IN_SEGMENT { LINE_WORDS + Self::SEGMENT_USED } else { Self::END };
    /// Words of a leaf, in whole lines.
    pub(super) const WORDS: usize = if Self::FENCE_IN_SEGMENT {
        Self::END
    } else {
        (Self::END + Self::FENCE_WORDS).next_multiple_of(LINE_WORDS)
    };
    /// Bytes of a leaf.
    pub(super) const BYTES: u64 = 8 * Self::WORDS as u64;

    const VALID: () = assert!(
        LEAF >= 2 && LEAF <= MAX_LEAF,
        "a leaf has 2 to 48 slots: its fingerprints share a line with the hint and the link"
    );

    /// Returns the word of the counter of segment `segment`.
    #[inline(always)]
    pub(super) const fn counter(segment: usize) -> usize {
        LINE_WORDS + segment * Self::SEGMENT
    }

    /// Returns the first word of slot `slot`.
    #[inline(always)]
    pub(super) const fn slot(slot: usize) -> usize {
        let at = slot % Self::PER_SEGMENT;
        Self::counter(slot / Self::PER_SEGMENT) + 1 + at * Slot::<K, V>::WORDS
    }

    /// Returns the hash of this layout for the pool's directory.
    pub(super) fn id() -> u64 {
        let () = Self::VALID;
        Self::id_of(&K::type_name(), &V::type_name())
    }

    /// Returns the hash of the layout for types with these names.
    pub(super) fn id_of(key: &str, value: &str) -> u64 {
        hash_bytes(format!("{FORMAT} {key} {value} {LEAF}").as_bytes())
    }
}

/// A pointer to a leaf or a record block: words.
pub(super) type LeafPtr = PPtr<PmU64>;

#[cfg(test)]
mod tests {
    use super::*;

    type Words = Geometry<u64, u64, 42>;
    type Wide = Geometry<[u8; 32], [u8; 32], 4>;
    type Bytes = Geometry<Vec<u8>, Vec<u8>, 42>;

    #[test]
    fn leaf_of_8_byte_records_is_15_lines_with_its_fence_in_the_first_segment() {
        assert_eq!((Words::BYTES, Words::PER_SEGMENT, Words::SEGMENTS), (960, 3, 14));
        assert_eq!((Words::FENCE, Words::slot(0), Words::slot(3)), (15, 9, 17));
    }

    #[test]
    fn every_shape_of_slot_lies_within_its_leaf() {
        assert_eq!((Wide::PER_SEGMENT, Wide::ONE_LINE, Wide::SEGMENT), (1, false, 16));
        assert!(Wide::slot(3) + 8 <= Wide::WORDS && Wide::FENCE + 4 <= Wide::WORDS);
        assert_eq!((Bytes::PER_SEGMENT, Bytes::SEGMENTS, Bytes::FENCE_WORDS), (7, 6, 0));
    }

    #[test]
    fn hint_follows_marks() {
        let mut hint = Hint::default();
        hint = hint.appended(0, Mark::POSITIVE);
        hint = hint.appended(1, Mark::POSITIVE);
        hint = hint.appended(2, Mark::replacing(0));
        assert_eq!((hint.live(), hint.count()), (0b110, 3));
        hint = hint.appended(3, Mark::negative(1));
        assert_eq!((hint.live(), hint.count()), (0b100, 4));
        assert!(hint.is_valid(4) && !hint.is_valid(3));
        assert!(!Hint(0b100 | 2 << Hint::COUNT).is_valid(4), "a live slot that is not taken");
    }

    #[test]
    fn marks_share_a_counter() {
        let counter = Mark::negative(5).add_to(Mark::POSITIVE.add_to(0, 0), 1);
        assert_eq!(Mark::of(counter, 0), Mark::POSITIVE);
        assert_eq!(Mark::of(counter, 1).victim(), Some(5));
        assert!(Mark::of(counter, 1).is_negative() && !Mark::of(counter, 2).is_used());
        assert_ne!(counter & Mark::used_bit(1), 0);
        assert_eq!(counter & Mark::negative_bit(0), 0);
    }
}
