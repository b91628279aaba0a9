//! What a partition keeps in a pool.
//!
//! ```text
//! root        | identity | bytes of a block | capacity | places of a page | pages | checksum |
//!             | directory | log | cleared | covered | zeros |
//! directory   a pointer for each page of the table, or null
//! page        a word for each place: the offset of what is there, or 0
//! data block  | generation | checksum | length | zeros |   records, one after the other
//! large value | generation | checksum | pieces | zeros |   then
//! piece       | next | bytes | checksum | zeros |          bytes of the value
//! record      | checksum | LSN | lengths, flags, seal | expiry, if it has one | key | value |
//! entry of the log    records without their checksums
//! ```
//!
//! The tag of an entry of the log is 1; or 2, if the batch in it is continued in the next entry. Only a batch that is
//! too long for one entry has several, and only while the log has one do versions without the tag 2 refuse the
//! partition.
//!
//! A *place* is a number for a block: of records, or for the first piece of a large value, which records
//! name by its place and its generation. A word of the table decides whether the block is there.
//!
//! A *generation* is a number that no block of the partition had before. The checksums of all that is in a
//! block begin with it, so what stood in the same memory before counts as nothing.
//!
//! The *length* of a data block says how many words of it are durable: 32 bits, and 32 bits of their
//! checksum above them. Records behind it count as nothing. One store changes it.
//!
//! The *seal* of a record is 0; of a *hole* it is a hash of its lengths and of where it is. Holes count as
//! nothing, and a write of the same length may take their place. Partitions of version 1 have none.

use pmindex_core::{PmPtr, PmU64, pm_struct};
use pmindex_log::{Checksum, LogRoot};

/// The type of a partition in the pool's directory.
pub(crate) const KIND: [u8; 8] = *b"rstore  ";
/// Version of the layout on this page.
pub(crate) const FORMAT: u64 = 2;
/// Version without holes; such partitions get none.
pub(crate) const WITHOUT_HOLES: u64 = 1;

/// Words of the first line of a block.
pub(crate) const HEADER: usize = 8;
/// Which of them: the generation.
pub(crate) const GENERATION: usize = 0;
/// Of the generation and of where the block is.
pub(crate) const HEADER_SUM: usize = 1;
/// The length of a data block, the number of pieces of a large value.
pub(crate) const LENGTH: usize = 2;
/// Words of the first line of a piece.
pub(crate) const PIECE: usize = 8;
/// Of the first piece: where the line of a piece begins, behind that of the large value.
pub(crate) const FIRST_PIECE: usize = HEADER;

pm_struct! {
    /// The root block.
    #[align(64)]
    pub struct Root: size 128 {
        /// A number that other partitions hardly have: part of every checksum.
        pub identity @ 0: PmU64,
        /// Bytes of a data block.
        pub block_bytes @ 8: PmU64,
        /// Bytes that blocks may take.
        pub capacity @ 16: PmU64,
        /// How many places a page of the table has.
        pub page_places @ 24: PmU64,
        /// How many pages there may be.
        pub pages @ 32: PmU64,
        /// Of the five.
        pub checksum @ 40: PmU64,
        /// The directory of the table, or null if the creation did not come so far.
        pub directory @ 48: PmPtr<PmU64>,
        /// The log, or null if the creation did not come so far.
        pub log @ 56: PmPtr<LogRoot>,
        /// Records with this LSN or a lesser one were removed by a clearing.
        pub cleared @ 64: PmU64,
        /// The blocks have all writes up to this LSN: the partition was closed then.
        pub covered @ 72: PmU64,
        /// Zero.
        pub reserved @ 80: [PmU64; 6],
    }
}

/// Returns a checksum of words, different for everything that has one.
pub(crate) fn checksum(of: [u8; 4], words: &[u64]) -> u64 {
    let mut sum = Checksum::new(u64::from(u32::from_le_bytes(of)), 1);
    sum.add(words);
    sum.finish()
}

/// Returns the checksum of a root of this version.
pub(crate) fn root_checksum(words: &[u64; 5], format: u64) -> u64 {
    checksum(*b"root", &[words[0], words[1], words[2], words[3], words[4], format])
}

/// Returns the checksum of a block's generation.
pub(crate) fn header_checksum(identity: u64, offset: u64, generation: u64, of: [u8; 4]) -> u64 {
    checksum(of, &[identity, offset, generation])
}

/// Returns the word that says that so many words of a data block are durable; of 0 words: that it is free, and
/// whatever its generation is.
pub(crate) fn length_word(identity: u64, offset: u64, generation: u64, words: u32) -> u64 {
    let generation = if words == 0 { 0 } else { generation };
    let sum = checksum(*b"leng", &[identity, offset, generation, words.into()]);
    (sum >> 32) << 32 | u64::from(words)
}

/// Returns the seal of a hole at a word of a block, with this word of lengths.
pub(crate) fn seal(identity: u64, generation: u64, word: u32, lengths: u64) -> u8 {
    let sum = checksum(*b"hole", &[identity ^ generation, word.into(), lengths]);
    ((sum >> 56) as u8).max(1)
}

/// Begins the checksum of a record or a piece at a word of a block.
pub(crate) fn begin_sum(identity: u64, generation: u64, word: usize) -> Checksum {
    Checksum::new(identity ^ generation, word as u32)
}
