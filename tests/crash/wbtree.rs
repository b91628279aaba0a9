//! wBTree: which types, and where its persistence steps are.

use std::panic::Location;

use pmindex::SharedWbTree;
use pmindex::core::Traced;
use pmindex_testkit::crash::CrashIndex;

/// wBTree with 8-byte keys and values, three to a leaf; and four leaves to a node, because one of three
/// has no room to replace an entry while tickets of a split name it.
pub(crate) struct WbTreeWords;

impl CrashIndex for WbTreeWords {
    type Key = u64;
    type Value = u64;
    type Index = SharedWbTree<u64, u64, Traced, 3, 4>;
    const NAME: &'static str = "wbtree";
    // Few, so that leaves empty; enough for two levels of inner nodes.
    const KEYS: u64 = 16;

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> u64 {
        n
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("trees/src/wbtree/")
    }
}

/// wBTree with byte-string keys and values: records and separators have blocks.
pub(crate) struct WbTreeBytes;

impl CrashIndex for WbTreeBytes {
    type Key = Vec<u8>;
    type Value = Vec<u8>;
    type Index = SharedWbTree<Vec<u8>, Vec<u8>, Traced, 4, 3>;
    const NAME: &'static str = "wbtree-bytes";
    const KEYS: u64 = 13;

    fn key(n: u64) -> Vec<u8> {
        crate::keys::family(n)
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; n as usize % 40]
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("trees/src/wbtree/") || site.file().contains("pm-record/src/")
    }
}

/// wBTree with values of two words: an update goes through the redo log, an insert takes two fences.
pub(crate) struct WbTreeValues;

impl CrashIndex for WbTreeValues {
    type Key = u64;
    type Value = u128;
    type Index = SharedWbTree<u64, u128, Traced, 4, 5>;
    const NAME: &'static str = "wbtree-values";
    const KEYS: u64 = 20;

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> u128 {
        u128::from(n) << 64 | u128::from(n)
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("trees/src/wbtree/")
    }
}
