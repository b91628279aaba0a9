//! The layout of a log in a pool.
//!
//! ```text
//! root       | segments | anchor | notes | reserved |   then the table of segments
//! table      | block, or null | sequence | place | checksum |   for each segment
//! segment    a line that is not used, then lines of entries
//! entry      | checksum | tag: 48, lines: 16 | payload, zero-padded to whole lines |
//! ```

use pmindex_core::{PmU64, Word, pm_struct};

use super::entry::checksum;

/// Version of the layout on this page, and of entries.
pub const FORMAT: u64 = 1;

/// Bytes of a line: every entry begins at a line.
pub const LINE_BYTES: u64 = 64;
/// Words of a line.
pub const LINE_WORDS: usize = 8;
/// The number of writers that can append at once.
pub const LANES: usize = 16;
/// The largest number of lines in a segment.
pub const MAX_LINES: u32 = 1 << 15;

pm_struct! {
    /// The root of a log; the table of segments follows it in its block.
    ///
    /// ```text
    /// 0          8        16      40
    /// | segments | anchor | notes | reserved |
    /// ```
    #[align(64)]
    pub struct LogRoot: size 64 {
        /// The number of segments in the table.
        pub segments @ 0: PmU64,
        /// For the user, to keep its own state about the entries. At first 0.
        pub anchor @ 8: PmU64,
        /// For the user, too: words on the line of the anchor. At first 0.
        pub notes @ 16: [PmU64; 3],
        /// Zero.
        pub reserved: [PmU64; 3],
    }

    /// A segment in the table. With these words opening reads no segment that has no new entries: each would
    /// be a page that is not mapped yet.
    #[align(32)]
    pub struct Segment: size 32 {
        /// Its block, or null: the other words mean nothing then.
        pub block @ 0: PmU64,
        /// A number that no other segment of this log has or had, ascending in each lane.
        pub sequence @ 8: PmU64,
        /// The lane and the number of lines.
        pub place @ 16: PmU64,
        /// The checksum of the three and of the segment's index.
        pub checksum @ 24: PmU64,
    }
}

/// Where an entry begins, in half a word: the segment's index in the table, and the line. The first line of a
/// segment is not used, so 0 means no entry. Unlike a [`Position`], a location is reused with its segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Location(u32);

impl Location {
    /// No entry.
    pub const NONE: Self = Self(0);

    /// Makes the location of a line of a segment.
    #[inline]
    #[must_use]
    pub const fn new(segment: u16, line: u32) -> Self {
        Self((segment as u32) << 16 | line)
    }

    /// Converts a word of DRAM to the location.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Converts the location to a word of DRAM.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the segment's index in the table.
    #[inline]
    #[must_use]
    pub const fn segment(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Returns the line in the segment.
    #[inline]
    #[must_use]
    pub const fn line(self) -> u32 {
        self.0 & 0xffff
    }

    /// Returns `true` if this is no entry.
    #[inline]
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// A place in a lane, between two entries or behind the last: the sequence of a segment, and a line. Of two
/// entries of a lane the later one has the greater position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(u64);

/// A position in each lane.
pub type Positions = [Position; LANES];

impl Position {
    /// Before every entry.
    pub const START: Self = Self(0);
    /// After every entry.
    pub const END: Self = Self(u64::MAX);

    /// Makes the position of a line of the segment with this sequence.
    #[inline]
    #[must_use]
    pub const fn new(sequence: u64, line: u32) -> Self {
        Self(sequence << 16 | line as u64)
    }

    /// Returns the sequence of the segment.
    #[inline]
    #[must_use]
    pub const fn sequence(self) -> u64 {
        self.0 >> 16
    }

    /// Returns the line.
    #[inline]
    #[must_use]
    pub const fn line(self) -> u32 {
        (self.0 & 0xffff) as u32
    }
}

impl Word for Position {
    #[inline]
    fn from_word(word: u64) -> Self {
        Self(word)
    }

    #[inline]
    fn into_word(self) -> u64 {
        self.0
    }
}

/// Packs a segment's lane and lines.
pub(super) fn place_word(lane: usize, lines: u32) -> u64 {
    (lane as u64) << 32 | u64::from(lines)
}

/// Computes the checksum of the table's words for segment `index`, whose block is at `offset`.
pub(super) fn segment_checksum(index: u16, offset: u64, sequence: u64, place: u64) -> u64 {
    checksum(sequence, u32::from(index), &[offset, place])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_locations_keep_their_parts() {
        let position = Position::new(1 << 40, 0x7fff);
        assert_eq!((position.sequence(), position.line()), (1 << 40, 0x7fff));
        let location = Location::new(65_535, 3);
        assert_eq!((location.segment(), location.line()), (65_535, 3));
        assert!(Location::NONE.is_none() && !location.is_none());
    }
}
