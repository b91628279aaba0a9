//! What a store keeps in a pool beside its maps, which are indexes: the log of its commits.
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
//! Numbers of commits ascend: bits 40 and up are the session. Keys and values are encoded as in an index.

use pmindex_core::{PmPtr, PmU64, pm_struct};

/// What the log is called in the directory of the pool.
pub(crate) const NAME: &str = "store.redo";
/// What the directory of a pool says of the log of a store.
pub const LOG_KIND: [u8; 8] = *b"store   ";
/// Version of this layout.
pub(crate) const LAYOUT: u64 = 1;

/// Bits of a commit's number within its session.
pub(crate) const COMMIT_BITS: u32 = 40;

/// A part of the record of a commit: its number, the bytes of the record, words of it.
pub(crate) const RECORD: u64 = 1;
/// All changes of a commit are in their indexes: its number.
pub(crate) const APPLIED: u64 = 2;
/// What an interrupted commit changes in a map is made: its number, the bytes of the map's name, the name.
pub(crate) const SETTLED: u64 = 3;
/// A commit has not taken place: its number.
pub(crate) const NONE: u64 = 4;

pm_struct! {
    /// The root of a store.
    #[align(64)]
    pub(crate) struct Root: size 64 {
        /// The log, or null after a crash that came before it.
        pub(crate) log @ 0: PmPtr<PmU64>,
        /// Of all commits that are later than this one, the records are in the log; all bits set: of some there
        /// is none.
        pub(crate) floor @ 8: PmU64,
        /// How often a store was opened here to be written: each time its commits have numbers of their own.
        pub(crate) session @ 16: PmU64,
        /// Zero.
        pub(crate) reserved: [PmU64; 5],
    }
}
