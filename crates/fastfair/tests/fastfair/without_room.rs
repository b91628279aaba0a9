//! Emptied leaves that are given back where there is no room for inner nodes, and a clean shutdown after a change that there
//! was no room for.

use std::panic::Location;

use pmindex_core::Traced;
use pmindex_fastfair::FastFair;
use pmindex_testkit::crash::{Config, CrashIndex, Explorer, Fault, IndexOp, IndexSubject, Plan};

/// Four records to a leaf, four children to a node.
struct Words;

impl CrashIndex for Words {
    type Key = u64;
    type Value = u64;
    type Index = FastFair<u64, u64, Traced, 4, 3>;
    const NAME: &'static str = "fastfair";

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> u64 {
        n
    }

    fn background(index: &Self::Index) -> Result<(), Fault> {
        index.refuse_room();
        Ok(())
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("fastfair/src/")
    }
}

/// The same with lows and separators out of line, of which some begin with the same word and some do not.
struct Bytes;

impl CrashIndex for Bytes {
    type Key = Vec<u8>;
    type Value = u64;
    type Index = FastFair<Vec<u8>, u64, Traced, 4, 3>;
    const NAME: &'static str = "fastfair-bytes";

    fn key(n: u64) -> Vec<u8> {
        [&(n / 8).to_be_bytes(), b"tail".as_slice(), &n.to_be_bytes()].concat()
    }

    fn value(n: u64) -> u64 {
        n
    }

    fn background(index: &Self::Index) -> Result<(), Fault> {
        index.refuse_room();
        Ok(())
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("fastfair/src/")
    }
}

fn insert(key: u64) -> IndexOp {
    IndexOp::Insert(key, key + 1)
}

/// Leaves of two or three records; some are emptied, one after the other, and their ranges are used again.
fn emptied(removed: impl Iterator<Item = u64>, used: [u64; 3]) -> Plan<IndexOp> {
    let setup: Vec<IndexOp> = (0..26).map(|n| insert(n * 7 % 26 * 2)).collect();
    let removals = removed.map(|n| IndexOp::Remove(n * 2));
    let mut ops: Vec<IndexOp> = std::iter::once(IndexOp::Background).chain(removals).collect();
    ops.extend([IndexOp::Scan(0, 30), IndexOp::Get(20), IndexOp::Get(24)]);
    let mut tail: Vec<IndexOp> = used.iter().flat_map(|&n| n * 2..n * 2 + 9).map(insert).collect();
    tail.extend(used.map(|n| IndexOp::Remove(n * 2 + 1)));
    tail.push(IndexOp::Scan(0, 60));
    Plan { setup, threads: vec![ops], tail }
}

/// The same; what is left is removed after the crash, when there is no more room than before.
fn emptied_twice(removed: impl Iterator<Item = u64>) -> Plan<IndexOp> {
    let rest = (0..26).map(|n| IndexOp::Remove(n * 2));
    let tail = std::iter::once(IndexOp::Background).chain(rest).collect();
    Plan { tail, ..emptied(removed, [0; 3]) }
}

fn explored<I: CrashIndex>() {
    let mut explorer = Explorer::<IndexSubject<I>>::new(Config::new().states(3000));
    let plans = [
        emptied(4..16, [3, 8, 14]),
        emptied((4..20).rev(), [2, 9, 16]),
        emptied((0..13).map(|n| n * 5 % 13 + 6), [5, 11, 17]),
        emptied(14..26, [13, 18, 24]),
        emptied_twice(4..16),
        emptied_twice((4..20).rev()),
    ];
    for (seed, plan) in (1..).zip(&plans) {
        if let Err(failure) = explorer.explore(plan, seed) {
            panic!("{failure}");
        }
    }
    assert!(explorer.report().states > 100, "hardly anything explored");
}

#[test]
fn words_are_given_back() {
    explored::<Words>();
}

#[test]
fn byte_strings_are_given_back() {
    explored::<Bytes>();
}

/// The same as [`Words`]; a step of background work leaves the leaf of the key 2 as a split does that there was no room for.
struct Doubted;

impl CrashIndex for Doubted {
    type Key = u64;
    type Value = u64;
    type Index = FastFair<u64, u64, Traced, 4, 3>;
    const NAME: &'static str = "fastfair";

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> u64 {
        n
    }

    fn background(index: &Self::Index) -> Result<(), Fault> {
        Ok(index.interrupt(&2)?)
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("fastfair/src/")
    }
}

/// That a leaf is to be looked at again stands in memory alone until the index is closed.
#[test]
fn a_clean_shutdown_keeps_which_leaves_are_to_be_looked_at_again() {
    let mut explorer = Explorer::<IndexSubject<Doubted>>::new(Config::new().states(3000));
    let reads = (0..6).map(IndexOp::Get);
    let ops = [IndexOp::Background, IndexOp::Reopen].into_iter().chain(reads.clone());
    let plan = Plan {
        setup: (0..6).map(insert).collect(),
        threads: vec![ops.collect()],
        tail: reads.chain([insert(7), insert(8)]).collect(),
    };
    if let Err(failure) = explorer.explore(&plan, 1) {
        panic!("{failure}");
    }
    assert!(explorer.report().states > 10, "hardly anything explored");
}
