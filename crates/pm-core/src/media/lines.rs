//! The files beside a pool on an ordinary disk: a journal, in mode `Journal`, or a twin, in mode `Periodic`.
//!
//! Both have a log in a file (below) with a random stamp: a log that was made anew has another one. The
//! generation of a journal's log is the pool's. That of a twin's log is 1 at first, and increases with each
//! opening that continues it.
//!
//! ```text
//! file                  what                                   identity of its log
//! POOL.journal          log                                    the pool's uuid
//! the twin's, any name  log, then the pool's pages (the base)  the uuid, xor "pmindex's twin\0\x02"
//! ```
//!
//! The records of the log are lines of the pool with their new contents, each line at most once in a record. A
//! batch of a journal has one record, one of a twin has one or more. Opening the pool after a crash writes the
//! lines of all records, in order, over the pool's file, or over the base.
//!
//! ```text
//! record        part | part | ..
//! part          run of lines   | 0, number of the first line, count | line | line | ..     64 bytes each
//!               sparse line    | 1, number of the line, mask        | word | word | ..
//! first word    bit 63: 1 for a sparse line
//!               bits 62..16: number of the (first) line, its offset in the pool divided by 64
//!               bits 15..0: how many lines follow, neighbours; or a bit for each word of the line that
//!               follows, the others are zero
//! ```
//!
//! A line is sparse if two of its words or more are zero: nodes that are half full have many of these.
//!
//! # The journal
//!
//! While the pool's file depends on a journal, the superblock names that journal by its stamp (`journal`). A
//! journal counts for a pool only if identity, generation and stamp are the superblock's. The word at 2048 of
//! the pool's file says where the journal ended at the last checkpoint: the position in its upper 52 bits,
//! the low 12 bits of the stamp below. The position must lie between the log's horizon and its end; otherwise
//! file and journal are copies of different moments. No record holds lines of the first 8192 bytes: the
//! superblock and that word are written to the file directly.
//!
//! # The twin
//!
//! The base begins behind the log's part of the file (4 blocks and the capacity that the log's head names).
//! It has the pool's pages in their order, superblock included, each group of 512 behind a page of their
//! checksums: word i is the checksum of page i of the group, 0 if the page is all zeros and was never
//! written. The checksum is the superblock's function, over the page's words, seeded with the page's offset
//! in the pool, with 1 in place of 0. A page that has lines in the log need not agree with its checksum: a
//! power failure may have cut it, and the log repairs it. The superblock, after the log was replayed, says
//! which state of the pool the twin holds. A twin in the making has the twin's name with `.new` behind it,
//! and is never read.

use pmindex_wal::Record;

use crate::alloc::PAGE;
use crate::line::LINE;

/// The part of a pool that is not journaled: both copies of its superblock.
pub(crate) const FIRST: u64 = 2 * PAGE;
/// The stamp's bits in the word at `CHECKPOINT`: positions are whole blocks.
pub(super) const STAMP: u64 = 0xfff;
/// The largest number of lines in a run, by the bits of its first word.
const RUN: u64 = (1 << 16) - 1;
/// The bit of a sparse line in its first word.
const SPARSE: u64 = 1 << 63;
/// The largest number of words other than zero of a sparse line: it takes no more space than in a run.
const MOST_SPARSE: usize = 6;

/// Makes a stamp that differs from the one in the word at `CHECKPOINT`, which an earlier journal left.
pub(crate) fn new_stamp(random: u64, word: u64) -> u64 {
    let low = |stamp: u64| stamp & STAMP;
    let differs = |stamp: &u64| low(*stamp) != 0 && low(*stamp) != low(word);
    (0..3).map(|more| random.wrapping_add(more)).find(differs).unwrap_or(random)
}

/// Returns where the journal of this stamp ended at its last checkpoint, as the word at `CHECKPOINT` says.
pub(crate) fn checkpoint_in(word: u64, stamp: u64) -> u64 {
    if word & STAMP == stamp & STAMP { word & !STAMP } else { 0 }
}

/// Appends lines to a record.
pub(super) struct LineWriter<'r, 'b> {
    record: &'r mut Record<'b>,
    /// The place in the record of the last run's first word, the run's first line, and its number of lines.
    run: Option<(usize, u64, u64)>,
}

impl<'r, 'b> LineWriter<'r, 'b> {
    /// Appends to `record`, which has whole parts.
    pub(super) fn new(record: &'r mut Record<'b>) -> Self {
        Self { record, run: None }
    }

    /// Appends the line at this offset.
    pub(super) fn push(&mut self, offset: u64, words: &[u64; 8]) {
        let line = offset / LINE as u64;
        // The words other than zero, behind a place for the first word.
        let (mut mask, mut count, mut sparse) = (0, 0, [0; 9]);
        for (i, &word) in words.iter().enumerate() {
            sparse[count + 1] = word;
            count += usize::from(word != 0);
            mask |= u64::from(word != 0) << i;
        }
        if count <= MOST_SPARSE {
            self.run = None;
            sparse[0] = SPARSE | line << 16 | mask;
            self.record.extend_words(&sparse, 1 + count);
            return;
        }
        match &mut self.run {
            Some((at, first, count)) if *first + *count == line && *count < RUN => {
                *count += 1;
                self.record.set(*at, &(*first << 16 | *count).to_le_bytes());
            }
            run => {
                *run = Some((self.record.len(), line, 1));
                self.record.extend(&(line << 16 | 1).to_le_bytes());
            }
        }
        self.record.extend_words(words, 8);
    }
}

/// Returns the lines of a record: the offset of each in the file, and its bytes. `None` if it is no such record.
pub(crate) fn lines_in(record: &[u8]) -> Option<Vec<(u64, [u8; LINE])>> {
    let (mut lines, mut rest) = (Vec::new(), record);
    while let Some((header, after)) = rest.split_first_chunk() {
        let header = u64::from_le_bytes(*header);
        let (number, low) = ((header & !SPARSE) >> 16, header & RUN);
        rest = after;
        if header & SPARSE == 0 {
            for i in 0..low {
                let (line, after) = rest.split_first_chunk::<LINE>()?;
                lines.push(((number + i) * LINE as u64, *line));
                rest = after;
            }
            continue;
        }
        let mut line = [0; LINE];
        for (i, word) in line.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            if low >> i & 1 != 0 {
                let (value, after) = rest.split_first_chunk()?;
                (*word, rest) = (*value, after);
            }
        }
        lines.push((number * LINE as u64, line));
    }
    rest.is_empty().then_some(lines)
}

#[cfg(test)]
mod tests {
    use pmindex_wal::Batch;

    use super::*;

    #[test]
    fn what_is_written_is_read_whatever_words_are_zero() {
        for seed in 0..200u64 {
            let (mut batch, mut expected) = (Batch::default(), Vec::new());
            let mut record = batch.record();
            let mut writer = LineWriter::new(&mut record);
            let (mut offset, mut random) = (0, seed);
            for _ in 0..seed {
                let mut draw = |of: u64| {
                    random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e);
                    (random >> 33) % of
                };
                offset += LINE as u64 * (1 + draw(2) * draw(1 << 30));
                let zeros = draw(4);
                let words =
                    core::array::from_fn(|i| if draw(4) < zeros { 0 } else { i as u64 + 1 });
                writer.push(offset, &words);
                expected.push((offset, words.map(u64::to_le_bytes)));
            }
            let record = record.as_slice();
            let found = lines_in(record).unwrap();
            assert_eq!(found.len(), expected.len(), "seed {seed}");
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!((found.0, &found.1[..]), (expected.0, expected.1.as_flattened()));
            }
            for cut in 1..record.len().min(100) {
                let cut = lines_in(&record[..record.len() - cut]);
                assert!(cut.is_none_or(|lines| lines.len() < expected.len()), "seed {seed}");
            }
        }
    }

    #[test]
    fn neighbours_are_a_run_and_zeros_take_no_space() {
        let mut batch = Batch::default();
        let mut record = batch.record();
        let mut writer = LineWriter::new(&mut record);
        (0..3).for_each(|line| writer.push(line * 64, &[9; 8]));
        writer.push(192, &[0; 8]);
        writer.push(256, &[0, 7, 0, 0, 0, 0, 0, 8]);
        assert_eq!(record.len(), (8 + 3 * 64) + 8 + 24);
    }
}
