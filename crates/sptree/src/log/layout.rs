//! What a log keeps in a pool.
//!
//! ```text
//! root       | segments | checkpoint | reserved |   then the table of segments
//! table      | block, or null | sequence | place | checksum |   for each segment
//! segment    a line that is not used, then lines of entries
//! checkpoint | next | words | total | checksum | reserved |   then words; pieces linked by `next`
//! ```
//!
//! The words of a checkpoint, piece after piece: the tail of each lane (sequence of its segment and
//! line, [`Tail`]), then two words for each chain ([`Head`]).

use pmindex_core::{PmPtr, PmU64, Word, pm_struct};

use super::entry::{Checksum, checksum};

/// Version of the layout on this page, and of entries.
pub(crate) const FORMAT: u64 = 2;

/// Bytes of a line: a line holds the beginning of an entry.
pub(super) const LINE_BYTES: u64 = 64;
/// Words of a line.
pub(super) const LINE_WORDS: usize = 8;
/// How many writers can append at once.
pub(super) const LANES: usize = 16;
/// The most lines of a segment.
pub(super) const MAX_LINES: u32 = 1 << 15;
/// Words of a head in a checkpoint.
pub(super) const HEAD_WORDS: usize = 2;

pm_struct! {
    /// The root of a log; the table of segments follows it in its block.
    ///
    /// ```text
    /// 0          8            16
    /// | segments | checkpoint | reserved |
    /// ```
    #[align(64)]
    pub struct LogRoot: size 64 {
        /// How many segments the table is for.
        pub segments @ 0: PmU64,
        /// The first piece of the last checkpoint, or null. All its pieces live while it is this one.
        pub checkpoint @ 8: PmPtr<Piece>,
        /// Zero.
        pub reserved: [PmU64; 6],
    }

    /// What the table says of a segment. So opening reads no segment that has nothing new: each is
    /// a page that is not mapped yet.
    #[align(32)]
    pub struct Segment: size 32 {
        /// Its block, or null: the others say nothing then.
        pub block @ 0: PmU64,
        /// A number that no other segment of this log has or had, ascending in each lane.
        pub sequence @ 8: PmU64,
        /// The lane and how many lines there are.
        pub place @ 16: PmU64,
        /// Of the three, and of which segment it is.
        pub checksum @ 24: PmU64,
    }

    /// The first line of a piece of a checkpoint.
    #[align(64)]
    pub struct Piece: size 64 {
        /// The next piece, or null.
        pub next @ 0: PmPtr<Piece>,
        /// Words in this piece.
        pub words @ 8: PmU64,
        /// Words in this piece and those after it.
        pub total @ 16: PmU64,
        /// Of the three, and of the words.
        pub checksum @ 24: PmU64,
        /// Zero.
        pub reserved: [PmU64; 4],
    }
}

/// Where an entry begins: which segment of the table, which of its lines. The first line of a
/// segment is not used, so 0 is nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Location(pub(super) u32);

impl Location {
    /// No entry.
    pub const NONE: Self = Self(0);

    pub(super) const fn new(segment: u16, line: u32) -> Self {
        Self((segment as u32) << 16 | line)
    }

    /// The location that a word of DRAM stands for.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// A word of DRAM.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Which segment of the table.
    #[must_use]
    pub const fn segment(self) -> u16 {
        (self.0 >> 16) as u16
    }

    pub(super) const fn line(self) -> u32 {
        self.0 & 0xffff
    }

    /// Whether this is no entry.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Where a lane's next entry will be: the sequence of its segment, and the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail(u64);

impl Tail {
    pub(super) const fn new(sequence: u64, line: u32) -> Self {
        Self(sequence << 16 | line as u64)
    }
    pub(super) const fn sequence(self) -> u64 {
        self.0 >> 16
    }
    pub(super) const fn line(self) -> u32 {
        (self.0 & 0xffff) as u32
    }
}

impl Word for Tail {
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    fn into_word(self) -> u64 {
        self.0
    }
}

/// The newest entry of a chain, in two words.
///
/// ```text
/// | id / 64: 40, sequence number, high: 24 | location: 32, sequence number, low: 32 |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) id: u64,
    pub(super) location: Location,
    pub(super) seq: u64,
}

impl Head {
    pub(super) fn encode(self) -> [u64; HEAD_WORDS] {
        [
            (self.id / 64) << 24 | (self.seq >> 32) & 0xff_ffff,
            u64::from(self.location.0) << 32 | self.seq & 0xffff_ffff,
        ]
    }

    /// Whether the words name this chain.
    pub(super) fn may_be_of([first, _]: [u64; HEAD_WORDS], id: u64) -> bool {
        first >> 24 == id / 64
    }

    pub(super) fn decode([first, second]: [u64; HEAD_WORDS]) -> Self {
        Self {
            id: (first >> 24) * 64,
            location: Location((second >> 32) as u32),
            seq: (first & 0xff_ffff) << 32 | second & 0xffff_ffff,
        }
    }
}

/// A segment's lane and lines.
pub(super) fn place_word(lane: usize, lines: u32) -> u64 {
    (lane as u64) << 32 | u64::from(lines)
}

/// The checksum of what the table says of the segment at `offset`, its number `index`.
pub(super) fn segment_checksum(index: u16, offset: u64, sequence: u64, place: u64) -> u64 {
    checksum(sequence, u32::from(index), &[offset, place])
}

/// The checksum of a piece.
pub(super) fn piece_checksum(next: u64, total: u64, words: &[u64]) -> u64 {
    let mut sum = PieceSum::new(next, total, words.len());
    sum.add(words);
    sum.finish()
}

/// The checksum of a piece of so many words, under way.
pub(super) struct PieceSum(Checksum);

impl PieceSum {
    pub(super) fn new(next: u64, total: u64, words: usize) -> Self {
        Self(Checksum::new(next ^ total.rotate_left(32), words as u32))
    }

    /// Adds words; an even number of them, but for the last ones.
    #[inline(always)]
    pub(super) fn add(&mut self, words: &[u64]) {
        self.0.add(words);
    }

    pub(super) fn finish(self) -> u64 {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_encoding() {
        for (id, location, seq) in
            [(64, 1, 1), (1 << 45, u32::MAX, (1 << 56) - 1), (64 * 7, 0x1_0001, 0x1_0000_0000)]
        {
            let head = Head { id, location: Location(location), seq };
            assert_eq!(Head::decode(head.encode()), head);
        }
    }

    #[test]
    fn tails_and_locations_keep_their_parts() {
        let tail = Tail::new(1 << 40, 0x7fff);
        assert_eq!((tail.sequence(), tail.line()), (1 << 40, 0x7fff));
        let location = Location::new(65_535, 3);
        assert_eq!((location.segment(), location.line()), (65_535, 3));
        assert!(Location::NONE.is_none() && !location.is_none());
    }
}
