//! SPTree with write buffers: which types, and where its persistence steps are.

use std::panic::Location;

use pmindex_core::{PoolOptions, Traced};
use pmindex_sptree::SpTree;
use pmindex_testkit::crash::{CrashIndex, Fault, IndexOp, Plan};

use crate::sptree::{owns, plans};

/// Room for the segments of three writers.
fn options() -> PoolOptions {
    PoolOptions::new().size(192 << 10).zone_bytes(64 << 10).slots(4).slot_bytes(1024)
}

/// Segments of the log and pieces of checkpoints that return to the pool while other threads need blocks.
fn segments() -> Vec<Plan<IndexOp>> {
    let setup = (0..10).map(|key| IndexOp::Insert(key, key + 1)).collect::<Vec<_>>();
    let tend = vec![IndexOp::Background; 4];
    let grow = |keys: std::ops::Range<u64>| keys.map(|k| IndexOp::Insert(k, k + 1)).collect();
    let shrink = |keys: std::ops::Range<u64>| keys.map(IndexOp::Remove).collect();
    let tail =
        vec![IndexOp::Insert(3, 9), IndexOp::Remove(7), IndexOp::Background, IndexOp::Get(11)];
    [
        vec![tend.clone(), grow(10..18)],
        vec![tend.clone(), shrink(1..7)],
        vec![tend, shrink(1..5), grow(10..16)],
    ]
    .into_iter()
    .map(|threads| Plan { setup: setup.clone(), threads, tail: tail.clone() })
    .collect()
}

/// SPTree with 8-byte keys and values, four to a Bnode, three to a buffer.
pub(crate) struct SpTreeBuffered;

impl CrashIndex for SpTreeBuffered {
    type Key = u64;
    type Value = u64;
    type Index = SpTree<u64, u64, Traced, 4, 3>;
    const NAME: &'static str = "sptree-buffered";
    // Few, so that Bnodes merge.
    const KEYS: u64 = 9;

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> u64 {
        n
    }

    fn options() -> PoolOptions {
        options()
    }

    fn background(index: &Self::Index) -> Result<(), Fault> {
        // From now on writers leave full buffers to this.
        std::mem::forget(index.worker());
        if index.len()? == 5 {
            index.drain()?; // as the sweep does it, several at once
        } else if !index.step()? {
            index.make_checkpoint()?;
        }
        Ok(())
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site)
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        [plans(), segments()].concat()
    }
}

/// SPTree with keys and values of two words, buffered: a log entry of 64 bytes to the last, values
/// that are replaced in place though they are longer than a word.
pub(crate) struct SpTreeBufferedWide;

impl CrashIndex for SpTreeBufferedWide {
    type Key = [u8; 16];
    type Value = (u64, u64);
    type Index = SpTree<[u8; 16], (u64, u64), Traced, 6, 2>;
    const NAME: &'static str = "sptree-buffered-wide";
    const KEYS: u64 = 9;

    fn key(n: u64) -> [u8; 16] {
        let mut key = *b"the same 8 bytes";
        key[8..].copy_from_slice(&n.to_be_bytes());
        key
    }

    fn value(n: u64) -> (u64, u64) {
        (n, !n) // not among these: a value with one old word
    }

    fn options() -> PoolOptions {
        options()
    }

    /// Buffers go from leaf to leaf, and away; or all are absorbed.
    fn background(index: &Self::Index) -> Result<(), Fault> {
        if index.len()?.is_multiple_of(3) {
            index.set_buffer_budget(u64::MAX);
            index.drain()?;
        } else {
            std::mem::forget(index.worker());
            index.set_buffer_budget(128); // room for one: a line, and one for entries
            while index.step()? {}
        }
        Ok(())
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site)
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        [plans(), segments()].concat()
    }
}
