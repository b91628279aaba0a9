//! The trees: which types, and where their persistence steps are.

use std::panic::Location;

use pmindex::core::{PoolOptions, Traced};
use pmindex::{BzTree, FpTree};
use pmindex_record::RedoLog;
use pmindex_testkit::crash::{CrashIndex, Fault, IndexOp, Plan};

use crate::replacing;

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
        crate::keys::family(n)
    }

    fn value(n: u64) -> Vec<u8> {
        // Few lengths, so that values are replaced in place; the longest has an entry of two lines in the redo log.
        vec![n as u8; n as usize % 3 * 32]
    }

    fn background(_: &Self::Index) -> Result<(), Fault> {
        RedoLog::prefer(1);
        Ok(())
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        replacing::plans()
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("trees/src/fptree/") || site.file().contains("pm-record/src/")
    }
}

/// FPTree with byte-string values: an update swings a pointer, or replaces the value in place.
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
        // Few lengths, so that values are replaced in place; the longest has an entry of two lines in the redo log.
        vec![n as u8; n as usize % 3 * 32]
    }

    fn background(_: &Self::Index) -> Result<(), Fault> {
        RedoLog::prefer(1);
        Ok(())
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        replacing::plans()
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("trees/src/fptree/") || site.file().contains("pm-record/src/")
    }
}

/// A pool with room for the descriptors and for the old nodes that they own for a while.
fn room_for_descriptors() -> PoolOptions {
    PoolOptions::new().size(192 << 10).zone_bytes(64 << 10).slots(4).slot_bytes(1024)
}

/// Closing makes some words durable for convenience, which no crash state needs; that is tested separately.
fn owns_bztree(site: &Location<'static>) -> bool {
    site.file().contains("trees/src/bztree/") && !site.file().ends_with("/shutdown.rs")
}

/// BzTree with 8-byte keys and values, four sorted and two later ones to a leaf. Every second value is
/// too large to change in place.
pub(crate) struct BzTreeWords;

impl CrashIndex for BzTreeWords {
    type Key = u64;
    type Value = u64;
    type Index = BzTree<u64, u64, Traced, 4, 3>;
    const NAME: &'static str = "bztree";
    // Few, so that leaves merge.
    const KEYS: u64 = 12;

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> u64 {
        n | (n & 1).wrapping_neg() << 59 // half of them too large to change in place
    }

    fn options() -> PoolOptions {
        room_for_descriptors()
    }

    fn owns(site: &Location<'static>) -> bool {
        owns_bztree(site)
    }
}

/// BzTree with byte-string keys and values: some records in the leaf, some out of line.
pub(crate) struct BzTreeBytes;

impl CrashIndex for BzTreeBytes {
    type Key = Vec<u8>;
    type Value = Vec<u8>;
    type Index = BzTree<Vec<u8>, Vec<u8>, Traced, 4, 3>;
    const NAME: &'static str = "bztree-bytes";
    const KEYS: u64 = 12;

    fn key(n: u64) -> Vec<u8> {
        crate::keys::family(n)
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; n as usize % 16]
    }

    fn options() -> PoolOptions {
        room_for_descriptors()
    }

    fn owns(site: &Location<'static>) -> bool {
        owns_bztree(site) || site.file().contains("pm-record/src/")
    }
}

/// BzTree with byte-string values: an update out of line swings a pointer.
pub(crate) struct BzTreeValues;

impl CrashIndex for BzTreeValues {
    type Key = u64;
    type Value = Vec<u8>;
    type Index = BzTree<u64, Vec<u8>, Traced, 4, 3>;
    const NAME: &'static str = "bztree-values";
    const KEYS: u64 = 12;

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; n as usize % 60]
    }

    fn options() -> PoolOptions {
        room_for_descriptors()
    }

    fn owns(site: &Location<'static>) -> bool {
        owns_bztree(site) || site.file().contains("pm-record/src/")
    }
}

/// FPTree with keys and values of two words: separators have tails, an update takes a new slot.
pub(crate) struct FpTreeWide;

impl CrashIndex for FpTreeWide {
    type Key = [u8; 16];
    type Value = (u64, u64);
    type Index = FpTree<[u8; 16], (u64, u64), Traced, 4, 4>;
    const NAME: &'static str = "fptree-wide";
    const KEYS: u64 = 9;

    fn key(n: u64) -> [u8; 16] {
        let mut key = *b"the same 8 bytes";
        key[8..].copy_from_slice(&n.to_be_bytes());
        key
    }

    fn value(n: u64) -> (u64, u64) {
        (n, !n) // not among these: a value with one old word
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("trees/src/fptree/")
    }
}
