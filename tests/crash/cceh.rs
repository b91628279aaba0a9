//! CCEH: which types, and where its persistence steps are.

use std::panic::Location;

use pmindex_cceh::Cceh;
use pmindex_core::Traced;
use pmindex_testkit::Unordered;
use pmindex_testkit::crash::{CrashIndex, IndexOp, Plan};

fn owns(site: &Location<'static>) -> bool {
    // Removals and replacements of blocks are shared.
    site.file().contains("cceh/src/") || site.file().ends_with("pm-record/src/commit.rs")
}

fn insert(key: u64) -> IndexOp {
    IndexOp::Insert(key, key + 1)
}

/// Segments that split and merge again and again, with the values of some records replaced in between:
/// a dead pair that came back to life would show an old one.
fn split_and_merged() -> Vec<Plan<IndexOp>> {
    let all: Vec<IndexOp> = (0..20).map(insert).collect();
    let updates: Vec<IndexOp> = (0..20).map(|key| IndexOp::Update(key, 70 + key)).collect();
    let removals = |step| (0..20).filter(move |key| key % step != 0).map(IndexOp::Remove);
    let setup = [all.clone(), updates].concat();
    let few: Vec<IndexOp> = removals(5).collect();
    let alone = Plan { setup: setup.clone(), threads: vec![few.clone()], tail: all.clone() };
    let beside = |other: Vec<IndexOp>| Plan {
        setup: [setup.clone(), few[..10].to_vec()].concat(),
        threads: vec![few[10..].to_vec(), other],
        tail: all.clone(),
    };
    vec![
        alone,
        Plan { setup: Vec::new(), threads: vec![all.clone()], tail: few.clone() },
        beside((0..20).step_by(5).map(IndexOp::Get).collect()),
        beside(vec![IndexOp::Update(0, 3), IndexOp::Remove(5), insert(5), IndexOp::Get(10)]),
        beside((30..36).map(insert).collect()),
    ]
}

/// CCEH with 8-byte keys and values, in segments of two lines, in both of which a record may be: the ninth
/// record of a segment splits it.
pub(crate) struct CcehWords;

impl CrashIndex for CcehWords {
    type Key = u64;
    type Value = u64;
    type Index = Unordered<Cceh<u64, u64, Traced, 2, 2>>;
    const NAME: &'static str = "cceh";
    const KEYS: u64 = 36;

    fn key(n: u64) -> u64 {
        n // 0 and 2, which free places have, included
    }

    fn value(n: u64) -> u64 {
        n % 4 // zero, and equal neighbours
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        split_and_merged()
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site)
    }
}

/// CCEH with byte-string keys and values: every record has a block.
pub(crate) struct CcehBytes;

impl CrashIndex for CcehBytes {
    type Key = Vec<u8>;
    type Value = Vec<u8>;
    type Index = Unordered<Cceh<Vec<u8>, Vec<u8>, Traced, 2, 2>>;
    const NAME: &'static str = "cceh-bytes";
    const KEYS: u64 = 36;

    fn key(n: u64) -> Vec<u8> {
        n.to_be_bytes().to_vec()
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; n as usize % 40]
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        split_and_merged()
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site) || site.file().contains("pm-record/src/")
    }
}
