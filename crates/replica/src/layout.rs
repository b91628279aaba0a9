//! The layout of a replica in a pool: a log, and the meaning of its entries.
//!
//! ```text
//! root          | log | zeros |
//! ENTRY         | index | term | type | bytes of data | data ...
//! MORE          | data ...                 of the entry before it, which has not room for all of its data
//! HARD          | term | vote | commit |
//! CONFIGURATION | index | counts of its four sets | ids ... |      in force from this index on
//! BASE          | index | term | generation of the state | 1 if the entries before it are void |
//! ```
//!
//! The last `HARD` and the last `BASE` are valid. An `ENTRY` voids earlier entries with the same or a
//! greater index; a `BASE` voids those with the same or a smaller index. So the log keeps its meaning when
//! its first segments are freed, provided that the other segments have the last `HARD`, `BASE` and
//! `CONFIGURATION`, and every entry after the base.

use pmindex_core::{PmPtr, PmU64, pm_struct};
use pmindex_log::LogRoot;

/// The type of a replica's log in the pool's directory.
pub(crate) const KIND: [u8; 8] = *b"replica ";
/// Version of the layout on this page.
pub(crate) const FORMAT: u64 = 1;

/// The tags of entries.
pub(crate) const ENTRY: u64 = 1;
pub(crate) const MORE: u64 = 2;
pub(crate) const HARD: u64 = 3;
pub(crate) const CONFIGURATION: u64 = 4;
pub(crate) const BASE: u64 = 5;

pm_struct! {
    /// The root block.
    #[align(64)]
    pub struct Root: size 64 {
        /// The log, or null if the creation was interrupted before.
        pub log @ 0: PmPtr<LogRoot>,
        /// Zero.
        pub reserved @ 8: [PmU64; 7],
    }
}
