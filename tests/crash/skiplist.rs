//! The skip list: which types, and where its persistence steps are.

use std::panic::Location;

use pmindex_core::Traced;
use pmindex_skiplist::SkipList;
use pmindex_testkit::crash::{CrashIndex, IndexOp, Plan};

fn owns(site: &Location<'static>) -> bool {
    // Removals and replacements of blocks are shared.
    site.file().contains("skiplist/src/") || site.file().ends_with("pm-record/src/commit.rs")
}

fn insert(key: u64) -> IndexOp {
    IndexOp::Insert(key, key + 1)
}

/// Nodes that are split, merged, and unlinked when they are empty; a place that gets another record after a
/// removal; threads in one node and in its neighbours.
fn divided_and_united(keys: u64) -> Vec<Plan<IndexOp>> {
    let all: Vec<IndexOp> = (0..keys).map(insert).collect();
    let backwards: Vec<IndexOp> = (0..keys).rev().map(insert).collect();
    let gone: Vec<IndexOp> = (0..keys).map(IndexOp::Remove).collect();
    let updates: Vec<IndexOp> = (0..keys).map(|key| IndexOp::Update(key, 70 + key)).collect();
    let few: Vec<IndexOp> = (0..keys).filter(|key| key % 5 != 0).map(IndexOp::Remove).collect();
    let alone = |setup: &[IndexOp], run: &[IndexOp], tail: &[IndexOp]| Plan {
        setup: setup.to_vec(),
        threads: vec![run.to_vec()],
        tail: tail.to_vec(),
    };
    let beside = |setup: &[IndexOp], first: Vec<IndexOp>, second: Vec<IndexOp>| Plan {
        setup: setup.to_vec(),
        threads: vec![first, second],
        tail: [all.clone(), updates.clone()].concat(),
    };
    let (start, end) = few.split_at(few.len() / 2);
    vec![
        alone(&[], &all, &few),
        alone(&[], &backwards, &gone),
        alone(&all, &[updates.clone(), few.clone()].concat(), &all),
        alone(&all, &gone, &all),
        alone(&[], &[IndexOp::BulkLoad(keys)], &gone),
        beside(&all, start.to_vec(), end.to_vec()),
        beside(&all[..4], vec![insert(4), insert(5)], vec![IndexOp::Get(4), IndexOp::Remove(0)]),
        beside(
            &[&all[..], start].concat(),
            end.to_vec(),
            // No scan: it is no view of one moment, and here it passes nodes that the other thread changes.
            vec![IndexOp::Update(0, 3), insert(1), IndexOp::Get(keys - 4)],
        ),
    ]
}

/// A skip list with 8-byte keys and values, in nodes of two lines: the seventh record divides a node.
pub(crate) struct SkipListWords;

impl CrashIndex for SkipListWords {
    type Key = u64;
    type Value = u64;
    type Index = SkipList<u64, u64, Traced, 2>;
    const NAME: &'static str = "skiplist";
    const KEYS: u64 = 16;

    fn key(n: u64) -> u64 {
        n // 0, which free places have, included
    }

    fn value(n: u64) -> u64 {
        n % 4 // zero, and equal neighbours
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        divided_and_united(Self::KEYS)
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site)
    }
}

/// A skip list with byte-string keys and values: every record has a block.
pub(crate) struct SkipListBytes;

impl CrashIndex for SkipListBytes {
    type Key = Vec<u8>;
    type Value = Vec<u8>;
    type Index = SkipList<Vec<u8>, Vec<u8>, Traced, 2>;
    const NAME: &'static str = "skiplist-bytes";
    const KEYS: u64 = 16;

    fn key(n: u64) -> Vec<u8> {
        // Their first words agree, and some begin others.
        [&b"a common beginning"[..], &vec![1; n as usize]].concat()
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; n as usize % 40]
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        divided_and_united(Self::KEYS)
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site) || site.file().contains("pm-record/src/")
    }
}
