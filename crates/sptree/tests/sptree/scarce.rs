//! Where slots, blocks and space are scarce.
//!
//! Blocks and operation slots that pass from one thread to another in the middle of a structure change,
//! and a crash after that: every preemption of a removal that merges two Bnodes, by a thread whose
//! inserts split others and take the blocks that have become free. A device that is full: what is removed
//! goes. An index that shrinks: its log shrinks with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use pmindex_core::trace::{EventKind, Space};
use pmindex_core::{Mapped, Pool, PoolOptions, Traced};
use pmindex_index::IndexError;
use pmindex_sptree::{BufferedSpTree, SpTree};
use pmindex_testkit::crash::preempt_once;

/// Four records to a Bnode, three to a buffer.
type Buffered = SpTree<u64, u64, Traced, 4, 3>;
type Plain = SpTree<u64, u64, Traced, 4>;

/// How many operation slots: the threads take over each other's.
const SLOTS: u64 = 1;

macro_rules! after_each_preemption {
    ($tree:ty, $inserts:expr) => {{
        let inserts: u64 = $inserts;
        let options = PoolOptions::new().size(192 << 10).zone_bytes(64 << 10);
        let options = options.slots(SLOTS).slot_bytes(1024);
        let bytes = options.created_size().expect("a size") as usize;
        let mut at = 0;
        loop {
            let space = Space::new(bytes, bytes);
            let pool = Arc::new(Pool::create_traced(&space, &options).expect("room"));
            let tree = <$tree>::create(&pool, "t").expect("room");
            let mut model: BTreeMap<u64, u64> = BTreeMap::new();
            // Three Bnodes of three records and a last one, each with a chain in the log.
            for key in 0..10 {
                assert!(tree.try_insert(&key, &key).expect("room").is_ok());
                model.insert(key, key);
            }
            // The second is nearly empty, and the first will be.
            for key in [3, 4, 0] {
                assert_eq!(tree.remove(&key).expect("intact"), model.remove(&key));
            }
            if at == 0 {
                let leaves = || tree.stats().expect("intact").leaves;
                let before = leaves();
                tree.remove(&1).expect("intact");
                assert_eq!(leaves() + 1, before, "it merges");
                at = 1;
                continue;
            }
            space.limit_steps(1_000_000);
            let (panics, reached) = preempt_once(2, at, |thread| {
                if thread == 0 {
                    assert_eq!(tree.remove(&1).expect("intact"), Some(1)); // merges
                } else {
                    for key in 10..10 + inserts {
                        assert!(tree.try_insert(&key, &key).expect("room").is_ok()); // splits
                    }
                }
            });
            assert!(panics.iter().all(Option::is_none), "preempted before {at}: {panics:?}");
            if !reached {
                break at;
            }
            model.remove(&1);
            model.extend((10..10 + inserts).map(|key| (key, key)));
            // The process is killed; the next one opens what it left.
            drop(tree);
            Arc::into_inner(pool).expect("the last one").kill();
            let pool = Arc::new(Pool::open_traced(&space, &options).expect("a pool"));
            let tree = <$tree>::open(&pool, "t").expect("intact");
            let found: Result<BTreeMap<u64, u64>, _> = tree.iter().collect();
            assert_eq!(found.expect("intact"), model, "preempted before {at}");
            let count = tree.check().unwrap_or_else(|error| panic!("before {at}: {error}"));
            assert_eq!(count, model.len() as u64, "preempted before {at}");
            pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
            at += 1;
        }
    }};
}

/// The right Bnode's chain is over before another operation can have its block.
#[test]
fn a_block_of_a_merged_bnode_begins_a_chain_of_its_own() {
    // The block's next chain is shorter than its last one, as long, longer.
    for inserts in 3..9 {
        let steps = after_each_preemption!(Buffered, inserts);
        assert!(steps > 100, "only {steps} preemptions");
    }
}

#[test]
fn a_merge_is_whole_with_other_operations_between_its_steps() {
    let steps = after_each_preemption!(Plain, 8);
    assert!(steps > 100, "only {steps} preemptions");
}

/// A flush of a line to which nothing was stored since it was last flushed makes nothing durable.
#[test]
fn the_log_flushes_no_line_twice() {
    let options = PoolOptions::new().size(192 << 10).zone_bytes(64 << 10);
    let bytes = options.created_size().expect("a size") as usize;
    let space = Space::new(bytes, bytes);
    let pool = Arc::new(Pool::create_traced(&space, &options).expect("room"));
    let tree = Buffered::create(&pool, "t").expect("room");
    space.record(true);
    for key in 0..600 {
        tree.put(&(key * 7 % 200), &key).expect("room");
        if key % 60 == 0 {
            tree.drain().expect("intact");
            tree.make_checkpoint().expect("room"); // segments go back
        }
    }
    let mut clean = BTreeMap::new();
    let mut idle: BTreeMap<String, u64> = BTreeMap::new();
    space.with_trace(|trace| {
        for event in trace {
            let line = event.word / 8;
            if event.kind.writes() {
                clean.insert(line, false);
            } else if event.kind == EventKind::Flush && clean.insert(line, true) == Some(true) {
                *idle.entry(event.site.to_string()).or_default() += 1;
            }
        }
    });
    idle.retain(|site, _| site.contains("sptree/src/log") || site.contains("pm-log/src"));
    assert!(idle.is_empty(), "flushed again: {idle:?}");
}

/// Keys in no order.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20)
}

/// As in production.
type Large = BufferedSpTree<u64, u64, Traced>;

/// Inserts until the device is full, and no leaf that is met has room; what is there then.
fn fill(tree: &Large) -> Vec<u64> {
    let (mut keys, mut refused) = (Vec::new(), 0);
    for key in scattered(1 << 20) {
        match tree.try_insert(&key, &key) {
            Ok(new) => {
                assert!(new.is_ok());
                keys.push(key);
            }
            Err(IndexError::Pool(error)) if error.is_full() => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if refused > 4000 {
            break;
        }
    }
    assert!(keys.len() > 10_000, "{}", keys.len());
    keys
}

#[test]
fn on_a_full_device_removing_works_also_after_a_kill() {
    let options = PoolOptions::new().size(2 << 20).zone_bytes(256 << 10).max_size(8 << 20);
    let bytes = options.created_size().expect("a size") as usize;
    // The file could grow, but the device has no room for it.
    let space = Space::new(bytes, 8 << 20);
    space.set_device_full(true);
    let mut pool = Arc::new(Pool::create_traced(&space, &options).expect("room"));
    let mut tree = Large::create(&pool, "t").expect("room");
    for killed in [false, true] {
        let keys = fill(&tree);
        if killed {
            drop(tree);
            Arc::into_inner(pool).expect("the last one").kill();
            pool = Arc::new(Pool::open_traced(&space, &options).expect("a pool"));
            tree = Large::open(&pool, "t").expect("intact");
        }
        let (mut refused, mut first) = (0, None);
        for key in keys.iter().rev() {
            // The newest first: those are in the buffers, and their removal is an entry of the log.
            match tree.remove(key) {
                Ok(value) => assert_eq!(value, Some(*key)),
                Err(error) => {
                    refused += 1;
                    first.get_or_insert(error);
                }
            }
        }
        let count = keys.len();
        assert_eq!(refused, 0, "of {count} removals, killed {killed}: {first:?}");
        assert_eq!(tree.check().expect("sound"), 0);
    }
}

#[test]
fn the_log_of_an_index_that_shrinks_goes_back_to_the_pool_while_it_is_open() {
    let options = PoolOptions::new().size(64 << 20).grow(false);
    let pool = Arc::new(Pool::create_in_memory(&options, |mapped: Mapped| mapped).expect("memory"));
    let tree = BufferedSpTree::<u64, u64>::create(&pool, "t").expect("room");
    let used = || {
        pool.trim().expect("intact");
        pool.used_bytes()
    };
    let empty = used();
    let count = 200_000;
    for key in scattered(count) {
        assert!(tree.try_insert(&key, &key).expect("room").is_ok());
    }
    let full = used() - empty;
    for key in scattered(count) {
        assert_eq!(tree.remove(&key).expect("intact"), Some(key));
    }
    let left = used().saturating_sub(empty);
    assert!(left < full / 10, "{left} of {full} bytes are still in use");
    assert_eq!(tree.check().expect("sound"), 0);
}
