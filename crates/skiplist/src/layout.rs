//! The layout of a skip list in a pool: its lowest level. The towers are in DRAM.
//!
//! # Node
//!
//! `LINES` lines of three records each; with 8 a node is 512 bytes:
//!
//! ```text
//! word  0       1        3        5        7
//!       | state | pair 0 | pair 1 | pair 2 | next     |    line 0
//!       | state | pair   | pair   | pair   | reserved |    every other line
//! ```
//!
//! * `next` is the node that follows in key order, or null. All keys of a node are less than those of the
//!   next one; a node does not store the bounds of its keys.
//! * The **state** of a line has a bit for each of its pairs that is a record, and commits it: a record and
//!   the bit that makes it live are on the same line.
//! * A record's **mark** is the upper 16 bits of its key's hash. The record is in one of the first [`WINDOW`]
//!   lines from its home line on, `mark * LINES / 2^16`; the first line follows the last.
//!
//! ```text
//! bit 0    3          16       32       48
//!     | live | reserved | mark 0 | mark 1 | mark 2 |
//!
//! key      value    pair: id            other
//! 1 word   1 word   key                 value
//! 1 word   else     key                 block: value
//! else     any      first word of key   block: key and value
//! ```

use std::marker::PhantomData;

use pmindex_core::{LINE, PmPtr, PmU64, pm_struct};
use pmindex_index::{IndexError, Key, MAX_INLINE_WORDS, Shape, Value};
use pmindex_record::{Pair, Probe, Route, hash_bytes};

/// The type of an index in the pool's directory.
pub(crate) const KIND: [u8; 8] = *b"skiplist";
/// Version of the layout on this page.
const FORMAT: u64 = 1;

/// Words of a line.
pub(crate) const LINE_WORDS: usize = LINE / 8;
/// Records of a line.
pub(crate) const LINE_PAIRS: usize = 3;
/// The word of the next node.
pub(crate) const NEXT: usize = 7;
/// The maximum number of lines of a node.
pub(crate) const MAX_LINES: usize = 16;
/// The number of lines in which a record may be.
pub(crate) const WINDOW: usize = 4;

pm_struct! {
    /// The root block.
    ///
    /// ```text
    /// 0      8           16
    /// | head | bulk load | reserved |
    /// ```
    #[align(64)]
    pub struct Root: size 64 {
        /// The first node; null only until it is made.
        pub head @ 0: PmPtr<PmU64>,
        /// Not 0 while a bulk load is in progress: then no record of any node is part of the index.
        pub bulk_load @ 8: PmU64,
        /// Zero.
        pub reserved: [PmU64; 6],
    }
}

/// Sizes of a list's nodes.
pub(crate) struct Geometry<K, V, const LINES: usize>(PhantomData<fn() -> (K, V)>);

impl<K: Key, V: Value, const LINES: usize> Geometry<K, V, LINES> {
    /// Bytes of a node.
    pub(crate) const BYTES: u64 = (LINE * LINES) as u64;
    const VALID: () = assert!(LINES >= 1 && LINES <= MAX_LINES, "a node has 1 to 16 lines");

    /// Returns the hash of this layout for the pool's directory.
    pub(crate) fn id() -> u64 {
        let () = Self::VALID;
        Self::id_of(&K::type_name(), &V::type_name())
    }

    /// Returns the hash for types with these names.
    pub(crate) fn id_of(key: &str, value: &str) -> u64 {
        hash_bytes(format!("{FORMAT} {key} {value} {LINES}").as_bytes())
    }
}

/// A line's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(pub(crate) u64);

impl State {
    const LIVE: u64 = (1 << LINE_PAIRS) - 1;

    /// Returns the bit of a pair.
    #[inline(always)]
    pub(crate) const fn bit(pair: usize) -> u64 {
        1 << pair
    }
    /// Returns the pairs that are records.
    #[inline(always)]
    pub(crate) const fn live(self) -> u64 {
        self.0 & Self::LIVE
    }
    /// Returns the first pair that is no record.
    #[inline(always)]
    pub(crate) const fn free(self) -> Option<usize> {
        let free = !self.0 & Self::LIVE;
        if free == 0 { None } else { Some(free.trailing_zeros() as usize) }
    }
    #[inline(always)]
    pub(crate) const fn mark(self, pair: usize) -> u16 {
        (self.0 >> (16 + 16 * pair)) as u16
    }
    /// Returns the state with a record in a pair.
    #[inline(always)]
    pub(crate) const fn with(self, pair: usize, mark: u16) -> Self {
        let at = 16 + 16 * pair;
        Self(self.0 & !(0xffff << at) | (mark as u64) << at | Self::bit(pair))
    }
    /// Returns the state without a record in a pair.
    #[inline(always)]
    pub(crate) const fn without(self, pair: usize) -> Self {
        Self(self.0 & !Self::bit(pair))
    }
    /// Returns `true` if the unused bits are zero.
    pub(crate) const fn is_valid(self) -> bool {
        self.0 & 0xffff & !Self::LIVE == 0
    }
}

/// Returns the home line of a mark.
#[inline(always)]
pub(crate) fn home<const LINES: usize>(mark: u16) -> usize {
    (usize::from(mark) * LINES) >> 16
}

/// Returns the lines in which a record with this mark may be.
#[inline(always)]
pub(crate) fn window<const LINES: usize>(mark: u16) -> impl Iterator<Item = usize> {
    let home = home::<LINES>(mark);
    (home..home + const { if WINDOW < LINES { WINDOW } else { LINES } })
        .map(|line| if line < LINES { line } else { line - LINES })
}

/// A key to look up.
pub(crate) struct Sought<'k, K> {
    pub(crate) probe: Probe<'k, K>,
    /// The bytes of a key of several words; their order is that of the keys.
    room: [u8; 8 * MAX_INLINE_WORDS],
}

impl<'k, K: Key> Sought<'k, K> {
    /// Encodes a key.
    ///
    /// # Errors
    /// [`IndexError::KeyTooLong`].
    #[inline(always)]
    pub(crate) fn new(key: &'k K::Ref) -> Result<Self, IndexError> {
        Probe::new(key).map(Self::of)
    }

    #[inline(always)]
    fn of(probe: Probe<'k, K>) -> Self {
        let mut room = [0; 8 * MAX_INLINE_WORDS];
        if let Shape::Inline(2..) = K::SHAPE {
            let _ = Route::to(&probe).encoded::<K>(&mut room);
        }
        Self { probe, room }
    }

    #[inline(always)]
    pub(crate) fn route(&self) -> Route<'_> {
        Route::to(&self.probe)
    }

    /// Returns the first word of the record's pair.
    #[inline(always)]
    pub(crate) fn id(&self) -> u64 {
        self.probe.prefix()
    }

    #[inline(always)]
    pub(crate) fn mark(&self) -> u16 {
        mark(&self.probe)
    }

    /// Returns the key as it is stored in the record's block.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        match K::SHAPE {
            Shape::Bytes => self.probe.bytes(),
            Shape::Inline(1) => &[],
            Shape::Inline(n) => &self.room[..8 * n],
        }
    }
}

/// Returns the mark of a record with this key.
#[inline(always)]
pub(crate) fn mark<K: Key>(probe: &Probe<'_, K>) -> u16 {
    (probe.hash() >> 48) as u16
}

/// Returns `true` if records of these types have a block.
#[inline(always)]
pub(crate) const fn has_block<K: Key, V: Value>() -> bool {
    Pair::<K, V>::HAS_BLOCK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_keep_pairs_apart() {
        let state = State(0).with(0, 0xffff).with(2, 7);
        assert_eq!((state.live(), state.free()), (0b101, Some(1)));
        assert_eq!((state.mark(0), state.mark(1), state.mark(2)), (0xffff, 0, 7));
        let full = state.with(1, 9).with(1, 8);
        assert_eq!((full.live(), full.free(), full.mark(1)), (0b111, None, 8));
        assert_eq!(full.without(0).live(), 0b110);
        assert!(full.is_valid() && !State(1 << 3).is_valid());
    }

    #[test]
    fn windows_go_round_and_name_no_line_twice() {
        for mark in [0, 1, 0x7fff, 0xffff] {
            assert_eq!(window::<2>(mark).count(), 2);
            let lines: std::collections::BTreeSet<usize> = window::<8>(mark).collect();
            assert_eq!(lines.len(), WINDOW);
            assert!(lines.iter().all(|&line| line < 8));
        }
        assert_eq!(window::<8>(0xffff).collect::<Vec<_>>(), [7, 0, 1, 2]);
    }
}
