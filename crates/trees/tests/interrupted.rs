//! Conversions of keys and values that panic in any operation, and power failures afterwards.

use pmindex_core::Traced;
use pmindex_testkit::conformance::{Fuse, Simulated};
use pmindex_trees::SharedWbTree;

pmindex_testkit::conformance! {
    wbtree: SharedWbTree<Fuse, Fuse, Traced, 4, 3>, keys Fuse, values Fuse,
        on Simulated, groups [panics_and_crashes];
}
