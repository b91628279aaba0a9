//! Conversions of keys and values that panic in any operation, and power failures afterwards; none runs while a panic
//! unwinds.

use pmindex_cceh::Cceh;
use pmindex_core::Traced;
use pmindex_testkit::Unordered;
use pmindex_testkit::conformance::{Fuse, Simulated};

type Tiny<T> = Unordered<Cceh<T, T, Traced, 3, 2>>;

pmindex_testkit::conformance! {
    cceh: Tiny<Fuse>, keys Fuse, values Fuse,
        on Simulated, groups [panics_and_crashes, unwinding];
    cceh_of_bytes: Tiny<Fuse<Vec<u8>>>, keys Fuse<Vec<u8>>, values Fuse<Vec<u8>>,
        on Simulated, groups [panics_and_crashes, unwinding];
}
