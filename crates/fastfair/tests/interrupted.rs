//! Conversions of keys and values that panic in any operation, and power failures afterwards; none runs while a panic
//! unwinds.

use pmindex_core::Traced;
use pmindex_fastfair::FastFair;
use pmindex_testkit::conformance::{Fuse, Simulated};

pmindex_testkit::conformance! {
    fastfair: FastFair<Fuse, Fuse, Traced, 4, 3>, keys Fuse, values Fuse,
        on Simulated, groups [panics_and_crashes, unwinding];
    fastfair_of_bytes: FastFair<Fuse<Vec<u8>>, Fuse<Vec<u8>>, Traced, 4, 3>, keys Fuse<Vec<u8>>, values Fuse<Vec<u8>>,
        on Simulated, groups [panics_and_crashes, unwinding];
}
