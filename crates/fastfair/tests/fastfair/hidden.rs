//! A leaf that a crash left hidden, whose parent splits between the two words that lead to its left neighbour.

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

    /// Hides the leaf behind that of the key 10.
    fn background(index: &Self::Index) -> Result<(), Fault> {
        if index.interrupt_rewrite(&10)? { Ok(()) } else { Err(Fault("nothing was hidden".into())) }
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("fastfair/src/")
    }
}

#[test]
fn its_parent_splits_before_it_is_made_known() {
    let insert = |key| IndexOp::Insert(key, key + 1);
    // The leaves: 0, 2, 4 | 6, 10, 12 | 14, 16, 17 | 18, 19.
    let setup = [0, 2, 4, 6, 10, 12, 14, 16, 17, 18, 19].map(insert).to_vec();
    let mut ops = vec![IndexOp::Background, insert(1), insert(3)]; // the first leaf splits
    ops.extend([insert(11), insert(15), IndexOp::Remove(14), IndexOp::Scan(0, 20)]);
    let tail = [5, 13, 9, 8].map(insert).to_vec();
    let mut explorer = Explorer::<IndexSubject<Words>>::new(Config::new().states(4000));
    for seed in [1, 2] {
        let plan = Plan { setup: setup.clone(), threads: vec![ops.clone()], tail: tail.clone() };
        if let Err(failure) = explorer.explore(&plan, seed) {
            panic!("{failure}");
        }
    }
    assert!(explorer.report().states > 50, "hardly anything explored");
}
