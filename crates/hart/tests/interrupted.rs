//! Conversions of keys and values that panic in any operation, and power failures afterwards; none runs while a panic
//! unwinds.

use pmindex_core::Traced;
use pmindex_hart::Hart;
use pmindex_testkit::conformance::{Fuse, Simulated};

pmindex_testkit::conformance! {
    hart: Hart<Fuse, Fuse, Traced, 4, 1>, keys Fuse, values Fuse,
        on Simulated, groups [panics_and_crashes, unwinding];
}
