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
    // Few, so that leaves empty.
    const KEYS: u64 = 9;

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

/// FPTree with byte-string keys and values: every record has a block.
pub(crate) struct FpTreeBytes;

impl CrashIndex for FpTreeBytes {
    type Key = Vec<u8>;
    type Value = Vec<u8>;
    type Index = FpTree<Vec<u8>, Vec<u8>, Traced, 4, 4>;
    const NAME: &'static str = "fptree-bytes";
    const KEYS: u64 = 9;

    fn key(n: u64) -> Vec<u8> {
        // A common prefix longer than a word, so that separators have tails.
        [b"fingerprint", n.to_be_bytes().as_slice()].concat()
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; n as usize % 40]
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("trees/src/fptree/") || site.file().contains("pm-record/src/")
    }
}

/// FPTree with byte-string values: an update swings a pointer.
pub(crate) struct FpTreeValues;

impl CrashIndex for FpTreeValues {
    type Key = u64;
    type Value = Vec<u8>;
    type Index = FpTree<u64, Vec<u8>, Traced, 4, 4>;
    const NAME: &'static str = "fptree-values";
    const KEYS: u64 = 9;

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; n as usize % 40]
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("trees/src/fptree/") || site.file().contains("pm-record/src/")
    }
}
