//! Splits whose tickets are unsettled in one slot when a merge through another one changes the words that they name.

use std::panic::Location;

use pmindex_core::Traced;
use pmindex_pactree::PacTree;
use pmindex_testkit::crash::{Config, CrashIndex, Explorer, Fault, IndexOp, IndexSubject, Plan};

/// Four records to a node; the trie follows by steps alone, so that no operation in the slot of a split comes after it.
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
        index.step().map(drop).map_err(|error| Fault::new(error.to_string()))
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("pactree/src/")
    }
}

/// Crashes after so many insertions through the first slot, and these removals through the second.
fn survives(inserted: u64, removed: &[u64]) {
    let inserts = (0..inserted).map(|key| IndexOp::Insert(key, key + 1));
    let removals = removed.iter().map(|&key| IndexOp::Remove(key));
    let plan = Plan {
        setup: [IndexOp::Background].into_iter().chain(inserts.clone()).collect(),
        threads: vec![
            [IndexOp::Slot(1)].into_iter().chain(removals).chain([IndexOp::Background]).collect(),
        ],
        tail: inserts.chain([IndexOp::Background]).collect(),
    };
    let mut explorer = Explorer::<IndexSubject<Words>>::new(Config::new().states(4000));
    for seed in [1, 2] {
        if let Err(failure) = explorer.explore(&plan, seed) {
            panic!("{failure}");
        }
    }
    assert!(explorer.report().states > 50, "hardly anything explored");
}

#[test]
fn the_left_node_of_a_merge_had_split_off_the_right_one() {
    survives(5, &[3, 4]);
    survives(5, &[0, 1]);
}

#[test]
fn the_right_node_of_a_merge_had_split() {
    survives(8, &[0, 1, 2]);
}
