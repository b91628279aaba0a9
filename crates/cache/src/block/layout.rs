//! What a block cache keeps in a pool.
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
//! A segment's *generation* is a number that no segment of this cache had before: the pool's generation
//! and a counter. Every checksum of an entry and of a summary begins with it and the identity of the cache,
//! so that what earlier generations left in the same memory counts as nothing. A place has its
//! generation from before its first entry until it is used anew.
//!
//! Of a block that is *packed* the bytes are its length (4 of them, the lowest first) and an LZ4 block.
//!
//! An entry is *live* if its word `live` follows from its checksum. It dies by a store of 0 there; a
//! place dies with its generation.

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
        /// A number that other caches hardly have: part of every checksum.
        pub identity @ 0: PmU64,
        /// Bytes of a segment.
        pub segment_bytes @ 8: PmU64,
        /// How many segments there may be.
        pub places @ 16: PmU64,
        /// Of the three.
        pub checksum @ 24: PmU64,
        /// The table, or null if the creation did not come so far.
        pub table @ 32: PmPtr<Table>,
        /// Zero.
        pub reserved @ 40: [PmU64; 3],
    }

    /// The first line of the table.
    #[align(64)]
    pub struct Table: size 64 {
        /// Of the identity and of where the table is.
        pub checksum @ 0: PmU64,
        /// Zero.
        pub reserved @ 8: [PmU64; 7],
    }

    /// A place for a segment.
    #[align(32)]
    pub struct Place: size 32 {
        /// The segment, or null.
        pub block @ 0: PmU64,
        /// Of `block` and of which place it is; written before `block`.
        pub block_checksum @ 8: PmU64,
        /// The generation. If the checksum does not match, the segment has nothing.
        pub generation @ 16: PmU64,
        /// Of the generation, the segment and the place.
        pub generation_checksum @ 24: PmU64,
    }
}

/// A checksum of a few words, never 0. What it is of stands first.
pub(super) fn checksum(of: [u8; 4], words: &[u64]) -> u64 {
    let start = u64::from(u32::from_le_bytes(of));
    words.iter().fold(mix(start), |sum, &word| mix(sum ^ word).wrapping_add(start)) | 1
}
