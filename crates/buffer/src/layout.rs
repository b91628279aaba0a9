//! The layout of a buffer in a pool.
//!
//! ```text
//! root     | identity | words of a page | frames | pages | partitions | staging | in a chunk | checksum |
//!          | horizon, twice: LSN, checksum | staged | log | table | archived |
//! table    | chunk | checksum |   for each chunk
//! chunk    | page, or 0 |   for each of its frames, to whole lines; then the frames, a page each
//! ```
//!
//! The first frames are for pages; the last ones are the *staging area*: a page is written to the disk from
//! a durable copy there, so that a write that a crash tears can be repeated.
//!
//! On the disk page `n` is at `n` times the bytes of a page. Page 0 belongs to the buffer: it shows that
//! this disk belongs to this buffer.

use pmindex_core::{PmPtr, PmU64, pm_struct};
use pmindex_log::LogRoot;

use crate::page::Sums;

/// The type of a buffer in the pool's directory.
pub(crate) const KIND: [u8; 8] = *b"buffer  ";
/// Version of the layout on this page.
pub(crate) const FORMAT: u64 = 1;

pm_struct! {
    /// The root block.
    #[align(64)]
    pub struct Root: size 128 {
        /// A random number of the buffer, part of the root of every page.
        pub identity @ 0: PmU64,
        /// Words of a page.
        pub page_words @ 8: PmU64,
        /// The number of frames for pages.
        pub frames @ 16: PmU64,
        /// The number of pages of the disk, page 0 included.
        pub pages @ 24: PmU64,
        /// The number of partitions of a page; 0: the page has one sum, kept by differences.
        pub partitions @ 32: PmU64,
        /// The number of frames of the staging area.
        pub staging @ 40: PmU64,
        /// The number of frames of a chunk.
        pub chunk_frames @ 48: PmU64,
        /// The checksum of all fields before it.
        pub checksum @ 56: PmU64,
        /// The horizon: log records up to this LSN are not needed. Stored twice, each with a checksum; of
        /// the valid ones the greater counts.
        pub horizon @ 64: [PmU64; 4],
        /// The number of frames of the staging area that may be on their way to the disk, and a checksum.
        pub staged @ 96: PmU64,
        /// The log.
        pub log @ 104: PmPtr<LogRoot>,
        /// The table, or null if the creation was interrupted before.
        pub table @ 112: PmPtr<Chunk>,
        /// Two tags, each of 32 bits: that of the archive's head, and that of the next one; 0: none.
        pub archived @ 120: PmU64,
    }

    /// A chunk of frames.
    #[align(16)]
    pub struct Chunk: size 16 {
        /// Its block, or null.
        pub block @ 0: PmU64,
        /// The checksum of `block` and of the chunk's number; written before `block`.
        pub checksum @ 8: PmU64,
    }
}

/// Returns a checksum of some words. `of` distinguishes the kinds of checksums.
pub(crate) fn checksum(of: [u8; 4], words: &[u64]) -> u64 {
    let step = |x: u64| {
        let x = (x ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd6e8_feb8_6659_fd93);
        x ^ (x >> 32)
    };
    let start = u64::from(u32::from_le_bytes(of));
    words.iter().fold(step(start), |sum, &word| step(sum.rotate_left(23) ^ word)) | 1
}

/// Returns the word `staged`: a count and its checksum.
pub(crate) fn staged_word(identity: u64, count: usize) -> u64 {
    checksum(*b"stgd", &[identity, count as u64]) << 16 | count as u64
}

/// The sizes that were chosen when a buffer was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) identity: u64,
    pub(crate) page_words: u64,
    pub(crate) frames: u64,
    pub(crate) pages: u64,
    pub(crate) sums: Sums,
    pub(crate) staging: u64,
    pub(crate) chunk_frames: u64,
}

impl Shape {
    pub(crate) fn words(&self) -> [u64; 7] {
        let Self { identity, page_words, frames, pages, sums, staging, chunk_frames } = *self;
        [identity, page_words, frames, pages, sums.partitions() as u64, staging, chunk_frames]
    }

    /// Decodes these words; returns `None` if they cannot be those of a buffer.
    pub(crate) fn from_words(words: [u64; 7]) -> Option<Self> {
        let [identity, page_words, frames, pages, partitions, staging, chunk_frames] = words;
        let sums = Sums::of_partitions(partitions)?;
        let sound = (16..=1 << 13).contains(&page_words)
            && page_words.is_power_of_two()
            && (1..1 << 31).contains(&frames)
            && (2..1 << 40).contains(&pages)
            && (1..1 << 10).contains(&staging)
            && (1..=1 << 31).contains(&chunk_frames)
            && 2 * partitions <= page_words;
        let shape = Self { identity, page_words, frames, pages, sums, staging, chunk_frames };
        sound.then_some(shape)
    }

    /// Returns the number of words of a chunk before its frames.
    pub(crate) fn entries(&self) -> u64 {
        self.chunk_frames.next_multiple_of(8)
    }

    pub(crate) fn chunks(&self) -> u64 {
        (self.frames + self.staging).div_ceil(self.chunk_frames)
    }

    pub(crate) fn chunk_words(&self) -> u64 {
        self.entries() + self.chunk_frames * self.page_words
    }

    pub(crate) fn page_bytes(&self) -> u64 {
        8 * self.page_words
    }
}
