//! What a replica keeps in a pool: a log, and what its entries say.
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
//! The last `HARD` and the last `BASE` count. An `ENTRY` voids those before it with its index or a greater
//! one, a `BASE` those with its index or a lesser one. So the log says the same when its first segments are
//! gone, if the last `HARD`, `BASE` and `CONFIGURATION` and every entry behind the base are in others.

use pmindex_core::{PmPtr, PmU64, pm_struct};
use pmindex_log::LogRoot;

/// The type of a replica's log in the pool's directory.
pub(crate) const KIND: [u8; 8] = *b"replica ";
/// Version of the layout on this page.
pub(crate) const FORMAT: u64 = 1;

/// Tags of entries.
pub(crate) const ENTRY: u64 = 1;
pub(crate) const MORE: u64 = 2;
pub(crate) const HARD: u64 = 3;
pub(crate) const CONFIGURATION: u64 = 4;
pub(crate) const BASE: u64 = 5;

pm_struct! {
    /// The root block.
    #[align(64)]
    pub struct Root: size 64 {
        /// The log, or null if the creation did not come so far.
        pub log @ 0: PmPtr<LogRoot>,
        /// Zero.
        pub reserved @ 8: [PmU64; 7],
    }
}
