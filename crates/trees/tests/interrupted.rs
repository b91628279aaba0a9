//! Conversions of keys and values that panic in any operation, and power failures afterwards; none runs while a panic
//! unwinds.

use pmindex_core::Traced;
use pmindex_testkit::conformance::{Fuse, Simulated};
use pmindex_trees::{FpTree, SharedWbTree};

pmindex_testkit::conformance! {
    fptree: FpTree<Fuse, Fuse, Traced, 4, 3>, keys Fuse, values Fuse,
        on Simulated, groups [panics_and_crashes, unwinding];
    fptree_of_bytes: FpTree<Fuse<Vec<u8>>, Fuse<Vec<u8>>, Traced, 4, 3>, keys Fuse<Vec<u8>>, values Fuse<Vec<u8>>,
        on Simulated, groups [panics_and_crashes, unwinding];
    wbtree: SharedWbTree<Fuse, Fuse, Traced, 4, 3>, keys Fuse, values Fuse,
        on Simulated, groups [panics_and_crashes, unwinding];
}
