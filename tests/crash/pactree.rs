//! PACTree: which types, and where its persistence steps are.

use std::panic::Location;
use std::sync::Arc;

use pmindex_core::{Pool, Traced};
use pmindex_index::{Key, Value};
use pmindex_pactree::PacTree;
use pmindex_testkit::crash::{CrashIndex, Fault, IndexOp, Plan};

use super::shared_pool::take_blocks;

/// Those of the trie and the log are explored with these.
fn owns(site: &Location<'static>) -> bool {
    site.file().contains("pactree/src/")
}

/// A step of the trie, which from now on follows the list by such steps alone.
fn background<K: Key, V: Value>(index: &PacTree<K, V, Traced, 4>) -> Result<(), Fault> {
    index.leave_to_worker();
    index.step().map(drop).map_err(|error| Fault::new(error.to_string()))
}

/// Takes blocks as large as nodes: a node that opening frees, and that was free already, is among them.
fn beside(pool: &Arc<Pool<Traced>>, node: u64) -> Result<Vec<u64>, Fault> {
    Ok(take_blocks(pool, node)?)
}

/// Splits and merges in all orders while the trie is behind by none, one, or all of them: nodes that split
/// before the trie knows them, and merge before it does; and a merge behind a split whose node is gone.
fn plans() -> Vec<Plan<IndexOp>> {
    let inserts = |keys: &[u64]| -> Vec<IndexOp> {
        keys.iter().map(|&key| IndexOp::Insert(key, key + 1)).collect()
    };
    let removals =
        |keys: &[u64]| -> Vec<IndexOp> { keys.iter().map(|&key| IndexOp::Remove(key)).collect() };
    let all: Vec<u64> = (0..14).collect();
    let back: Vec<u64> = (0..14).rev().collect();
    let mut plans = Vec::new();
    for steps in [0, 1, 3] {
        let behind = |ops: Vec<IndexOp>| -> Vec<IndexOp> {
            let mut all = vec![IndexOp::Background];
            for (n, op) in ops.into_iter().enumerate() {
                all.push(op);
                if steps > 0 && n % 4 < steps {
                    all.push(IndexOp::Background);
                }
            }
            all
        };
        plans.push(Plan {
            setup: vec![],
            threads: vec![behind([inserts(&all), removals(&back)].concat())],
            tail: [inserts(&back), vec![IndexOp::Scan(0, 14)]].concat(),
        });
        plans.push(Plan {
            setup: inserts(&back),
            threads: vec![behind([removals(&all), inserts(&back)].concat())],
            tail: removals(&all),
        });
    }
    plans.push(Plan {
        setup: vec![],
        threads: vec![vec![IndexOp::BulkLoad(11)]],
        tail: removals(&all),
    });
    plans.push(Plan {
        setup: vec![IndexOp::BulkRefused(8)],
        threads: vec![inserts(&[0, 1, 2, 3])],
        tail: inserts(&[4, 5, 6, 7]),
    });
    // The anchor moves with splits, then with a merge, whose ticket names it.
    let steps = |steps: usize| vec![IndexOp::Background; steps];
    plans.push(Plan {
        setup: [steps(1), inserts(&all[..4])].concat(),
        threads: vec![[inserts(&all[4..9]), steps(3), removals(&all[..6]), steps(3)].concat()],
        tail: [inserts(&all), removals(&back)].concat(),
    });
    // A split's ticket stays unsettled in its slot, as the trie follows in another one; then the node merges with the
    // new one, or with the one before.
    for (inserted, removed) in [(5, &[3, 4][..]), (5, &[0, 1]), (8, &[0, 1, 2]), (8, &[6, 7])] {
        plans.push(Plan {
            setup: [steps(1), inserts(&all[..inserted])].concat(),
            threads: vec![[vec![IndexOp::Slot(1)], removals(removed), steps(1)].concat()],
            tail: inserts(&all[..8]),
        });
    }
    // Two splits at once: `prev` of the first one's neighbour is durable before the entry of the second.
    plans.push(Plan {
        setup: inserts(&[12, 10, 8, 6, 4, 2, 0, 1, 11, 13]),
        threads: vec![inserts(&[3]), inserts(&[14])],
        tail: removals(&back),
    });
    // A split beside a merge, and readers of both.
    plans.push(Plan {
        setup: [inserts(&[0, 2, 4, 6, 8, 10]), removals(&[0])].concat(),
        threads: vec![
            [inserts(&[9, 7]), vec![IndexOp::Get(8)]].concat(),
            [removals(&[2, 4]), vec![IndexOp::Get(6), IndexOp::Background]].concat(),
        ],
        tail: inserts(&[1, 3, 5]),
    });
    plans
}

/// PACTree with 8-byte keys and values, four to a node.
pub(crate) struct PacTreeWords;

impl CrashIndex for PacTreeWords {
    type Key = u64;
    type Value = u64;
    type Index = PacTree<u64, u64, Traced, 4>;
    const NAME: &'static str = "pactree";
    const KEYS: u64 = 14;

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> u64 {
        n
    }

    fn beside(pool: &Arc<Pool<Traced>>) -> Result<Vec<u64>, Fault> {
        beside(pool, 192)
    }

    fn background(index: &Self::Index) -> Result<(), Fault> {
        background(index)
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        plans()
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site)
    }
}

/// PACTree with byte-string keys and values: every record has a block, and every low key.
pub(crate) struct PacTreeBytes;

impl CrashIndex for PacTreeBytes {
    type Key = Vec<u8>;
    type Value = Vec<u8>;
    type Index = PacTree<Vec<u8>, Vec<u8>, Traced, 4>;
    const NAME: &'static str = "pactree-bytes";
    const KEYS: u64 = 14;

    fn key(n: u64) -> Vec<u8> {
        crate::keys::family(n)
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; n as usize % 40]
    }

    fn beside(pool: &Arc<Pool<Traced>>) -> Result<Vec<u64>, Fault> {
        beside(pool, 192)
    }

    fn background(index: &Self::Index) -> Result<(), Fault> {
        background(index)
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        plans()
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site)
    }
}

/// PACTree with keys and values of two words: an update takes a new slot.
pub(crate) struct PacTreeWide;

impl CrashIndex for PacTreeWide {
    type Key = [u8; 16];
    type Value = (u64, u64);
    type Index = PacTree<[u8; 16], (u64, u64), Traced, 4>;
    const NAME: &'static str = "pactree-wide";
    const KEYS: u64 = 14;

    fn key(n: u64) -> [u8; 16] {
        let mut key = *b"the same 8 bytes";
        key[8..].copy_from_slice(&n.to_be_bytes());
        key
    }

    fn value(n: u64) -> (u64, u64) {
        (n, !n) // a value of which one word is old is not among these
    }

    fn beside(pool: &Arc<Pool<Traced>>) -> Result<Vec<u64>, Fault> {
        beside(pool, 256)
    }

    fn background(index: &Self::Index) -> Result<(), Fault> {
        background(index)
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        plans()
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site)
    }
}
