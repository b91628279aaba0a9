//! Entries: the units that are appended.
//!
//! ```text
//! word 0          1                      2 ..
//! | checksum | tag: 48, lines: 16 | payload, zero-padded |
//! ```
//!
//! An entry begins with a line and takes whole lines. Its words become durable in any order, so the checksum
//! alone says whether it is complete. The checksum's seed is the sequence of the segment and the line: the
//! remains of an earlier segment in the same memory are no entries of this one.

use pmindex_core::{Flushed, Medium, PmU64};

use super::layout::LINE_WORDS;

/// Words before the payload.
pub const HEADER: usize = 2;
/// The words of an entry of several lines that are written at once.
const AT_ONCE: usize = 4 * LINE_WORDS;

/// A complete entry in a pool.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'p> {
    /// The user's tag, of 48 bits.
    pub tag: u64,
    /// The user's words, and zeros to the end of the last line.
    pub payload: &'p [PmU64],
    /// The first words of the payload, read when the entry was verified.
    pub first: [u64; LINE_WORDS - HEADER],
    /// The number of its lines.
    pub lines: u32,
}

/// Returns the number of lines of an entry with a payload of `payload` words.
#[inline]
#[must_use]
pub const fn lines_for(payload: usize) -> usize {
    (HEADER + payload).div_ceil(LINE_WORDS)
}

/// Returns the tag of the entry that begins with this line, if one does.
#[inline(always)]
pub fn tag_of<M: Medium>(pm: &M, line: &[PmU64]) -> u64 {
    pm.load(&line[1]) >> 16
}

/// Returns the word before the payload.
#[inline(always)]
fn tag_word(tag: u64, lines: usize) -> u64 {
    debug_assert!(tag >> 48 == 0, "48 bits");
    tag << 16 | lines as u64
}

/// Encodes an entry of one line.
#[inline(always)]
pub(super) fn encode<const N: usize>(
    tag: u64,
    payload: [&[u64]; N],
    sequence: u64,
    line: u32,
) -> [u64; LINE_WORDS] {
    let mut words = [0; LINE_WORDS];
    words[1] = tag_word(tag, 1);
    let mut at = HEADER;
    for part in payload {
        words[at..][..part.len()].copy_from_slice(part);
        at += part.len();
    }
    words[0] = checksum(sequence, line, &words[1..]);
    words
}

/// Writes an entry of several lines to `cells`. It counts from the next fence on.
#[track_caller]
pub(super) fn stream<M: Medium>(
    pm: &M,
    cells: &[PmU64],
    (tag, payload): (u64, &[&[u64]]),
    (sequence, line): (u64, u32),
) -> Flushed {
    let word = tag_word(tag, cells.len() / LINE_WORDS);
    let mut words = Words { parts: payload, part: &[] };
    let mut image = [0; AT_ONCE];
    if let Some(image) = image.get_mut(..cells.len()) {
        image[1] = word;
        words.take(&mut image[HEADER..]);
        image[0] = checksum(sequence, line, &image[1..]);
        return pm.stream_words(cells, image); // P1
    }
    let mut sum = Checksum::new(sequence, line);
    sum.add(&[word]);
    for part in payload {
        sum.add(part);
    }
    let length: usize = payload.iter().map(|part| part.len()).sum();
    sum.add(&[0; LINE_WORDS][..cells.len() - HEADER - length]);
    let (mut flushed, mut begun) = (Flushed::nothing(), HEADER);
    (image[0], image[1]) = (sum.finish(), word);
    for cells in cells.chunks(AT_ONCE) {
        let image = &mut image[..cells.len()];
        words.take(&mut image[begun..]);
        flushed = flushed.and(pm.stream_words(cells, image)); // P1
        begun = 0;
    }
    flushed
}

/// The words of a payload that are not copied yet.
struct Words<'p> {
    parts: &'p [&'p [u64]],
    part: &'p [u64],
}

impl Words<'_> {
    /// Copies the next words, and zeros after the last one.
    #[inline(always)]
    fn take(&mut self, mut into: &mut [u64]) {
        while !into.is_empty() {
            if self.part.is_empty() {
                let Some((next, rest)) = self.parts.split_first() else { break };
                (self.part, self.parts) = (next, rest);
            }
            let (now, later) = self.part.split_at(self.part.len().min(into.len()));
            let (filled, rest) = into.split_at_mut(now.len());
            filled.copy_from_slice(now);
            (self.part, into) = (later, rest);
        }
        into.fill(0);
    }
}

/// Decodes the entry that begins with `cells` (which extend to the segment's end), if it is complete.
pub(super) fn decode<'p, M: Medium>(
    pm: &M,
    cells: &'p [PmU64],
    sequence: u64,
    line: u32,
) -> Option<Entry<'p>> {
    let mut words = [0; LINE_WORDS];
    pm.read_words(cells.get(..LINE_WORDS)?, &mut words);
    let lines = (words[1] & 0xffff) as usize;
    let cells = cells.get(..lines * LINE_WORDS)?;
    if lines == 0 {
        return None;
    }
    let mut sum = Checksum::new(sequence, line);
    sum.add(&words[1..]);
    for rest in cells[LINE_WORDS..].chunks(LINE_WORDS) {
        let mut words = [0; LINE_WORDS];
        pm.read_words(rest, &mut words);
        sum.add(&words);
    }
    let [total, word, first @ ..] = words;
    let whole = sum.finish() == total;
    let (tag, payload) = (word >> 16, &cells[HEADER..]);
    whole.then_some(Entry { tag, payload, first, lines: lines as u32 })
}

/// A checksum in progress.
///
/// Each step is a bijection of the state for a given word and of the word for a given state, in two
/// alternating states: any change confined to one word is always detected, any other change is missed with
/// probability 2^-64. It detects rot and torn writes, not malice.
#[derive(Clone, Debug)]
pub struct Checksum {
    states: [u64; 2],
    turn: usize,
}

impl Checksum {
    /// Starts a checksum, different for every sequence and line.
    #[inline]
    #[must_use]
    pub fn new(sequence: u64, line: u32) -> Self {
        Self { states: [step(sequence ^ 0x7370_7472_6565_6c6f), u64::from(line)], turn: 0 }
    }

    /// Adds words.
    #[inline(always)]
    pub fn add(&mut self, words: &[u64]) {
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

    /// Returns the checksum of the words added.
    #[inline]
    #[must_use]
    pub fn finish(self) -> u64 {
        step(self.states[0] ^ self.states[1].rotate_left(29))
    }
}

/// Computes the checksum of words, different for every sequence and line.
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
    fn checksum_does_not_depend_on_how_the_words_are_cut() {
        let words: Vec<u64> = (0..23).map(|n| n * 77).collect();
        let whole = checksum(5, 9, &words);
        for (one, other) in (0..23).flat_map(|one| (one..23).map(move |other| (one, other))) {
            let mut sum = Checksum::new(5, 9);
            for part in [&words[..one], &words[one..other], &words[other..]] {
                sum.add(part);
            }
            assert_eq!(sum.finish(), whole, "{one} {other}");
        }
    }

    #[test]
    fn checksum_detects_every_torn_line() {
        // Any subset of an entry's words over the former contents.
        for old in [[0; 8], [u64::MAX; 8], [3; 8]] {
            let new = encode(64 << 8 | 1, [&[3, 0], &[17, 18, 0, 19]], 7, 1);
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
        assert_eq!(lines_for(6), 1);
        assert_eq!(lines_for(7), 2);
    }
}
