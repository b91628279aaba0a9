//! The layout of a CCEH index in a pool.
//!
//! # Segment
//!
//! `LINES` lines of four pairs behind a line of header; with 255 a segment is 256 lines, 16 KiB:
//!
//! ```text
//! word  0      1      2          8              10
//!       | base | next | reserved | pair 0: id, other | pair 1 | ..
//!       |<-- line 0: header ---->|<------------ line 1 -----------
//! ```
//!
//! * `base`: the segment has the records whose position is not less, and less than the base of the next
//!   segment. A position is a hash of the record's id. Written once, when the segment is made.
//! * `next` is the segment that follows in the order of bases, or null. The first segment's base is 0;
//!   one segment has the base 2^63; so no segment has more than half of the positions. From base to base
//!   it is a power of two, of which the base is a multiple: 2^(64 - depth), the depth being at most 32, and
//!   at most 12 more than the logarithm of the number of segments for which the pool would have room.
//! * The **id** of a record is its key where that is one word, else the hash of the key. A pair whose id
//!   has a position outside its segment is *dead*: its slot is empty. A removal stores an
//!   id from the other half of all positions there, which no split and no merge ever brings back.
//! * A record is in one of the `PROBE` lines that begin with its home line (after the last line comes
//!   the first): line `(position mod 2^32) * LINES / 2^32`.
//!
//! ```text
//! key      value    id               other
//! 1 word   1 word   key              value
//! 1 word   else     key              block: value
//! else     any      hash of the key  block: key and value
//! ```
//!
//! There is no directory: opening makes one in DRAM from the list of segments.

use std::borrow::Cow;
use std::marker::PhantomData;

use pmindex_core::{LINE, PmPtr, PmU64, pm_struct};
use pmindex_index::{IndexError, Key, MAX_KEY_BYTES, Value};
use pmindex_record::{Pair, hash_bytes, hash_words, ordered_bytes};

/// The type of an index in the pool's directory.
pub(crate) const KIND: [u8; 8] = *b"cceh\0\0\0\0";
/// Version of the layout on this page.
const FORMAT: u64 = 1;

/// Words of a line.
pub(crate) const LINE_WORDS: usize = LINE / 8;
/// Pairs of a line.
pub(crate) const LINE_PAIRS: usize = LINE_WORDS / 2;
/// Words before the pairs.
pub(crate) const HEADER_WORDS: usize = LINE_WORDS;
/// The word of a segment's base.
pub(crate) const BASE: usize = 0;
/// The word of the next segment.
pub(crate) const NEXT: usize = 1;
/// How many bits of a position tell segments apart at most; the others choose a line.
pub(crate) const MAX_DEPTH: u32 = 32;
/// How much deeper a segment may be than if all of a pool were segments of one depth.
const SPARE_DEPTH: u32 = 12;
/// An id whose position is in the lower half.
const LOW: u64 = 2;
/// An id whose position is in the upper half.
const HIGH: u64 = 0;

pm_struct! {
    /// The root block.
    ///
    /// ```text
    /// 0       8        16
    /// | head  | closed | reserved |
    /// ```
    #[align(64)]
    pub struct Root: size 64 {
        /// The first segment; null only until it is made, never freed.
        pub head @ 0: PmPtr<PmU64>,
        /// After a clean shutdown the number of records and 1; else 0.
        pub closed @ 8: PmU64,
        /// Zero.
        pub reserved: [PmU64; 6],
    }
}

/// Returns the position of a record with this id.
#[inline(always)]
pub(crate) fn position(id: u64) -> u64 {
    hash_words(&[id])
}

/// The positions of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cover {
    pub(crate) base: u64,
    /// 1 to [`MAX_DEPTH`].
    pub(crate) depth: u32,
}

impl Cover {
    /// Returns the cover of this depth that contains a position.
    #[inline(always)]
    pub(crate) fn of(position: u64, depth: u32) -> Self {
        Self { base: position & !(u64::MAX >> depth), depth }
    }
    /// Returns the cover from `base` to the next segment's; `None` if it is invalid.
    pub(crate) fn between(base: u64, next: u64) -> Option<Self> {
        let width = next.wrapping_sub(base);
        if !width.is_power_of_two() || !base.is_multiple_of(width) {
            return None;
        }
        let depth = 64 - width.ilog2();
        (depth <= MAX_DEPTH).then_some(Self { base, depth })
    }
    #[inline(always)]
    pub(crate) fn has(self, position: u64) -> bool {
        (position ^ self.base) >> (64 - self.depth) == 0
    }
    /// Returns the first position after it; 0 if there is none.
    pub(crate) fn end(self) -> u64 {
        self.base.wrapping_add(1 << (64 - self.depth))
    }
    /// Returns its two halves.
    pub(crate) fn halves(self) -> (Self, Self) {
        let depth = self.depth + 1;
        let lower = Self { base: self.base, depth };
        (lower, Self { base: lower.end(), depth })
    }
    /// Returns this half and its sibling, the lower first; `None` for half of all positions.
    pub(crate) fn with_buddy(self) -> Option<(Self, Self)> {
        (self.depth > 1).then(|| Self::of(self.base, self.depth - 1).halves())
    }
    /// Returns the id of a pair without a record.
    #[inline(always)]
    pub(crate) fn stranger(self) -> u64 {
        if self.base >> 63 == 0 { HIGH } else { LOW }
    }
}

/// A key to look up: its record's id, the position of the id, and, for keys longer than a word, their bytes.
#[derive(Clone, Debug)]
pub(crate) struct Sought<'k> {
    pub(crate) id: u64,
    pub(crate) position: u64,
    pub(crate) bytes: Cow<'k, [u8]>,
}

impl<'k> Sought<'k> {
    /// Encodes a key.
    ///
    /// # Errors
    /// [`IndexError::KeyTooLong`].
    #[inline(always)]
    pub(crate) fn new<K: Key>(key: &'k K::Ref) -> Result<Self, IndexError> {
        if !K::SHAPE.is_bytes() && K::SHAPE.words() == 1 {
            let id = K::to_words(key)[0];
            return Ok(Self { id, position: position(id), bytes: Cow::Borrowed(&[]) });
        }
        let bytes = ordered_bytes::<K>(key);
        let len = bytes.len();
        if len > MAX_KEY_BYTES {
            return Err(IndexError::KeyTooLong { len, max: MAX_KEY_BYTES });
        }
        let id = hash_bytes(&bytes);
        Ok(Self { id, position: position(id), bytes })
    }
}

/// The sizes of a segment.
pub(crate) struct Geometry<K, V, const LINES: usize, const PROBE: usize>(
    PhantomData<fn() -> (K, V)>,
);

impl<K: Key, V: Value, const LINES: usize, const PROBE: usize> Geometry<K, V, LINES, PROBE> {
    /// Bytes of a segment.
    pub(crate) const BYTES: u64 = (LINE * (LINES + 1)) as u64;
    /// Returns the greatest depth of a segment in a pool of this length. The directory of a region is an array with
    /// an entry for each segment of its greatest depth, so this keeps the arrays in proportion to the pool. Segments
    /// of random keys are a few bits deeper than the logarithm of their number, keys that were made alike any number.
    pub(crate) fn max_depth(pool: u64) -> u32 {
        MAX_DEPTH.min((pool / Self::BYTES).max(1).ilog2() + SPARE_DEPTH)
    }

    /// Pairs of a segment.
    pub(crate) const PAIRS: usize = LINE_PAIRS * LINES;

    const VALID: () = {
        assert!(LINES >= 2 && LINES <= 511, "a segment has 2 to 511 lines of pairs");
        assert!(PROBE >= 1 && PROBE <= LINES, "a record is in one of 1 to LINES lines");
    };

    /// Returns the hash of this layout for the pool's directory.
    pub(crate) fn id() -> u64 {
        let () = Self::VALID;
        Self::id_of(&K::type_name(), &V::type_name())
    }

    /// Returns the hash for types with these names.
    pub(crate) fn id_of(key: &str, value: &str) -> u64 {
        hash_bytes(format!("{FORMAT} {key} {value} {LINES} {PROBE}").as_bytes())
    }
}

/// Returns `true` if records of these types have a block.
pub(crate) const fn has_block<K: Key, V: Value>() -> bool {
    Pair::<K, V>::HAS_BLOCK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_in_the_other_half() {
        assert_eq!((position(LOW) >> 63, position(HIGH) >> 63), (0, 1));
        for base in [0, 1 << 62, 1 << 63, 3 << 62] {
            let cover = Cover { base, depth: 2 };
            assert!(!cover.has(position(cover.stranger())));
        }
    }

    #[test]
    fn covers_are_powers_of_two_and_aligned() {
        let half = Cover::between(0, 1 << 63).expect("a half");
        assert_eq!((half.depth, half.end(), half.with_buddy()), (1, 1 << 63, None));
        let (lower, upper) = half.halves();
        assert_eq!((lower.end(), upper.end()), (1 << 62, 1 << 63));
        assert_eq!(Cover::between(1 << 63, 0), Some(Cover { base: 1 << 63, depth: 1 }));
        assert_eq!(upper.with_buddy(), Some((lower, upper)));
        assert_eq!(Cover::of(upper.base + 77, 2), upper);
        for (base, next) in [(0, 0), (0, 3 << 62), (1 << 62, 3 << 62), (8, 8), (0, 1)] {
            assert_eq!(Cover::between(base, next), None, "{base:x} {next:x}");
        }
    }

    #[test]
    fn a_segment_is_16_kib() {
        assert_eq!(Geometry::<u64, u64, 255, 4>::BYTES, 16 << 10);
    }
}
