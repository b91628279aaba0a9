//! FAST&FAIR: which types, and where its persistence steps are.

use std::panic::Location;

use pmindex::FastFair;
use pmindex::core::Traced;
use pmindex_testkit::crash::{CrashIndex, Fault, IndexOp, Plan};

/// The steps of the index, without those that a test's interruption takes.
fn owns(site: &Location<'static>) -> bool {
    let own = site.file().contains("fastfair/src/") && !site.file().ends_with("/interrupt.rs");
    own || site.file().ends_with("pm-record/src/commit.rs") // removals are shared
}

/// A load that is refused on one thread, and an insert on another: it must not be lost because the
/// first one's mark is still durable.
fn refused_beside_an_insert(keys: u64) -> Plan<IndexOp> {
    Plan {
        setup: Vec::new(),
        threads: vec![vec![IndexOp::BulkRefused(keys - 1)], vec![IndexOp::Insert(0, 9)]],
        tail: vec![IndexOp::Get(0); 8],
    }
}

/// Blocks of one size.
fn insert(key: u64) -> IndexOp {
    IndexOp::Insert(key, 8)
}

/// A split; before its thread continues, another one empties the new leaf and frees it. The old leaf then has
/// its former range, in which a moved record that it still contains would reappear.
fn split_beside_an_unlink() -> Vec<Plan<IndexOp>> {
    let plan = Plan {
        setup: [0, 2, 4, 6].map(insert).to_vec(),
        threads: vec![vec![insert(8)], vec![IndexOp::Remove(6)]],
        tail: vec![IndexOp::Get(6); 8],
    };
    vec![plan; 12] // a rare schedule
}

/// A split; after a crash during it, the block of a moved record is reused for a key of a leaf further left,
/// which splits: an entry of the old leaf that still pointed to the block would take its key from it.
fn split_before_reuse() -> Plan<IndexOp> {
    let pairs = [80, 90, 80, 90].into_iter().zip([35, 35, 22, 22]);
    Plan {
        setup: [20, 40, 60, 80, 30, 25, 70, 90].map(insert).to_vec(),
        // Enough operations that not every store is a crash point: the end of the split is one.
        threads: vec![[vec![insert(75)], vec![IndexOp::Get(1); 4]].concat()],
        tail: pairs.flat_map(|(moved, left)| [IndexOp::Remove(moved), insert(left)]).collect(),
    }
}

/// Leaves of three records each but the last; a removal merges the second and the third, while another
/// thread writes and reads there. Then both their ranges are used.
fn merged_beside_others() -> Vec<Plan<IndexOp>> {
    let removals = [4, 7].map(IndexOp::Remove);
    let setup: Vec<IndexOp> = (0..9).map(insert).chain(removals).collect();
    let tail = [
        vec![IndexOp::Scan(0, 9), IndexOp::Get(6), insert(5), insert(7), insert(4)],
        [3, 6, 8].map(|key| IndexOp::Update(key, 3)).to_vec(),
        [6, 5, 3, 8].map(IndexOp::Remove).to_vec(),
        vec![insert(6), IndexOp::Scan(2, 9)],
    ]
    .concat();
    let others = [
        vec![IndexOp::Get(6); 6],
        vec![IndexOp::Remove(6), IndexOp::Get(3), insert(6)],
        vec![insert(7), IndexOp::Get(8), IndexOp::Update(3, 2)],
        vec![IndexOp::Update(8, 1), IndexOp::Remove(3)],
    ];
    let beside = |other: Vec<IndexOp>| Plan {
        setup: setup.clone(),
        threads: vec![vec![IndexOp::Remove(5)], other],
        tail: tail.clone(),
    };
    let alone = Plan {
        setup: setup.clone(),
        threads: vec![vec![IndexOp::Remove(5), IndexOp::Get(6)]],
        tail: tail.clone(),
    };
    [alone].into_iter().chain(others.map(beside)).collect()
}

/// A leaf with a transient duplicate on its second line. A thread that has emptied the next leaf repairs it,
/// finds the next leaf no longer empty, and executes no further fence; then another thread removes the
/// record.
fn repaired_beside_a_removal() -> Vec<Plan<IndexOp>> {
    let mut setup = [4, 5, 6, 7, 8].map(insert).to_vec();
    setup.extend([4, 6, 8].map(IndexOp::Remove)); // 5 is alone at the end of a line
    setup.push(IndexOp::Background);
    let mut other = vec![insert(8)];
    other.extend(vec![IndexOp::Get(1); 12]); // during the repair
    other.push(IndexOp::Remove(5));
    let plan = Plan {
        setup,
        threads: vec![vec![IndexOp::Remove(7)], other],
        tail: vec![IndexOp::Get(5); 8],
    };
    vec![plan; 12] // a rare schedule
}

/// The leaf of the keys 3 to 6 splits while there is no room to make the new leaf known, and so does its left half.
fn split_twice_without_room() -> Plan<IndexOp> {
    let splits = [IndexOp::Background, IndexOp::Background];
    Plan {
        setup: (0..7).map(insert).chain(splits).collect(),
        threads: vec![[4, 6, 5].map(|key| IndexOp::Update(key, 3)).to_vec()],
        tail: vec![IndexOp::Remove(6), insert(6), insert(8), IndexOp::Scan(0, 9)],
    }
}

/// FAST&FAIR with 8-byte keys and values, four to a leaf of two lines: shifts cross lines.
pub(crate) struct FastFairWords;

impl CrashIndex for FastFairWords {
    type Key = u64;
    type Value = u64;
    type Index = FastFair<u64, u64, Traced, 4, 3>;
    const NAME: &'static str = "fastfair";
    const KEYS: u64 = 9;

    fn key(n: u64) -> u64 {
        n // the key 0 included
    }

    fn value(n: u64) -> u64 {
        n % 4 // zero, and equal neighbours
    }

    fn background(index: &Self::Index) -> Result<(), Fault> {
        Ok(index.interrupt(&(Self::KEYS / 2))?)
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        let mut plans = vec![refused_beside_an_insert(Self::KEYS), split_twice_without_room()];
        plans.extend(split_beside_an_unlink());
        plans.extend(merged_beside_others());
        plans
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site)
    }
}

/// FAST&FAIR with byte-string keys and values: every record has a block, every leaf a low.
pub(crate) struct FastFairBytes;

impl CrashIndex for FastFairBytes {
    type Key = Vec<u8>;
    type Value = Vec<u8>;
    type Index = FastFair<Vec<u8>, Vec<u8>, Traced, 4, 3>;
    const NAME: &'static str = "fastfair-bytes";
    const KEYS: u64 = 9;

    fn key(n: u64) -> Vec<u8> {
        // A common prefix longer than a word, so that separators have blocks that count.
        [b"transient", n.to_be_bytes().as_slice()].concat()
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; n as usize % 40]
    }

    fn background(index: &Self::Index) -> Result<(), Fault> {
        Ok(index.interrupt(&Self::key(Self::KEYS / 2))?)
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        let mut plans = vec![
            refused_beside_an_insert(Self::KEYS),
            split_before_reuse(),
            split_twice_without_room(),
        ];
        plans.extend(repaired_beside_a_removal());
        plans.extend(merged_beside_others());
        plans
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site) || site.file().contains("pm-record/src/")
    }
}
