//! What an SPTree keeps in a pool.
//!
//! One root block per index, named in the pool's directory.

use pmindex_core::{PmPtr, PmU64, pm_struct};

pm_struct! {
    /// The root block.
    ///
    /// ```text
    /// 0       8           16       24     32
    /// | head  | bulk load | backup | log  | reserved |
    /// ```
    #[align(64)]
    pub struct Root: size 64 {
        /// The first Bnode; never null, never freed.
        pub head @ 0: PmPtr<PmU64>,
        /// Not 0 while a bulk load is under way: whatever hangs off the head is not in the index.
        pub bulk_load @ 8: PmU64,
        /// The root of the radix tree's backup.
        pub backup @ 16: PmPtr<pmindex_fastfair::Root>,
        /// The structured log, or null.
        pub log @ 24: PmPtr<PmU64>,
        /// Zero.
        pub reserved: [PmU64; 4],
    }
}
