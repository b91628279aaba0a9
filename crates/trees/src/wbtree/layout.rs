//! The layout of a wBTree in a pool. Every word of it is in PM: there is nothing to rebuild.
//!
//! # Leaf
//!
//! `S` is the number of words of a slot; `LEAF` slots, at most 54. With 8-byte keys and values and
//! 52 slots a leaf is 15 lines, 960 bytes:
//!
//! ```text
//! word  0        1 .. 7                    8 .. 14         15       16
//!       | state  | fingerprints | pending  | order: bytes  | tail   | LEAF slots, S words each |
//!       |<----------- line 0 ------------->|<------- line 1 ------->|
//! ```
//!
//! * `state` is the **commit word** ([`LeafState`]): bit `i` says that slot `i` holds a record, bit
//!   62 is the tag that the order line must bear to be valid.
//! * one byte of each key's hash, and in the last two bytes of line 0 the insert that may be
//!   [`Pending`], share its line.
//! * `order` is the **indirection slot array**: the numbers of the slots in the order of their keys;
//!   `tail` says how many there are, and for which state ([`Tail`]).
//!
//! # Inner node
//!
//! `INNER` entries, at most 56; `X` more words per separator (none for one-word keys). With 48
//! entries and one-word keys a node is 13 lines, 832 bytes:
//!
//! ```text
//! word  0        1 .. 7          8            8 + INNER            8 + (1 + X) INNER
//!       | state  | order: bytes  | prefixes   | rest of separators | children           |
//!       |<------- line 0 ------->|
//! ```
//!
//! * An entry is a separator and a child with the keys greater than it; that of the *first* entry
//!   has no meaning. `state` is the commit word ([`InnerState`]): which entries there are, which is
//!   the first, whether `order` is valid.
//! * The separator of a byte-string key has its first 8 bytes as prefix and a record block with all
//!   of it.
//!
//! # Root
//!
//! One block per index, named in the pool's directory: the way to the top node, the
//! [micro-log](super::log), and the [redo log](super::redo) of updates.

use pmindex_core::{LINE, PmError, PmPtr, PmU64, Word, pm_struct};
use pmindex_index::{Key, Shape, Value};
pub(super) use pmindex_record::Pending;
use pmindex_record::{Slot, hash_bytes};

/// The type of an index in the pool's directory.
pub(super) const KIND: [u8; 8] = *b"wbtree\0\0";
/// Version of the layout on this page.
const FORMAT: u64 = 2;

/// Words of a line.
pub(super) const LINE_WORDS: usize = LINE / 8;
/// Words of an order: seven, a byte for each slot.
pub(super) const ORDER_WORDS: usize = LINE_WORDS - 1;
/// Bytes of an order.
pub(super) const ORDER_BYTES: usize = 8 * ORDER_WORDS;
/// The maximum number of slots of a leaf: their fingerprints and what is pending fit a line with the state.
pub(super) const MAX_LEAF: usize = ORDER_BYTES - 2;
/// The maximum number of entries of an inner node: their order fits a line with the state.
pub(super) const MAX_INNER: usize = ORDER_BYTES;

/// Entries of the redo log.
pub(super) const REDO_ENTRIES: usize = 4;
const REDO_WORDS: usize = REDO_ENTRIES * LINE_WORDS;

pm_struct! {
    /// The root block.
    ///
    /// ```text
    /// 0      8          16       24         32          64          128
    /// | top  | loading  | count  | settled  | reserved  | micro-log | redo log, 4 entries |
    /// ```
    #[align(64)]
    pub struct Root: size 384 {
        /// The top node and its level; never null.
        pub top @ 0: PmU64,
        /// The top of a tree that a bulk load builds, or 0. It is not in the index.
        pub loading @ 8: PmU64,
        /// The number of records after a clean shutdown; else null.
        pub count @ 16: PmPtr<PmU64>,
        /// The number of the last entry of the redo log that does not count.
        pub settled @ 24: PmU64,
        /// Zero.
        pub reserved: [PmU64; 4],
        /// The structural change in progress.
        pub log @ 64: Log,
        /// Updates of values of several words: a line each, which is its number (0: none), the offset
        /// of the value's first word, and the value. See [`redo`](super::redo).
        pub redo @ 128: [PmU64; REDO_WORDS],
    }

    /// The micro-log: see [`log`](super::log).
    #[align(64)]
    pub struct Log: size 64 {
        /// 0: idle.
        pub armed @ 0: PmU64,
        /// The node whose state commits, and its level; 0 for the root's `top` or `loading`.
        pub parent @ 8: PmU64,
        /// The bits that decide.
        pub mask @ 16: PmU64,
        /// Their value when the change is committed.
        pub expect @ 24: PmU64,
        /// The node that changes after the commit, and its level; or 0.
        pub node @ 32: PmU64,
        /// Its new state.
        pub kept @ 40: PmU64,
        /// The node that records of `node`, or of one that goes, move to, and its level; or 0.
        pub neighbour @ 48: PmU64,
        /// Its new slots or entries, as bits.
        pub grown @ 56: PmU64,
    }
}

/// A child: where it is, and its level (0: a leaf). Never null but in the root's `loading`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Child(u64);

/// More levels than there can be.
pub(super) const MAX_LEVEL: u32 = LINE as u32 - 1;

impl Child {
    /// Returns the node at `offset`, which is a multiple of a line.
    pub(super) const fn new(offset: u64, level: u32) -> Self {
        Self(offset | level as u64)
    }
    #[inline(always)]
    pub(super) const fn offset(self) -> u64 {
        self.0 & !(MAX_LEVEL as u64)
    }
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "six bits")]
    pub(super) const fn level(self) -> u32 {
        (self.0 & MAX_LEVEL as u64) as u32
    }
    pub(super) const fn is_null(self) -> bool {
        self.0 == 0
    }
    /// Returns the child itself, if its level is one below that of its parent.
    #[inline(always)]
    pub(super) fn below(self, parent: Self) -> Result<Self, PmError> {
        if self.level() + 1 == parent.level() {
            return Ok(self);
        }
        Err(PmError::Corrupt { what: "the level of a child", offset: parent.offset() })
    }
}

impl Word for Child {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.0
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
    const TAG: u32 = 62;
    const SLOTS: u64 = (1 << MAX_LEAF) - 1;

    /// Returns the slots that hold records, as bits.
    #[inline(always)]
    pub(super) const fn slots(self) -> u64 {
        self.0 & Self::SLOTS
    }
    /// Returns the same tag and these slots.
    #[inline(always)]
    pub(super) const fn with_slots(self, slots: u64) -> Self {
        Self(self.0 & !Self::SLOTS | slots & Self::SLOTS)
    }
    /// Returns the tag of the order line that belongs to it: 0 or 1.
    #[inline(always)]
    pub(super) const fn tag(self) -> u64 {
        self.0 >> Self::TAG & 1
    }
    #[inline(always)]
    pub(super) const fn with_tag(self, tag: u64) -> Self {
        Self(self.0 & !(1 << Self::TAG) | (tag & 1) << Self::TAG)
    }
    /// Returns `true` if only bits of a leaf of `leaf` slots are set.
    pub(super) const fn is_valid(self, leaf: usize) -> bool {
        self.0 & !(1 << Self::TAG) & !((1 << leaf) - 1) == 0
    }
}

/// Returns a free slot among those of a leaf with `leaf` slots: `preferred`, or the first free one after it,
/// round the end.
#[inline(always)]
pub(super) const fn free_slot(live: u64, preferred: usize, leaf: usize) -> Option<usize> {
    let free = !live & ((1 << leaf) - 1);
    if free == 0 {
        return None;
    }
    let after = free >> preferred;
    Some(if after != 0 {
        preferred + after.trailing_zeros() as usize
    } else {
        free.trailing_zeros() as usize
    })
}

/// The last word of a leaf's order line: the number of slots in the order, and its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail(u64);

impl Word for Tail {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.0
    }
}

impl Tail {
    /// The order is being written.
    pub(super) const INVALID: Self = Self(2 << 8);

    pub(super) const fn new(count: usize, tag: u64) -> Self {
        Self(count as u64 & 0xff | (tag & 1) << 8)
    }
    #[inline(always)]
    pub(super) const fn count(self) -> usize {
        (self.0 & 0xff) as usize
    }
    #[inline(always)]
    pub(super) const fn is_of(self, state: LeafState) -> bool {
        self.0 >> 8 == state.tag()
    }
    /// Returns a tag that this tail does not bear, for a state that comes after `state`.
    pub(super) const fn other_tag(self, state: LeafState) -> u64 {
        if self.0 >> 8 > 1 { 1 - state.tag() } else { 1 - (self.0 >> 8) }
    }
}

/// An inner node's commit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct InnerState(u64);

impl Word for InnerState {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.0
    }
}

impl InnerState {
    const FIRST: u32 = 56;
    const ORDERED: u64 = 1 << 63;
    const ENTRIES: u64 = (1 << MAX_INNER) - 1;

    /// These entries, `first` among them, with a valid order.
    pub(super) const fn new(entries: u64, first: usize) -> Self {
        Self(entries & Self::ENTRIES | (first as u64 & 63) << Self::FIRST | Self::ORDERED)
    }
    /// Returns the entries there are, as bits.
    #[inline(always)]
    pub(super) const fn entries(self) -> u64 {
        self.0 & Self::ENTRIES
    }
    /// Returns the entry whose separator has no meaning.
    #[inline(always)]
    pub(super) const fn first(self) -> usize {
        (self.0 >> Self::FIRST & 63) as usize
    }
    #[inline(always)]
    pub(super) const fn len(self) -> usize {
        self.entries().count_ones() as usize
    }
    #[inline(always)]
    pub(super) const fn is_ordered(self) -> bool {
        self.0 & Self::ORDERED != 0
    }
    pub(super) const fn unordered(self) -> Self {
        Self(self.0 & !Self::ORDERED)
    }
    /// Returns the entries that separate: all but the first.
    #[inline(always)]
    pub(super) const fn separating(self) -> u64 {
        self.entries() & !(1 << self.first())
    }
    /// Returns `true` if only bits of a node of `inner` entries are set, the first among them.
    pub(super) const fn is_valid(self, inner: usize) -> bool {
        self.entries() & !(u64::MAX >> (64 - inner)) == 0 && self.entries() >> self.first() & 1 == 1
    }
}

/// The places of parts in nodes for keys `K` and values `V`.
pub(super) struct Geometry<K, V, const LEAF: usize, const INNER: usize>(
    core::marker::PhantomData<fn() -> (K, V)>,
);

impl<K: Key, V: Value, const LEAF: usize, const INNER: usize> Geometry<K, V, LEAF, INNER> {
    /// The word of a leaf's first slot.
    pub(super) const SLOTS: usize = 2 * LINE_WORDS;
    /// Words of a leaf, in whole lines.
    pub(super) const LEAF_WORDS: usize =
        (Self::SLOTS + LEAF * Slot::<K, V>::WORDS).next_multiple_of(LINE_WORDS);
    /// Bytes of a leaf.
    pub(super) const LEAF_BYTES: u64 = 8 * Self::LEAF_WORDS as u64;

    /// Words of a separator after its first.
    pub(super) const REST_WORDS: usize = match K::SHAPE {
        Shape::Inline(words) => words - 1,
        Shape::Bytes => 1,
    };
    /// The word of an inner node's first prefix.
    pub(super) const PREFIXES: usize = LINE_WORDS;
    /// The first word of the rest of the separators.
    pub(super) const RESTS: usize = Self::PREFIXES + INNER;
    /// The word of the first child.
    pub(super) const CHILDREN: usize = Self::RESTS + INNER * Self::REST_WORDS;
    /// Words of an inner node, in whole lines.
    pub(super) const INNER_WORDS: usize = (Self::CHILDREN + INNER).next_multiple_of(LINE_WORDS);
    /// Bytes of an inner node.
    pub(super) const INNER_BYTES: u64 = 8 * Self::INNER_WORDS as u64;

    const VALID: () = {
        assert!(
            LEAF >= 3 && LEAF <= MAX_LEAF,
            "a leaf has 3 to 54 slots: its fingerprints share a line with the commit word"
        );
        assert!(
            INNER >= 3 && INNER <= MAX_INNER,
            "an inner node has 3 to 56 entries: their order shares a line with the commit word"
        );
    };

    /// Returns the hash of this layout for the pool's directory.
    pub(super) fn id() -> u64 {
        let () = Self::VALID;
        Self::id_of(&K::type_name(), &V::type_name())
    }

    /// Returns the hash of the layout for types with these names.
    pub(super) fn id_of(key: &str, value: &str) -> u64 {
        hash_bytes(format!("{FORMAT} {key} {value} {LEAF} {INNER}").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_8_byte_keys_and_values_are_15_and_13_lines() {
        assert_eq!(Geometry::<u64, u64, 52, 48>::LEAF_BYTES, 960);
        assert_eq!(Geometry::<u64, u64, 52, 48>::INNER_BYTES, 832);
        assert_eq!(Geometry::<u64, u64, 52, 48>::CHILDREN % LINE_WORDS, 0);
    }

    #[test]
    fn tag_of_a_changed_order_is_never_the_one_on_the_medium() {
        for old in [Tail::new(3, 0), Tail::new(3, 1), Tail::INVALID] {
            for state in [LeafState::default(), LeafState::default().with_tag(1)] {
                let tag = old.other_tag(state);
                assert!(!old.is_of(state.with_tag(tag)));
                assert!(Tail::new(4, tag).is_of(state.with_tag(tag)));
            }
        }
    }

    #[test]
    fn inner_state_keeps_entries_first_and_order_apart() {
        let state = InnerState::new(0b1011, 3);
        assert_eq!((state.entries(), state.first(), state.len()), (0b1011, 3, 3));
        assert_eq!(state.separating(), 0b0011);
        assert!(state.is_ordered() && !state.unordered().is_ordered() && state.is_valid(4));
        assert!(!InnerState::new(0b1011, 2).is_valid(4) && !state.is_valid(3));
    }
}
