//! The trees: which types, and where their persistence steps are.

use std::panic::Location;

use pmindex::FpTree;
use pmindex::core::Traced;
use pmindex_testkit::crash::CrashIndex;

/// FPTree with 8-byte keys and values, four to a leaf.
pub(crate) struct FpTreeWords;

impl CrashIndex for FpTreeWords {
    type Key = u64;
    type Value = u64;
    type Index = FpTree<u64, u64, Traced, 4, 4>;
    const NAME: &'static str = "fptree";

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> u64 {
        n
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("trees/src/fptree/")
    }
}
