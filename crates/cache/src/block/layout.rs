//! The layout of a block cache in a pool.
//!
//! ```text
//! root       | identity | bytes of a segment | places | checksum | table | reserved |
//! table      | checksum | zeros to the end of the line |   then a place for each segment
//! place      | block, or null | checksum | generation, or 0 | checksum |
//! segment    entries, each from a line on ..   summary
//! entry      | checksum | live | instance: 2 | file | offset | packed: 24, kind: 8, bytes: 32 |
//!            sequence | bytes of the block, zero-padded to a line
//! summary    zeros to a line, then for each entry, from the first on:
//!            | instance: 2 | file | offset | line: 32, bytes: 32 |
//!            in the last line: | checksum | entries | zeros |
//! ```
//!
//! A segment's *generation* is a number that no segment of this cache had before: the pool's generation and a
//! counter. Every checksum of an entry and of a summary starts with it and with the identity of the cache, so
//! that remains of earlier generations in the same memory are invalid. A place has its generation from before
//! its first entry until it is reused.
//!
//! A *packed* block is stored as its length (4 bytes, little-endian) and an LZ4 block.
//!
//! An entry is *live* if its word `live` follows from its checksum. A store of 0 there kills it; all entries
//! of a place die with its generation.

use pmindex_core::{PmPtr, PmU64, pm_struct};

use crate::hash::mix;

/// The type of a cache in the pool's directory.
pub(super) const KIND: [u8; 8] = *b"blkcache";
/// Version of the layout on this page.
pub(super) const FORMAT: u64 = 2;

pm_struct! {
    /// The root block.
    #[align(64)]
    pub struct Root: size 64 {
        /// A number that distinguishes this cache from others: part of every checksum.
        pub identity @ 0: PmU64,
        /// Bytes of a segment.
        pub segment_bytes @ 8: PmU64,
        /// The maximum number of segments.
        pub places @ 16: PmU64,
        /// The checksum of these three.
        pub checksum @ 24: PmU64,
        /// The table, or null if the creation was interrupted.
        pub table @ 32: PmPtr<Table>,
        /// Zero.
        pub reserved @ 40: [PmU64; 3],
    }

    /// The first line of the table.
    #[align(64)]
    pub struct Table: size 64 {
        /// The checksum of the identity and of the table's offset.
        pub checksum @ 0: PmU64,
        /// Zero.
        pub reserved @ 8: [PmU64; 7],
    }

    /// A place for a segment.
    #[align(32)]
    pub struct Place: size 32 {
        /// The segment, or null.
        pub block @ 0: PmU64,
        /// The checksum of `block` and of the number of the place; written before `block`.
        pub block_checksum @ 8: PmU64,
        /// The generation. If the checksum does not match, the segment is empty.
        pub generation @ 16: PmU64,
        /// The checksum of the generation, the segment and the number of the place.
        pub generation_checksum @ 24: PmU64,
    }
}

/// Returns a checksum of a few words, never 0. `of` distinguishes its uses.
pub(super) fn checksum(of: [u8; 4], words: &[u64]) -> u64 {
    let start = u64::from(u32::from_le_bytes(of));
    words.iter().fold(mix(start), |sum, &word| mix(sum ^ word).wrapping_add(start)) | 1
}
