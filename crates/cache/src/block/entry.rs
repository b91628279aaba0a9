//! Entries: a header of one line, then the block.

use pmindex_core::{Medium, PmU64};

use super::key::{KEY_WORDS, Key};
use crate::hash::mix;

/// Words of a line, and so of a header.
pub(super) const LINE_WORDS: usize = 8;
/// Bytes of a line.
pub(super) const LINE_BYTES: usize = 8 * LINE_WORDS;

/// Words of a header.
pub(super) type Words = [u64; LINE_WORDS];

const SUM: usize = 0;
/// The word that marks the entry as live.
pub(super) const LIVE: usize = 1;
const KEY: usize = 2;
const SIZE: usize = KEY + KEY_WORDS;
const SEQUENCE: usize = SIZE + 1;
/// The flag beside kind and length.
const PACKED: u32 = 40;

/// Returns the lines of an entry whose block has this number of bytes.
pub(super) const fn lines_for(len: u32) -> u32 {
    1 + len.div_ceil(LINE_BYTES as u32)
}

/// The name and the properties of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) key: Key,
    pub(super) kind: u8,
    /// `true` if the bytes are compressed.
    pub(super) packed: bool,
    pub(super) len: u32,
    pub(super) sequence: u64,
}

impl Header {
    /// Returns the header as it is stored in a segment with this seed, at this line.
    pub(super) fn encode(&self, seed: u64, line: u32, payload: u64) -> Words {
        let mut words = [0; LINE_WORDS];
        words[KEY..SIZE].copy_from_slice(&self.key.words());
        let flags = u64::from(self.packed) << PACKED;
        words[SIZE] = flags | u64::from(self.kind) << 32 | u64::from(self.len);
        words[SEQUENCE] = self.sequence;
        words[SUM] = sum(seed, line, &words, payload);
        words[LIVE] = live(words[SUM]);
        words
    }
}

/// A header that was read and may be invalid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored(Words);

impl Stored {
    pub(super) fn read<M: Medium>(pm: &M, cells: &[PmU64]) -> Self {
        let mut words = [0; LINE_WORDS];
        pm.read_words(&cells[..LINE_WORDS], &mut words);
        Self(words)
    }

    pub(super) fn key(&self) -> Key {
        let mut words = [0; KEY_WORDS];
        words.copy_from_slice(&self.0[KEY..SIZE]);
        Key::of(words)
    }

    pub(super) fn header(&self) -> Header {
        let Self(words) = self;
        let (kind, len) = ((words[SIZE] >> 32) as u8, words[SIZE] as u32);
        let packed = words[SIZE] >> PACKED & 1 == 1;
        Header { key: self.key(), kind, packed, len, sequence: words[SEQUENCE] }
    }

    /// Returns `true` if the entry was not killed.
    pub(super) fn is_live(&self) -> bool {
        self.0[LIVE] != 0
    }

    /// Returns `true` if this is an intact entry of a segment with this seed, at this line, with this sum of
    /// its block.
    pub(super) fn is_whole(&self, seed: u64, line: u32, payload: u64) -> bool {
        self.0[SUM] == sum(seed, line, &self.0, payload)
    }

    /// Returns `true` if it is intact and live.
    pub(super) fn holds(&self, seed: u64, line: u32, payload: u64) -> bool {
        self.0[LIVE] == live(self.0[SUM]) && self.is_whole(seed, line, payload)
    }
}

/// Returns the sum of an entry: of its header except the first two words, and of its block.
fn sum(seed: u64, line: u32, words: &Words, payload: u64) -> u64 {
    let start = mix(seed ^ u64::from(line)) ^ payload;
    words[KEY..].iter().fold(mix(start), |sum, &word| mix(sum ^ word).wrapping_add(seed))
}

/// Returns the word of a live entry with this sum.
fn live(sum: u64) -> u64 {
    mix(!sum) | 1
}

/// Returns the sum of a block's bytes. Any change within one word of 8 bytes changes it.
pub(super) fn payload_sum(bytes: &[u8]) -> u64 {
    const ODD: u64 = 0xd6e8_feb8_6659_fd93;
    let step = |state: u64, word: u64| {
        let product = (state ^ word).wrapping_mul(ODD);
        product ^ product >> 32
    };
    let mut lanes = [1u64, 2, 3, 4];
    let (fours, rest) = bytes.as_chunks::<32>();
    for four in fours {
        for (lane, word) in lanes.iter_mut().zip(four.as_chunks::<8>().0) {
            *lane = step(*lane, u64::from_le_bytes(*word));
        }
    }
    for (lane, chunk) in lanes.iter_mut().zip(rest.chunks(8)) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        *lane = step(*lane, u64::from_le_bytes(word));
    }
    lanes.iter().fold(mix(bytes.len() as u64), |sum, &lane| mix(sum ^ lane))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_notice_every_bit() {
        let bytes: Vec<u8> = (0..100u8).collect();
        let header = Header {
            key: Key { instance: 3 << 64 | 9, file: 4, offset: 5 },
            kind: 6,
            packed: true,
            len: 100,
            sequence: 7,
        };
        let good = Stored(header.encode(11, 12, payload_sum(&bytes)));
        assert!(good.holds(11, 12, payload_sum(&bytes)) && good.header() == header);
        assert!(!good.holds(10, 12, payload_sum(&bytes)), "another generation");
        assert!(!good.holds(11, 13, payload_sum(&bytes)), "another line");
        for bit in 0..8 * bytes.len() {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!good.is_whole(11, 12, payload_sum(&bad)), "bit {bit} of the block");
        }
        for bit in 0..64 * LINE_WORDS {
            let mut bad = good;
            bad.0[bit / 64] ^= 1 << (bit % 64);
            assert!(!bad.holds(11, 12, payload_sum(&bytes)), "bit {bit} of the header");
        }
        let mut dead = good;
        dead.0[LIVE] = 0;
        assert!(dead.is_whole(11, 12, payload_sum(&bytes)) && !dead.is_live());
    }

    #[test]
    fn lines_of_entries() {
        assert_eq!((lines_for(0), lines_for(1), lines_for(64), lines_for(65)), (1, 2, 2, 3));
    }
}
