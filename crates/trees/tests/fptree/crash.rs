//! Crashes of values that are replaced in place, and what is salvaged of each image before it is recovered.

use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::Location;
use std::sync::Arc;

use pmindex_core::{Pool, Traced};
use pmindex_index::IndexError;
use pmindex_record::RedoLog;
use pmindex_testkit::crash::{
    Config, CrashIndex, Fault, IndexOp, IndexSubject, Persistency, Plan, explore,
};
use pmindex_trees::FpTree;

use crate::replacing;

type Tree = FpTree<u64, Vec<u8>, Traced, 4, 4>;

/// Every value is replaced in place by one of the same length: of one line of an entry in the redo log, of two, or of
/// all four.
struct Replaced;

impl CrashIndex for Replaced {
    type Key = u64;
    type Value = Vec<u8>;
    type Index = Tree;
    const NAME: &'static str = "fptree-replaced";
    const KEYS: u64 = 9;

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; [211, 32, 64][n as usize % 3]]
    }

    fn background(_: &Tree) -> Result<(), Fault> {
        RedoLog::prefer(1);
        Ok(())
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        replacing::plans()
    }

    /// What recovery makes of an image must have been in what was salvaged of it.
    fn beside(pool: &Arc<Pool<Traced>>) -> Result<Vec<u64>, Fault> {
        let salvaged = RefCell::new(HashSet::new());
        let each = &mut |key, value| {
            salvaged.borrow_mut().insert((key, value));
            true
        };
        match Tree::salvage(pool, "index", None, each) {
            Err(IndexError::NoSuchIndex { .. }) => return Ok(Vec::new()),
            salvaged => drop(salvaged?),
        }
        for record in &Tree::open(pool, "index")? {
            let record = record?;
            if !salvaged.borrow().contains(&record) {
                return Err(Fault::new(format!("not salvaged: {record:?}")));
            }
        }
        Ok(Vec::new())
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("pm-record/src/redo/")
    }
}

fn holds(config: &Config) {
    let explored = explore::<IndexSubject<Replaced>>(config);
    let report = explored.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.states >= config.states, "{} states", report.states);
}

#[test]
fn salvage_gives_the_values_that_recovery_stores() {
    // With the directed runs.
    holds(&Config::new().seed(1).states(40_000));
    holds(&Config::new().seed(2).states(2_000).persistency(Persistency::Barriers));
}

#[test]
fn two_threads_share_a_ring_or_a_leaf() {
    // With the directed runs, each of which is preempted at every handover point.
    holds(&Config::new().seed(1).states(12_000).threads(2));
    holds(&Config::new().seed(1).states(8_000).threads(2).slots(Some(1)));
}

#[test]
fn three_threads_share_a_ring_or_a_leaf() {
    holds(&Config::new().seed(1).states(8_000).threads(3));
}
