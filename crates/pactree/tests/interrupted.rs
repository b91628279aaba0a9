//! Conversions of keys and values that panic in any operation, and power failures afterwards; none runs while a panic
//! unwinds.

use pmindex_core::Traced;
use pmindex_pactree::PacTree;
use pmindex_testkit::conformance::{Fuse, Simulated};

pmindex_testkit::conformance! {
    pactree: PacTree<Fuse, Fuse, Traced, 4>, keys Fuse, values Fuse,
        on Simulated, groups [panics_and_crashes, unwinding];
    pactree_of_bytes: PacTree<Fuse<Vec<u8>>, Fuse<Vec<u8>>, Traced, 4>, keys Fuse<Vec<u8>>, values Fuse<Vec<u8>>,
        on Simulated, groups [panics_and_crashes, unwinding];
}
