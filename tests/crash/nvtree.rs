//! NV-Tree: which types, and where its persistence steps are.

use std::panic::Location;

use pmindex::core::Traced;
use pmindex::{Key, NvTree, Value};
use pmindex_testkit::crash::{CrashIndex, Fault};

/// Steps of NV-Tree, or of the records in it.
fn owned_by_nvtree(site: &Location<'static>) -> bool {
    site.file().contains("trees/src/nvtree/") || site.file().contains("pm-record/src/")
}

/// A step of NV-Tree's background work.
fn maintain<K: Key, V: Value>(tree: &NvTree<K, V, Traced, 4, 3>) -> Result<(), Fault> {
    tree.maintain()?;
    Ok(())
}

/// NV-Tree with 8-byte keys and values, four slots to a leaf.
pub(crate) struct NvTreeWords;

impl CrashIndex for NvTreeWords {
    type Key = u64;
    type Value = u64;
    type Index = NvTree<u64, u64, Traced, 4, 3>;
    const NAME: &'static str = "nvtree";
    // Few, so that leaves empty.
    const KEYS: u64 = 9;

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> u64 {
        n
    }

    fn background(index: &Self::Index) -> Result<(), Fault> {
        maintain(index)
    }

    fn owns(site: &Location<'static>) -> bool {
        owned_by_nvtree(site)
    }
}

/// NV-Tree with byte-string keys and values: every record has a block.
pub(crate) struct NvTreeBytes;

impl CrashIndex for NvTreeBytes {
    type Key = Vec<u8>;
    type Value = Vec<u8>;
    type Index = NvTree<Vec<u8>, Vec<u8>, Traced, 4, 3>;
    const NAME: &'static str = "nvtree-bytes";
    const KEYS: u64 = 9;

    fn key(n: u64) -> Vec<u8> {
        // A common prefix longer than a word, so that separators have tails.
        [b"predecessor", n.to_be_bytes().as_slice()].concat()
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; n as usize % 40]
    }

    fn background(index: &Self::Index) -> Result<(), Fault> {
        maintain(index)
    }

    fn owns(site: &Location<'static>) -> bool {
        owned_by_nvtree(site)
    }
}

/// NV-Tree with slots wider than a line: the counter follows the record behind a fence.
pub(crate) struct NvTreeWide;

impl CrashIndex for NvTreeWide {
    type Key = [u8; 32];
    type Value = [u8; 32];
    type Index = NvTree<[u8; 32], [u8; 32], Traced, 4, 3>;
    const NAME: &'static str = "nvtree-wide";
    const KEYS: u64 = 9;

    fn key(n: u64) -> [u8; 32] {
        std::array::from_fn(|i| if i == 31 { n as u8 } else { 7 })
    }

    fn value(n: u64) -> [u8; 32] {
        [n as u8; 32]
    }

    fn background(index: &Self::Index) -> Result<(), Fault> {
        maintain(index)
    }

    fn owns(site: &Location<'static>) -> bool {
        // The code that depends on the width of slots.
        site.file().ends_with("trees/src/nvtree/leaf.rs")
    }
}
