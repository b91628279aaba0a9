//! Conversions of keys and values that panic in any operation, and power failures afterwards; none runs while a panic
//! unwinds.

use pmindex_core::Traced;
use pmindex_sptree::SpTree;
use pmindex_testkit::conformance::{Fuse, Simulated};

// Records of byte strings have no buffer.
pmindex_testkit::conformance! {
    sptree: SpTree<Fuse, Fuse, Traced, 4>, keys Fuse, values Fuse,
        on Simulated, groups [panics_and_crashes, unwinding];
    sptree_of_bytes: SpTree<Fuse<Vec<u8>>, Fuse<Vec<u8>>, Traced, 4>, keys Fuse<Vec<u8>>, values Fuse<Vec<u8>>,
        on Simulated, groups [panics_and_crashes, unwinding];
    buffered: SpTree<Fuse, Fuse, Traced, 4, 3>, keys Fuse, values Fuse,
        on Simulated, groups [panics_and_crashes, unwinding];
}
