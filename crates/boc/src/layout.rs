//! The layout of a buffered index with a log in a pool, besides the index itself.
//!
//! The directory has two entries: `NAME` leads to the root below, `NAME.base` to the index. An entry of the
//! log is one write: tag 1 with a key and a value, or tag 2 with the removed key. All writes of a key are in
//! the same lane. The log's anchor is the first sequence of segments whose entries the index may lack; its
//! first note is a hash of the anchor, without which the anchor counts as 0.

use pmindex_core::{PmPtr, PmU64, pm_struct};
use pmindex_log::LogRoot;

/// The type of an index in the pool's directory.
pub(crate) const KIND: [u8; 8] = *b"buffered";
/// The layout on this page.
pub(crate) const LAYOUT: u64 = 1;

pm_struct! {
    /// The root block.
    ///
    /// ```text
    /// 0     8
    /// | log | reserved |
    /// ```
    #[align(64)]
    pub struct Root: size 64 {
        /// The log; null only while the index is being created.
        pub log @ 0: PmPtr<LogRoot>,
        /// Zero.
        pub reserved: [PmU64; 7],
    }
}
