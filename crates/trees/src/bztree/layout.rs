//! The layout of a BzTree in a pool.
//!
//! # Root
//!
//! One block per index, named in the pool's directory: the pointer to the root node, the index
//! epoch, the descriptor pool.
//!
//! # Pointers
//!
//! A pointer to a node is a word that operations change. It has 62 bits: the offset, level and length of the
//! node, so that a thread can prefetch the node before it reads its header.
//!
//! ```text
//!  61      54 | 53   48 | 47       0
//!    lines    |  level  |  offset
//! ```
//!
//! # Leaf
//!
//! `n` records were sorted when the leaf was made; `U` entries buffer later records:
//!
//! ```text
//! word 0        1      2      3      4 .. 4+U    F: ceil(n/8)   n words (byte strings only)
//!      | status | info | dead | wide | entries | fingerprints | places | n records | free space |
//! ```
//!
//! * `status` ([`Status`]) is part of every operation on the leaf and different after each.
//! * `info` never changes: level, `n`, where the free space starts.
//! * `dead`: one bit for each of the `n` sorted records that was removed.
//! * `wide` never changes: one bit for each sorted record whose value is wide (below).
//! * An *entry* ([`Entry`]) is the metadata of one record that came later: reserved (place, length,
//!   index epoch), visible (place, lengths, fingerprint, which record it replaces), or dead.
//! * Fingerprints (one byte of each key's hash) and places of the sorted records never change; nor
//!   does a record once an entry shows it, but for one word that operations change: the pointer to a
//!   record out of line, or a value of one word.
//!
//! A word that operations change is at most [`pmindex_pmwcas::MAX_VALUE`]. A value of one word that is
//! larger (one of 32 random ones) is *wide*: its word never changes, and an update shows a new record.
//! The entry (or place) of a record says so; where records of fixed size need no places, `wide` says
//! so of the sorted ones.
//!
//! With 8-byte keys and values a sorted record takes 17 bytes, a later one 24.
//!
//! # Inner node
//!
//! ```text
//! word 0        1      8              8+H        9+H+INNER
//!      | status | info | H separators | children | places, keys |
//! ```
//!
//! `H` is `INNER` rounded up to whole lines. A separator stands with its first word; where that is
//! not all of it (byte strings, keys of several words) the whole one stands at the end. Only
//! children change in place; the status changes with each.

use core::fmt;
use core::marker::PhantomData;

use pmindex_core::{LINE, PmPtr, PmU64, Word, pm_struct};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{Slot, hash_bytes};

/// The type of an index in the pool's directory.
pub(super) const KIND: [u8; 8] = *b"bztree\0\0";
/// Version of the layout on this page.
const FORMAT: u64 = 4;

/// The maximum number of sorted records of a leaf: the bits of `dead`.
pub(super) const MAX_LEAF: usize = 62;
/// Returns the number of entries for later records of a leaf with `leaf` sorted ones. With 60 a leaf has 1536
/// bytes, a block size; with 28 entries a record took 37 bytes, not 28, and gets and scans were slower.
pub(super) const fn later(leaf: usize) -> usize {
    leaf.div_ceil(3)
}
/// The maximum number of levels of a tree.
pub(super) const MAX_LEVEL: usize = 40;

/// The words of every node.
pub(super) const STATUS: usize = 0;
pub(super) const INFO: usize = 1;
/// The words of a leaf.
pub(super) const DEAD: usize = 2;
pub(super) const WIDE: usize = 3;
pub(super) const ENTRIES: usize = 4;
/// The words of an inner node.
pub(super) const HEADS: usize = LINE / 8;

pm_struct! {
    /// The root block.
    ///
    /// ```text
    /// 0      8         16      24        32
    /// | root | loading | epoch | records | descriptors | reserved |
    /// ```
    #[align(64)]
    pub struct Root: size 64 {
        /// The pointer to the root node; 0 until the first leaf is there.
        pub root @ 0: PmU64,
        /// The root node of a bulk load that is in progress, or 0.
        pub loading @ 8: PmU64,
        /// The index epoch: counts openings. Durable before the first operation.
        pub epoch @ 16: PmU64,
        /// The number of records plus 1 if the index was closed; else 0.
        pub records @ 24: PmU64,
        /// The descriptor pool.
        pub table @ 32: PmPtr<u64>,
        /// Zero.
        pub reserved: [PmU64; 3],
    }
}

/// A pointer to a node, or null.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ptr(u64);

impl Ptr {
    pub(super) const NULL: Self = Self(0);
    const OFFSET_BITS: u32 = 48;
    const LEVEL_BITS: u32 = 6;
    const LINES_SHIFT: u32 = Self::OFFSET_BITS + Self::LEVEL_BITS;

    /// Makes a pointer; `lines` becomes 0 if it does not fit.
    pub(super) const fn new(offset: u64, level: usize, words: usize) -> Self {
        let lines = words / (LINE / 8);
        let lines = if lines < 256 { lines as u64 } else { 0 };
        Self(offset | (level as u64) << Self::OFFSET_BITS | lines << Self::LINES_SHIFT)
    }
    pub(super) const fn of(word: u64) -> Self {
        Self(word)
    }
    pub(super) const fn word(self) -> u64 {
        self.0
    }
    pub(super) const fn is_null(self) -> bool {
        self.0 == 0
    }
    #[inline(always)]
    pub(super) const fn offset(self) -> u64 {
        self.0 & ((1 << Self::OFFSET_BITS) - 1)
    }
    /// Returns the level; 0 for a leaf.
    #[inline(always)]
    pub(super) const fn level(self) -> usize {
        (self.0 >> Self::OFFSET_BITS & ((1 << Self::LEVEL_BITS) - 1)) as usize
    }
    /// Returns the words of the node; 0 if only the node itself says it.
    #[inline(always)]
    pub(super) const fn words(self) -> usize {
        (self.0 >> Self::LINES_SHIFT & 0xff) as usize * (LINE / 8)
    }
}

impl fmt::Debug for Ptr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} (level {})", self.offset(), self.level())
    }
}

/// A node's status word.
///
/// ```text
///  61     | 60      27 | 26        14 | 13   7 | 6      0
///  frozen |  version   |  live words  |  live  |  used
/// ```
///
/// Every operation on the node changes it, and it never repeats: `version` counts. In a leaf,
/// `used` entries have been shown, `live` records with `live words` of storage are there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Status(u64);

impl Word for Status {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.0
    }
}

impl Status {
    const LIVE: u32 = 7;
    const WORDS: u32 = 14;
    const VERSION: u32 = 27;
    const FROZEN: u64 = 1 << 61;
    const VERSION_MASK: u64 = Self::FROZEN - (1 << Self::VERSION);

    pub(super) const fn fresh(live: usize, words: usize) -> Self {
        Self((live as u64) << Self::LIVE | (words as u64) << Self::WORDS)
    }
    /// Returns the status one version later, with the same contents.
    pub(super) const fn next(self) -> Self {
        let version = (self.0 & Self::VERSION_MASK).wrapping_add(1 << Self::VERSION);
        Self(self.0 & !Self::VERSION_MASK | version & Self::VERSION_MASK)
    }
    #[inline(always)]
    pub(super) const fn is_frozen(self) -> bool {
        self.0 & Self::FROZEN != 0
    }
    /// Returns the status one version later, frozen.
    pub(super) const fn frozen(self) -> Self {
        Self(self.next().0 | Self::FROZEN)
    }
    /// Returns the status one version later, not frozen.
    pub(super) const fn thawed(self) -> Self {
        Self(self.next().0 & !Self::FROZEN)
    }
    /// Returns the number of entries shown so far.
    #[inline(always)]
    pub(super) const fn used(self) -> usize {
        (self.0 & 0x7f) as usize
    }
    pub(super) const fn live(self) -> usize {
        (self.0 >> Self::LIVE & 0x7f) as usize
    }
    pub(super) const fn live_words(self) -> usize {
        (self.0 >> Self::WORDS & 0x1fff) as usize
    }
    /// Returns the status one version later: at least `used` entries shown, with these numbers of live
    /// records and their words added and removed.
    pub(super) const fn changed(
        self,
        used: usize,
        more: (usize, usize),
        less: (usize, usize),
    ) -> Self {
        let next = self.next();
        let used = if used > next.used() { used } else { next.used() };
        let live = (next.live() + more.0).wrapping_sub(less.0) as u64 & 0x7f;
        let words = (next.live_words() + more.1).wrapping_sub(less.1) as u64 & 0x1fff;
        let rest = next.0 >> Self::VERSION << Self::VERSION;
        Self(rest | used as u64 | live << Self::LIVE | words << Self::WORDS)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frozen = if self.is_frozen() { ", frozen" } else { "" };
        let (used, live, version) = (self.used(), self.live(), self.0 >> Self::VERSION);
        write!(f, "{used} used, {live} live, version {version:#x}{frozen}")
    }
}

/// The value of `prev` of an entry that replaces no record.
pub(super) const NOTHING: usize = 127;

/// The state of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Never used.
    Empty,
    /// A thread writes the record.
    Reserved,
    /// The record exists, unless another entry replaces it.
    Visible,
    /// The record was removed. A record that it replaced stays replaced.
    Dead,
}

/// The place, length and contents of a record in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Place {
    /// The first word.
    pub(super) at: usize,
    /// The number of words.
    pub(super) words: usize,
    /// The bytes of a byte-string key.
    pub(super) key: usize,
    /// The bytes of a byte-string value.
    pub(super) value: usize,
    /// `true` if the byte strings are in a block out of line.
    pub(super) out: bool,
    /// `true` if a one-word value is too large to change in place.
    pub(super) wide: bool,
}

/// An entry of a leaf, or the place of a sorted record.
///
/// ```text
///           60 | 59    50 | 49   40 |  39 | 38  32 | 31  24 | 23   14 | 13   2 | 1   0
/// visible: wide |  value   |   key   | out |  prev  | finger |  words  |   at   | state
/// reserved:                        index epoch (55 .. 24)     |  words  |   at   | state
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(u64);

impl Entry {
    pub(super) const EMPTY: Self = Self(0);

    #[inline(always)]
    pub(super) const fn of(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    pub(super) const fn word(self) -> u64 {
        self.0
    }
    pub(super) const fn reserved(at: usize, words: usize, epoch: u64) -> Self {
        Self(1 | (at as u64) << 2 | (words as u64) << 14 | (epoch & 0xffff_ffff) << 24)
    }
    pub(super) const fn visible(place: Place, fingerprint: u8, prev: usize) -> Self {
        Self(
            2 | (place.at as u64) << 2
                | (place.words as u64) << 14
                | (fingerprint as u64) << 24
                | (prev as u64) << 32
                | (place.out as u64) << 39
                | (place.key as u64) << 40
                | (place.value as u64) << 50
                | (place.wide as u64) << 60,
        )
    }
    /// Returns the entry with its record removed.
    pub(super) const fn dead(self) -> Self {
        Self(self.0 | 3)
    }
    #[inline(always)]
    pub(super) const fn state(self) -> State {
        match self.0 & 3 {
            0 => State::Empty,
            1 => State::Reserved,
            2 => State::Visible,
            _ => State::Dead,
        }
    }
    /// Returns `true` if it was shown: it is visible or dead.
    #[inline(always)]
    pub(super) const fn was_shown(self) -> bool {
        self.0 & 2 != 0
    }
    #[inline(always)]
    pub(super) const fn is_visible(self) -> bool {
        self.0 & 3 == 2
    }
    /// Returns `true` if state and fingerprint are equal.
    #[inline(always)]
    pub(super) const fn is_alike(self, other: Self) -> bool {
        (self.0 ^ other.0) & (3 | 0xff << 24) == 0
    }
    /// Returns the index epoch of a reservation.
    pub(super) const fn epoch(self) -> u64 {
        self.0 >> 24 & 0xffff_ffff
    }
    /// Returns the first word after the record.
    pub(super) const fn end(self) -> usize {
        (self.0 >> 2 & 0xfff) as usize + (self.0 >> 14 & 0x3ff) as usize
    }
    #[inline(always)]
    pub(super) const fn fingerprint(self) -> u8 {
        (self.0 >> 24 & 0xff) as u8
    }
    /// Returns the number of the record that it replaces.
    #[inline(always)]
    pub(super) const fn prev(self) -> usize {
        (self.0 >> 32 & 0x7f) as usize
    }
    /// Returns a value other than 0 if it replaces a record.
    #[inline(always)]
    pub(super) const fn replaces(self) -> u64 {
        (self.0 ^ (NOTHING as u64) << 32) & 0x7f << 32
    }
    #[inline(always)]
    pub(super) const fn place(self) -> Place {
        Place {
            at: (self.0 >> 2 & 0xfff) as usize,
            words: (self.0 >> 14 & 0x3ff) as usize,
            key: (self.0 >> 40 & 0x3ff) as usize,
            value: (self.0 >> 50 & 0x3ff) as usize,
            out: self.0 >> 39 & 1 != 0,
            wide: self.0 >> 60 & 1 != 0,
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} prev {}", self.state(), self.place(), self.prev())
    }
}

/// A leaf's info word: `| 31..20 free space | 19..14 .. | 13..6 sorted | 5..0 level |`; an inner
/// node's: `| 63..24 words | 23..8 separators | 5..0 level |`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Info(pub(super) u64);

impl Info {
    pub(super) const fn leaf(sorted: usize, free: usize) -> Self {
        Self((sorted as u64) << 6 | (free as u64) << 20)
    }
    pub(super) const fn inner(level: usize, separators: usize, words: usize) -> Self {
        Self(level as u64 | (separators as u64) << 8 | (words as u64) << 24)
    }
    #[inline(always)]
    pub(super) const fn sorted(self) -> usize {
        (self.0 >> 6 & 0xff) as usize
    }
    pub(super) const fn free(self) -> usize {
        (self.0 >> 20 & 0xfff) as usize
    }
    #[inline(always)]
    pub(super) const fn separators(self) -> usize {
        (self.0 >> 8 & 0xffff) as usize
    }
    pub(super) const fn inner_words(self) -> usize {
        (self.0 >> 24) as usize
    }
    pub(super) const fn level(self) -> usize {
        (self.0 & 0x3f) as usize
    }
}

/// The places of parts in nodes for keys `K` and values `V`.
pub(super) struct Geometry<K, V, const LEAF: usize, const INNER: usize>(
    PhantomData<fn() -> (K, V)>,
);

impl<K: Key, V: Value, const LEAF: usize, const INNER: usize> Geometry<K, V, LEAF, INNER> {
    /// `true` if every record has [`Slot::WORDS`] words and no block.
    pub(super) const FIXED: bool = !Slot::<K, V>::HAS_BLOCK;
    /// `true` if a record is a key of one word and a value of one word.
    pub(super) const PAIRS: bool =
        matches!((K::SHAPE, V::SHAPE), (Shape::Inline(1), Shape::Inline(1)));
    /// The number of entries for later records.
    pub(super) const LATER: usize = later(LEAF);
    /// The first word of the fingerprints.
    pub(super) const FINGERPRINTS: usize = ENTRIES + Self::LATER;
    /// The maximum number of words of live records in a leaf that is not split.
    pub(super) const MOST_WORDS: usize = LEAF * if Self::FIXED { Slot::<K, V>::WORDS } else { 8 };
    /// The maximum number of words of a record in a node; longer ones are out of line.
    pub(super) const INLINE_WORDS: usize = {
        let eighth = Self::MOST_WORDS / 8;
        if eighth > Slot::<K, V>::WORDS { eighth } else { Slot::<K, V>::WORDS }
    };
    /// A leaf with fewer live records looks for a neighbour to merge with.
    pub(super) const FEW: usize = LEAF / 4;

    /// The number of words of the separators' first words.
    pub(super) const HEAD_WORDS: usize = INNER.next_multiple_of(LINE / 8);
    /// The first word of an inner node's children.
    pub(super) const CHILDREN: usize = HEADS + Self::HEAD_WORDS;
    /// The first word of an inner node's whole separators.
    pub(super) const TAILS: usize = Self::CHILDREN + INNER + 1;
    /// `true` if inner nodes have whole separators besides their first words.
    pub(super) const HAS_TAILS: bool = !matches!(K::SHAPE, Shape::Inline(1));
    /// The number of words of an inner node without whole separators.
    pub(super) const INNER_WORDS: usize = Self::TAILS.next_multiple_of(LINE / 8);

    const VALID: () = {
        assert!(LEAF >= 3 && LEAF <= MAX_LEAF, "a leaf has 3 to 62 sorted records");
        assert!(INNER >= 3 && INNER <= 512, "an inner node has 3 to 512 separators");
    };

    /// Returns the first word of the records of a leaf with `sorted` sorted ones.
    #[inline(always)]
    pub(super) const fn records(sorted: usize) -> usize {
        let places = if Self::FIXED { 0 } else { sorted };
        (Self::FINGERPRINTS + sorted.div_ceil(8) + places).next_multiple_of(2)
    }

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
    fn words_fit_62_bits_and_come_back() {
        let (at, words, out, wide) = (0xfff, 0x3ff, true, true);
        let place = Place { at, words, key: 0x3ff, value: 0x3ff, out, wide };
        let entry = Entry::visible(place, 0xff, NOTHING);
        assert_eq!((entry.place(), entry.fingerprint(), entry.prev()), (place, 0xff, NOTHING));
        assert!(entry.word() < 1 << 62 && entry.is_visible() && entry.was_shown());
        assert_eq!((entry.dead().state(), entry.dead().prev()), (State::Dead, NOTHING));
        let reserved = Entry::reserved(0xfff, 0x3ff, u64::MAX);
        assert!(reserved.word() < 1 << 62 && reserved.end() == 0xfff + 0x3ff);
        assert_eq!((reserved.epoch(), reserved.state()), (0xffff_ffff, State::Reserved));
        let ptr = Ptr::new((1 << 48) - 64, MAX_LEVEL, 255 * 8);
        assert_eq!((ptr.offset(), ptr.level(), ptr.words()), ((1 << 48) - 64, MAX_LEVEL, 2040));
        assert!(ptr.word() < 1 << 62);
        assert_eq!(Ptr::new(64, 1, 256 * 8).words(), 0, "too long to say");
    }

    #[test]
    fn a_status_counts_up_and_never_touches_the_bits_of_the_protocol() {
        let full = Status::from_word((1 << 62) - 1);
        assert!(full.is_frozen() && full.next().into_word() < 1 << 62);
        let status = Status::fresh(3, 6);
        let more = status.changed(2, (1, 0), (0, 2));
        assert_eq!((more.used(), more.live(), more.live_words()), (2, 4, 4));
        assert!(more != status && !more.is_frozen() && more.changed(1, (0, 0), (0, 0)).used() == 2);
        assert!(more.frozen().is_frozen() && !more.frozen().thawed().is_frozen());
        assert_ne!(more.frozen().thawed(), more);
    }

    #[test]
    fn a_leaf_of_8_byte_records_has_four_lines_of_header() {
        type G = Geometry<u64, u64, 60, 64>;
        assert_eq!((G::LATER, G::FINGERPRINTS, G::records(60)), (20, 24, 32));
        assert_eq!((G::CHILDREN, G::INNER_WORDS), (72, 144));
    }
}
