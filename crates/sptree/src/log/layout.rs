//! SPTree's layout in a log of `pmindex-log`, whose anchor points to the checkpoint.
//!
//! ```text
//! entry      | checksum | id / 64: 40, kind: 8, lines: 16 | seq | next: 32 | payload |
//! checkpoint | next | words | total | checksum | reserved |   then words; pieces linked by `next`
//! notes      | the next checkpoint | an earlier one | 1 while the anchor changes, and the old one |
//! ```
//!
//! The log's notes are 0, but while a checkpoint has more pieces than an operation has tickets: then they name the
//! pieces that are there of the next one, those that are left of an earlier one, and the one that is being replaced.
//!
//! The words of a checkpoint, piece after piece: the tail of each lane (sequence of its segment and
//! line, [`Position`](pmindex_log::Position)), then two words for each chain ([`Head`]).

use pmindex_core::{PmPtr, PmU64, pm_struct};
use pmindex_log::Checksum;

pub use pmindex_log::Location;

/// Version of the layout on this page, of entries, and of the log that they are in.
pub(crate) const FORMAT: u64 = 2;

const _: () = assert!(pmindex_log::FORMAT == 1, "a change there is one here");

/// The note that names the pieces of the next checkpoint: the last ones, as many as are there.
pub(super) const BUILDING: usize = 0;
/// The note that names the pieces of an earlier checkpoint that are not freed.
pub(super) const RETIRING: usize = 1;
/// The note that names the old checkpoint while the new one replaces it, with the lowest bit set.
pub(super) const REPLACED: usize = 2;

/// Words of a head in a checkpoint.
pub(super) const HEAD_WORDS: usize = 2;

pm_struct! {
    /// The first line of a piece of a checkpoint.
    #[align(64)]
    pub struct CheckpointPiece: size 64 {
        /// The next piece, or null.
        pub next @ 0: PmPtr<CheckpointPiece>,
        /// Words in this piece.
        pub words @ 8: PmU64,
        /// Words in this piece and those after it.
        pub total @ 16: PmU64,
        /// The checksum of the three, and of the words.
        pub checksum @ 24: PmU64,
        /// Zero.
        pub reserved: [PmU64; 4],
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
            u64::from(self.location.bits()) << 32 | self.seq & 0xffff_ffff,
        ]
    }

    /// Returns `true` if the words name this chain.
    pub(super) fn may_be_of([first, _]: [u64; HEAD_WORDS], id: u64) -> bool {
        first >> 24 == id / 64
    }

    pub(super) fn decode([first, second]: [u64; HEAD_WORDS]) -> Self {
        Self {
            id: (first >> 24) * 64,
            location: Location::from_bits((second >> 32) as u32),
            seq: (first & 0xff_ffff) << 32 | second & 0xffff_ffff,
        }
    }
}

/// Returns the checksum of a piece.
pub(super) fn piece_checksum(next: u64, total: u64, words: &[u64]) -> u64 {
    let mut sum = PieceSum::new(next, total, words.len());
    sum.add(words);
    sum.finish()
}

/// The checksum of a piece, word by word.
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
            let head = Head { id, location: Location::from_bits(location), seq };
            assert_eq!(Head::decode(head.encode()), head);
        }
    }
}
