//! Splits that the trie has no room for: they are taken back, or wait until their nodes are gone; and a log whose only
//! segment is given back.

use std::panic::Location;

use pmindex_core::Traced;
use pmindex_pactree::PacTree;
use pmindex_testkit::crash::{Config, CrashIndex, Explorer, Fault, IndexOp, IndexSubject, Plan};

/// Four records to a node; the trie follows by steps alone, and adds no node.
struct Words;

impl CrashIndex for Words {
    type Key = u64;
    type Value = u64;
    type Index = PacTree<u64, u64, Traced, 4>;
    const NAME: &'static str = "pactree";

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> u64 {
        n
    }

    fn background(index: &Self::Index) -> Result<(), Fault> {
        index.leave_to_worker();
        index.step_without_room().map_err(|error| Fault::new(error.to_string()))
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("pactree/src/") || site.file().contains("pm-log/src/")
    }
}

fn insert(key: u64) -> IndexOp {
    IndexOp::Insert(key, key + 1)
}

/// Removes these, with steps after every `every` of them.
fn survives(inserted: u64, removed: impl Iterator<Item = u64>, every: usize) {
    let steps = || vec![IndexOp::Background; 3];
    let mut ops = Vec::new();
    for (n, key) in removed.enumerate() {
        ops.push(IndexOp::Remove(key));
        if n.is_multiple_of(every) {
            ops.extend(steps());
        }
    }
    ops.extend(steps());
    ops.extend([insert(40), insert(3), insert(2)]);
    ops.extend(steps());
    let setup = std::iter::once(IndexOp::Background).chain((0..inserted).map(insert)).collect();
    let tail = [(0..inserted).map(insert).collect(), steps(), vec![IndexOp::Scan(0, 60)]].concat();
    let plan = Plan { setup, threads: vec![ops], tail };
    let mut explorer = Explorer::<IndexSubject<Words>>::new(Config::new().states(3000));
    for seed in [1, 2] {
        if let Err(failure) = explorer.explore(&plan, seed) {
            panic!("{failure}");
        }
    }
    assert!(explorer.report().states > 50, "hardly anything explored");
}

#[test]
fn a_split_is_taken_back() {
    survives(5, [1].into_iter(), 1);
    survives(5, [4, 0].into_iter(), 1);
}

#[test]
fn nodes_behind_a_split_without_room_are_freed() {
    survives(12, 0..12, 1);
    survives(12, (0..12).rev(), 2);
    survives(17, (0..17).map(|n| n * 5 % 17), 3);
}
