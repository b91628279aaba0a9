//! Conversions of keys and values that panic in any operation, and power failures afterwards; none runs while a panic
//! unwinds.

use pmindex_core::Traced;
use pmindex_testkit::conformance::{Fuse, Simulated};
use pmindex_woart::{ArtCow, Woart};

pmindex_testkit::conformance! {
    woart: Woart<Fuse, Fuse, Traced>, keys Fuse, values Fuse,
        on Simulated, groups [panics_and_crashes, unwinding];
    woart_of_bytes: Woart<Fuse<Vec<u8>>, Fuse<Vec<u8>>, Traced>, keys Fuse<Vec<u8>>, values Fuse<Vec<u8>>,
        on Simulated, groups [panics_and_crashes, unwinding];
    copied: ArtCow<Fuse<Vec<u8>>, Fuse<Vec<u8>>, Traced>, keys Fuse<Vec<u8>>, values Fuse<Vec<u8>>,
        on Simulated, groups [panics_and_crashes, unwinding];
}
