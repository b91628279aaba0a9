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
//! record        run | run | ..
//! run           | first line, count | line | line | ..     64 bytes each
//! first word    bits 63..16: number of the first line, its offset in the pool divided by 64
//!               bits 15..0: how many lines follow, neighbours
//! ```
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

use crate::alloc::PAGE;
use crate::line::LINE;

/// The part of a pool that is not journaled: both copies of its superblock.
pub(crate) const FIRST: u64 = 2 * PAGE;
/// The stamp's bits in the word at `CHECKPOINT`: positions are whole blocks.
pub(super) const STAMP: u64 = 0xfff;
/// The largest number of lines in a run, by the bits of a record's first word.
pub(super) const RUN: u64 = (1 << 16) - 1;

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

/// Returns the lines of a journal's record: the offset of each in the file, and its bytes. `None` if it is no
/// such record.
pub(crate) fn lines_in(record: &[u8]) -> Option<Vec<(u64, &[u8; LINE])>> {
    let (mut lines, mut rest) = (Vec::new(), record);
    while let Some((header, after)) = rest.split_first_chunk() {
        let header = u64::from_le_bytes(*header);
        let (first, count) = (header >> 16, header & RUN);
        rest = after;
        for i in 0..count {
            let (line, after) = rest.split_first_chunk()?;
            lines.push(((first + i) * LINE as u64, line));
            rest = after;
        }
    }
    rest.is_empty().then_some(lines)
}
