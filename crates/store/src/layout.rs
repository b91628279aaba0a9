//! The layout of a store in a pool besides its maps, which are indexes: the log of its commits.
//!
//! The index `store.redo` of the pool has a [`Root`]. The entries of its log:
//!
//! ```text
//!         | tag | payload                                       |
//! record  | 1   | number, bytes of the record, a part of it     |  one or several, on end
//! applied | 2   | number                                        |
//! settled | 3   | number, bytes of the name of a map, the name  |
//! none    | 4   | number                                        |
//!
//! record  | group | group | ..
//! group   | bytes of the name, and bit 15: the map was loaded: 2 | bytes of the changes: 4 | name | change | ..
//! change  | bytes of the value and 1, or 0: removed: 4 | bytes of the key: 4 | key | value |
//! ```
//!
//! A record may come again at the end of its lane, with the same number: the first one that is found counts.
//!
//! Numbers of commits ascend: bits 40 and up are the session. Keys and values are encoded as in an index.

use pmindex_core::{PmPtr, PmU64, pm_struct};

/// The name of the log in the directory of the pool.
pub(crate) const NAME: &str = "store.redo";
/// The kind of the log in the directory of the pool.
pub const LOG_KIND: [u8; 8] = *b"store   ";
/// The version of this layout.
pub(crate) const LAYOUT: u64 = 1;

/// The bits of a commit's number within its session.
pub(crate) const COMMIT_BITS: u32 = 40;

/// A part of the record of a commit: the commit's number, the bytes of the record, words of it.
pub(crate) const RECORD: u64 = 1;
/// All changes of a commit are in their indexes: the commit's number.
pub(crate) const APPLIED: u64 = 2;
/// The changes of an interrupted commit to a map are made: the commit's number, the bytes of the map's name,
/// the name.
pub(crate) const SETTLED: u64 = 3;
/// A commit did not take place: its number.
pub(crate) const NONE: u64 = 4;

pm_struct! {
    /// The root of a store.
    #[align(64)]
    pub(crate) struct Root: size 64 {
        /// The log, or null after a crash before its creation.
        pub(crate) log @ 0: PmPtr<PmU64>,
        /// The log has the records of all commits later than this one; all bits set: some have none.
        pub(crate) floor @ 8: PmU64,
        /// The number of openings for writing: the commits of each have numbers of their own.
        pub(crate) session @ 16: PmU64,
        /// Zero.
        pub(crate) reserved: [PmU64; 5],
    }
}
