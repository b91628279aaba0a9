//! Conversions of keys and values that panic in any operation, and power failures afterwards; none runs while a panic
//! unwinds.

use pmindex_core::Traced;
use pmindex_skiplist::SkipList;
use pmindex_testkit::conformance::{Fuse, Simulated};

pmindex_testkit::conformance! {
    skiplist: SkipList<Fuse, Fuse, Traced, 2>, keys Fuse, values Fuse,
        on Simulated, groups [panics_and_crashes, unwinding];
    skiplist_of_bytes: SkipList<Fuse<Vec<u8>>, Fuse<Vec<u8>>, Traced, 2>, keys Fuse<Vec<u8>>, values Fuse<Vec<u8>>,
        on Simulated, groups [panics_and_crashes, unwinding];
}
