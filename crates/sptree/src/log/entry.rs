//! Entries: what is appended.
//!
//! ```text
//! word 0          1                              2     3            4 ..
//! | checksum | id / 64: 40, kind: 8, lines: 16 | seq | next: 32   | payload, zero-padded |
//! ```
//!
//! An entry begins with a line and takes whole lines; a record of 8-byte key and value takes one.
//! Its words become durable in any order, so the checksum alone says whether it is whole. The
//! checksum begins with the sequence of the segment and the line: what an earlier segment left in
//! the same memory is no entry of this one.

use pmindex_core::{Medium, PmU64};

use super::layout::{LINE_WORDS, Location};

/// Words before the payload.
pub(super) const HEADER: usize = 4;

/// What an entry does with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The payload is a record that is inserted, or replaces another one.
    Put,
    /// The payload is a key that is deleted.
    Delete,
    /// All entries before this one are in the leaf: the chain ends here.
    End,
}

impl Kind {
    const fn code(self) -> u64 {
        match self {
            Self::Put => 1,
            Self::Delete => 2,
            Self::End => 3,
        }
    }

    const fn of(code: u64) -> Option<Self> {
        match code {
            1 => Some(Self::Put),
            2 => Some(Self::Delete),
            3 => Some(Self::End),
            _ => None,
        }
    }
}

/// An entry to be appended.
#[derive(Clone, Copy, Debug)]
pub struct Record<'r> {
    /// Which chain: a multiple of 64.
    pub id: u64,
    /// Greater than those of all entries of the chain before it.
    pub seq: u64,
    /// The entry of the chain before it, or none.
    pub next: Location,
    /// What it does.
    pub kind: Kind,
    /// What it says.
    pub payload: &'r [u64],
}

/// A whole entry in a pool.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'p> {
    /// Which chain.
    pub id: u64,
    /// Its number in the chain.
    pub seq: u64,
    /// The entry of the chain before it, or none.
    pub next: Location,
    /// What it does.
    pub kind: Kind,
    /// What it says, and zeros.
    pub payload: &'p [PmU64],
    pub(super) lines: u32,
}

/// Lines of an entry with a payload of so many words.
pub(crate) const fn lines_for(payload: usize) -> usize {
    (HEADER + payload).div_ceil(LINE_WORDS)
}

/// Fills the words of an entry, which are zero, for the segment of this sequence and this line.
#[inline(always)]
pub(super) fn encode(words: &mut [u64], record: &Record<'_>, sequence: u64, line: u32) {
    let lines = (words.len() / LINE_WORDS) as u64;
    words[1] = (record.id / 64) << 24 | record.kind.code() << 16 | lines;
    words[2] = record.seq;
    words[3] = u64::from(record.next.bits());
    words[HEADER..][..record.payload.len()].copy_from_slice(record.payload);
    words[0] = checksum(sequence, line, &words[1..]);
}

/// The greatest sequence number that a file may have: from there, counting on does not overflow.
pub(crate) const SEQ_MAX: u64 = 1 << 48;

/// Where the entry before the one that begins with `cells` is, if that is a whole one.
pub(super) fn next_of<M: Medium>(pm: &M, cells: &[PmU64]) -> Location {
    Location::from_bits(pm.load(&cells[3]) as u32)
}

/// Whether a line, if an entry begins with it, is of this chain.
#[inline(always)]
pub(super) fn may_be_of<M: Medium>(pm: &M, line: &[PmU64], id: u64) -> bool {
    pm.load(&line[1]) >> 24 == id / 64
}

/// The entry that begins with `cells` (which go on to the segment's end), if there is a whole one.
pub(super) fn decode<'p, M: Medium>(
    pm: &M,
    cells: &'p [PmU64],
    sequence: u64,
    line: u32,
) -> Option<Entry<'p>> {
    let mut first = [0; LINE_WORDS];
    pm.read_words(cells.get(..LINE_WORDS)?, &mut first);
    let lines = (first[1] & 0xffff) as usize;
    let cells = cells.get(..lines * LINE_WORDS)?;
    if lines == 0 {
        return None;
    }
    let mut sum = Checksum::new(sequence, line);
    sum.add(&first[1..]);
    for rest in cells[LINE_WORDS..].chunks(LINE_WORDS) {
        let mut words = [0; LINE_WORDS];
        pm.read_words(rest, &mut words);
        sum.add(&words);
    }
    if sum.finish() != first[0] || first[2] > SEQ_MAX || first[3] >> 32 != 0 {
        return None;
    }
    Some(Entry {
        id: (first[1] >> 24) * 64,
        seq: first[2],
        next: Location::from_bits(first[3] as u32),
        kind: Kind::of(first[1] >> 16 & 0xff)?,
        payload: &cells[HEADER..],
        lines: lines as u32,
    })
}

/// A checksum under way.
///
/// Each step is a bijection of the state for a given word and of the word for a given state, in two
/// states that take turns: any change confined to one word is always detected, anything else is
/// missed with probability 2^-64. It finds rot and torn writes, not malice.
pub(super) struct Checksum {
    states: [u64; 2],
    turn: usize,
}

impl Checksum {
    pub(super) fn new(sequence: u64, line: u32) -> Self {
        Self { states: [step(sequence ^ 0x7370_7472_6565_6c6f), u64::from(line)], turn: 0 }
    }

    #[inline(always)]
    pub(super) fn add(&mut self, words: &[u64]) {
        let [mut now, mut then] = [self.states[self.turn], self.states[self.turn ^ 1]];
        let (pairs, rest) = words.as_chunks::<2>();
        for &[one, other] in pairs {
            (now, then) = (step(now ^ one), step(then ^ other));
        }
        (self.states[self.turn], self.states[self.turn ^ 1]) = (now, then);
        for &word in rest {
            self.states[self.turn] = step(now ^ word);
            self.turn ^= 1;
        }
    }

    pub(super) fn finish(self) -> u64 {
        step(self.states[0] ^ self.states[1].rotate_left(29))
    }
}

/// The checksum of words, different for every sequence and line.
#[inline(always)]
pub(super) fn checksum(sequence: u64, line: u32, words: &[u64]) -> u64 {
    let mut sum = Checksum::new(sequence, line);
    sum.add(words);
    sum.finish()
}

#[inline(always)]
const fn step(x: u64) -> u64 {
    let x = (x ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_detects_every_single_bit_flip() {
        let words = [1u64, 2, 0, u64::MAX, 0, 7, 1 << 63];
        let good = checksum(5, 9, &words);
        for word in 0..words.len() {
            for bit in 0..64 {
                let mut bad = words;
                bad[word] ^= 1 << bit;
                assert_ne!(checksum(5, 9, &bad), good, "word {word} bit {bit}");
            }
        }
        assert_ne!(checksum(6, 9, &words), good, "another segment");
        assert_ne!(checksum(5, 8, &words), good, "another line");
        assert_ne!(checksum(5, 9, &words[..6]), good);
        assert_ne!(checksum(0, 0, &[0; 7]), 0, "zeros are no entry");
    }

    #[test]
    fn checksum_detects_every_torn_line() {
        // Any subset of an entry's words over what was there before.
        let record = Record {
            id: 4096,
            seq: 3,
            next: Location::NONE,
            kind: Kind::Put,
            payload: &[17, 18, 0, 19],
        };
        for old in [[0; 8], [u64::MAX; 8], [3; 8]] {
            let mut new = [0; 8];
            encode(&mut new, &record, 7, 1);
            for subset in 0..255u32 {
                let mut torn = old;
                (0..8).filter(|i| subset >> i & 1 == 1).for_each(|i| torn[i] = new[i]);
                let whole = checksum(7, 1, &torn[1..]) == torn[0];
                assert_eq!(whole, torn == new, "{subset:b}");
            }
        }
    }

    #[test]
    fn lines_of_entries() {
        assert_eq!(lines_for(0), 1);
        assert_eq!(lines_for(4), 1);
        assert_eq!(lines_for(5), 2);
    }
}
