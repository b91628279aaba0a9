//! SPTree: which types, and where its persistence steps are.

use std::panic::Location;

use pmindex::SpTree;
use pmindex::core::Traced;
use pmindex_testkit::crash::{CrashIndex, IndexOp, Plan};

/// Those of the log are in a crate of its own. The steps of the backup are FAST&FAIR's, which is explored by
/// itself. The fence behind the clearing
/// of ghosts matters to other threads than the one that recovers, and those write here only after it:
/// a test of the crate counts it.
pub(crate) fn owns(site: &Location<'static>) -> bool {
    let ours = ["sptree/src/", "pm-log/src/"].iter().any(|path| site.file().contains(path));
    ours && !site.file().ends_with("/ghosts.rs")
}

/// A load was refused, and it is another thread than the one that discarded it that writes: its fences
/// are not the first one's.
///
/// An insert whose record is lost; and the next write of its Bnode is a merge, which puts a record into
/// that slot.
pub(crate) fn plans() -> Vec<Plan<IndexOp>> {
    fn inserts<const N: usize>(keys: [u64; N]) -> Vec<IndexOp> {
        keys.map(|key| IndexOp::Insert(key, key + 1)).to_vec()
    }
    let refused = Plan {
        setup: vec![IndexOp::BulkRefused(8)],
        threads: vec![vec![IndexOp::Get(0)], inserts([0, 1, 2, 3])],
        tail: inserts([4, 5, 6, 7]),
    };
    let mut setup = inserts([0, 2, 4, 7, 8]);
    setup.push(IndexOp::Remove(0));
    let lost = Plan { setup, threads: vec![inserts([1])], tail: vec![IndexOp::Remove(8)] };
    vec![refused, lost]
}

/// SPTree with 8-byte keys and values, four to a Bnode.
pub(crate) struct SpTreeWords;

impl CrashIndex for SpTreeWords {
    type Key = u64;
    type Value = u64;
    type Index = SpTree<u64, u64, Traced, 4>;
    const NAME: &'static str = "sptree";
    // Few, so that Bnodes merge.
    const KEYS: u64 = 9;

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> u64 {
        n
    }

    /// That an insert cut short is ended before the first write shows where that is an update out of
    /// place: of wide values. Here it matters to other threads only, as the clearing of ghosts.
    fn owns(site: &Location<'static>) -> bool {
        owns(site) && !site.file().ends_with("/unfinished.rs")
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        plans()
    }
}

/// SPTree with byte-string keys and values: every record has a block, and every low key.
pub(crate) struct SpTreeBytes;

impl CrashIndex for SpTreeBytes {
    type Key = Vec<u8>;
    type Value = Vec<u8>;
    type Index = SpTree<Vec<u8>, Vec<u8>, Traced, 4>;
    const NAME: &'static str = "sptree-bytes";
    const KEYS: u64 = 9;

    fn key(n: u64) -> Vec<u8> {
        crate::keys::family(n)
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; n as usize % 40]
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site) || site.file().contains("pm-record/src/")
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        plans()
    }
}

/// SPTree with keys and values of two words: low keys have tails, an update takes a new slot.
pub(crate) struct SpTreeWide;

impl CrashIndex for SpTreeWide {
    type Key = [u8; 16];
    type Value = (u64, u64);
    type Index = SpTree<[u8; 16], (u64, u64), Traced, 4>;
    const NAME: &'static str = "sptree-wide";
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
        owns(site)
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        plans()
    }
}
