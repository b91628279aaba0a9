//! The layout of an archive, on a disk of its own.
//!
//! ```text
//! block 0, 1  heads
//! then        chunks, each of eight pages, or of a block if that is more
//!
//! head    | magic | version | identity | words of a page | sequence | upto | complete: 32, tag: 32 | runs |
//!         | first chunk | chunks | last page | number |   for each of 12 runs, zeros if there are fewer
//!         | checksum |
//! chunk   | checksum | words | first page | last page | changes .. |
//! change  | page | LSN | LSN before | fresh: 1, words: 63 | runs .. |
//! ```
//!
//! A word is little-endian, `magic` is "pmarchiv". Of two whole heads the one with the greater `sequence` counts;
//! it is in block `sequence % 2`. So creation writes block 1, and a file whose block 0 is neither a head nor zero
//! is not an archive's. The buffer's root has the `tag` of a head that is of its own history (`tags.rs`); version 1 had 0 in
//! its place, and such an archive begins anew.
//!
//! The archive has the updates up to the LSN `upto`, and lacks none of those pages that it has an image of; of
//! every page it has one if `complete` is 1. A *run* is a row of chunks whose changes ascend by page and LSN. A
//! change has the encoding of a page's part in the log (`runs` of words), or is an image: *fresh*, beginning with
//! zeros.
//!
//! The checksum of a chunk is seeded with the archive's identity, the number of its run, and its place in it, so a
//! chunk of an earlier run in the same place does not count.

use crate::layout::checksum;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"pmarchiv");
pub(super) const VERSION: u64 = 2;
/// The maximum number of runs.
pub(super) const MOST_RUNS: usize = 12;
/// The words of a head, and of a chunk before its changes.
pub(super) const HEAD: usize = 9 + 4 * MOST_RUNS;
pub(super) const CHUNK_HEAD: usize = 4;

/// A row of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) chunks: u64,
    /// The greatest page of its changes.
    pub(crate) last_page: u64,
    /// A number that no other run has had.
    pub(crate) number: u64,
}

/// The contents of a head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) sequence: u64,
    pub(crate) upto: u64,
    pub(crate) complete: bool,
    /// Random; 0: none.
    pub(crate) tag: u32,
    /// The oldest one first.
    pub(crate) runs: Vec<Run>,
}

/// The state of a block that should be a head.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeadCopy {
    Whole(Head),
    Zero,
    Damaged,
    /// It is whole, and of another archive.
    Other(&'static str),
}

impl Head {
    pub(super) fn encode(&self, identity: u64, page_words: u64) -> [u64; HEAD] {
        let Self { sequence, upto, complete, tag, runs } = self;
        let mut words = [0; HEAD];
        let (numbers, rest) = words.split_at_mut(8);
        let count = runs.len() as u64;
        numbers.copy_from_slice(&[
            MAGIC,
            VERSION,
            identity,
            page_words,
            *sequence,
            *upto,
            u64::from(*complete) | u64::from(*tag) << 32,
            count,
        ]);
        for (words, run) in rest.chunks_exact_mut(4).zip(runs) {
            words.copy_from_slice(&[run.first, run.chunks, run.last_page, run.number]);
        }
        words[HEAD - 1] = checksum(*b"arch", &words[..HEAD - 1]);
        words
    }

    pub(super) fn decode(words: &[u64], identity: u64, page_words: u64) -> HeadCopy {
        let Some(words) = words.first_chunk::<HEAD>() else { return HeadCopy::Damaged };
        if words.iter().all(|&word| word == 0) {
            return HeadCopy::Zero;
        }
        if words[HEAD - 1] != checksum(*b"arch", &words[..HEAD - 1]) {
            return HeadCopy::Damaged;
        }
        let [magic, version, of, size, sequence, upto, flags, count] =
            *words.first_chunk().unwrap_or(&[0; 8]);
        if magic != MAGIC || !(1..=VERSION).contains(&version) {
            return HeadCopy::Other("a later version wrote it");
        }
        if (of, size) != (identity, page_words) {
            return HeadCopy::Other("it is another buffer's");
        }
        let run = |words: &[u64; 4]| {
            let [first, chunks, last_page, number] = *words;
            Run { first, chunks, last_page, number }
        };
        let runs = words[8..].as_chunks().0.iter().take(count as usize).map(run).collect();
        let (complete, tag) = (flags as u32 == 1, (flags >> 32) as u32);
        HeadCopy::Whole(Self { sequence, upto, complete, tag, runs })
    }
}

/// Returns the one of the two heads that counts, if there is one. Otherwise the disk is empty: a crash may have
/// torn the first head, in block 1. An error says why it is not this archive's.
pub(super) fn newest(copies: [HeadCopy; 2]) -> Result<Option<Head>, &'static str> {
    match copies {
        [HeadCopy::Whole(one), HeadCopy::Whole(two)] => {
            Ok(Some(if one.sequence > two.sequence { one } else { two }))
        }
        [HeadCopy::Whole(head), _] | [_, HeadCopy::Whole(head)] => Ok(Some(head)),
        [HeadCopy::Other(what), _] | [_, HeadCopy::Other(what)] => Err(what),
        [HeadCopy::Zero, _] => Ok(None),
        [HeadCopy::Damaged, _] => Err("it is no archive, or both its heads are damaged"),
    }
}

/// Returns what stands for the checksum of a chunk while it is computed.
fn seed(identity: u64, run: u64, nth: u64) -> u64 {
    checksum(*b"seed", &[identity, run, nth])
}

/// Completes a chunk: computes its checksum.
pub(super) fn seal(chunk: &mut [u64], identity: u64, run: u64, nth: u64) {
    chunk[0] = seed(identity, run, nth);
    chunk[0] = checksum(*b"chun", chunk);
}

/// Returns the words of a chunk that are used, if it is whole.
pub(super) fn verify(mut chunk: Vec<u64>, identity: u64, run: u64, nth: u64) -> Option<Vec<u64>> {
    let (sum, words) = (*chunk.first()?, *chunk.get(1)? as usize);
    if !(CHUNK_HEAD..=chunk.len()).contains(&words) {
        return None;
    }
    chunk.truncate(words);
    chunk[0] = seed(identity, run, nth);
    (checksum(*b"chun", &chunk) == sum).then_some(chunk)
}
