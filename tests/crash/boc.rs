//! Buffers over CCEH and FAST&FAIR, with a log: which types, and where their persistence steps are.

use std::panic::Location;

use pmindex::FastFair;
use pmindex_boc::{Buffered, ByHash, ByKey};
use pmindex_cceh::Cceh;
use pmindex_core::Traced;

use pmindex_testkit::Unordered;
use pmindex_testkit::crash::{CrashIndex, IndexOp, Plan};

/// Those of the log and the indexes are explored with these.
fn owns(site: &Location<'static>) -> bool {
    site.file().contains("boc/src/")
}

/// Buffers that go to the index, keys that are in several entries of the log, and openings, which end these.
fn plans() -> Vec<Plan<IndexOp>> {
    let inserts: Vec<IndexOp> = (0..9).map(|key| IndexOp::Insert(key, key + 1)).collect();
    let again: Vec<IndexOp> = (0..9)
        .flat_map(|key| {
            [IndexOp::Update(key, 20 + key), IndexOp::Remove(key), IndexOp::Upsert(key, 41)]
        })
        .collect();
    // Records 0, 1 and 4 share a lane of the log and, while these are all, a buffer. The entry of record 0 is in
    // the first segment; the insert of record 4 writes the buffer to the index, which frees that segment.
    let updates = (2..26).map(|value| IndexOp::Upsert(1, value));
    let full = std::iter::once(IndexOp::Insert(0, 1)).chain(updates).collect();
    let reopened = |ops: &[IndexOp]| [ops, &[IndexOp::Reopen]].concat();
    vec![
        Plan {
            setup: vec![],
            threads: vec![[inserts.clone(), again.clone()].concat()],
            tail: inserts.clone(),
        },
        Plan { setup: inserts.clone(), threads: vec![reopened(&again[..9])], tail: again.clone() },
        Plan {
            setup: inserts.clone(),
            threads: vec![again[..6].to_vec(), [&again[6..12], &[IndexOp::Get(1)]].concat()],
            tail: reopened(&inserts),
        },
        Plan {
            setup: full,
            threads: vec![vec![IndexOp::Insert(4, 1), IndexOp::Upsert(1, 40)]],
            tail: again,
        },
    ]
}

/// Buffers of two records over segments of two lines.
pub(crate) struct BufferedCceh;

impl CrashIndex for BufferedCceh {
    type Key = u64;
    type Value = u64;
    type Index = Unordered<Buffered<ByHash<Cceh<u64, u64, Traced, 2, 2>>, Traced, true, 2>>;
    const NAME: &'static str = "buffered-cceh";

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> u64 {
        n
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        plans()
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site)
    }
}

/// Buffers of two records over leaves of four.
pub(crate) struct BufferedFastFair;

impl CrashIndex for BufferedFastFair {
    type Key = u64;
    type Value = u64;
    type Index = Buffered<ByKey<FastFair<u64, u64, Traced, 4, 4>>, Traced, true, 2>;
    const NAME: &'static str = "buffered-fastfair";

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> u64 {
        n
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        plans()
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site)
    }
}
