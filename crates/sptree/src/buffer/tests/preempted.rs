//! Maintenance that is preempted, and that meets leaves which it has locked itself.

use std::sync::Arc;

use pmindex_core::trace::Space;
use pmindex_core::{Pool, PoolOptions, Traced};
use pmindex_record::{Probe, Route};
use pmindex_testkit::crash::preempt_once;

use super::super::table::ENTRIES_MAX;
use super::{Buffered, keys_of, mnode, rewrite, spread};

fn options() -> PoolOptions {
    PoolOptions::new().size(384 << 10).zone_bytes(64 << 10).slots(4).slot_bytes(1024)
}

fn space_and_pool() -> (Space, Arc<Pool<Traced>>) {
    let bytes = options().created_size().expect("a size") as usize;
    let space = Space::new(bytes, bytes);
    let pool = Arc::new(Pool::create_traced(&space, &options()).expect("room"));
    (space, pool)
}

/// A checkpoint has the chains of all buffers, whichever leaf gets its own buffer meanwhile: with it the
/// numbers of all own buffers below it are in use, and the shared ones are no longer the first.
#[test]
fn a_checkpoint_has_every_chain_though_buffers_are_added_meanwhile() {
    const LEAVES: u64 = 8;
    for at in 1.. {
        let (space, pool) = space_and_pool();
        let tree = spread(&pool, LEAVES, 4);
        tree.set_buffer_budget(u64::MAX);
        space.limit_steps(1_000_000);
        let (panics, reached) = preempt_once(2, at, |thread| {
            if thread == 0 {
                assert!(tree.make_checkpoint().expect("room"));
            } else {
                rewrite(&tree, 16 * (LEAVES - 1), 1);
            }
        });
        assert_eq!(panics, [None, None], "preempted before {at}");
        if !reached {
            assert!(at > 15, "only {at} preemptions");
            break;
        }
        // The process is killed; the next one opens what it left.
        drop(tree);
        Arc::into_inner(pool).expect("the last one").kill();
        let pool = Arc::new(Pool::open_traced(&space, &options()).expect("a pool"));
        let tree = Buffered::<Traced>::open(&pool, "t").expect("intact");
        for leaf in 0..LEAVES {
            let value = tree.get(&(16 * leaf)).expect("intact");
            assert_eq!(value, Some(1), "leaf {leaf}, preempted before {at}");
        }
        assert_eq!(tree.check().expect("sound"), 8 * LEAVES);
    }
}

/// A worker finds a full leaf and a nearly empty one among those that it has absorbed together: it holds
/// the full one, and a search for the other may lead to it.
#[test]
fn a_worker_waits_for_no_leaf_that_it_holds() {
    const LEAVES: u64 = 20;
    const FULL: u64 = 5;
    // The neighbour on either side; the batch in either order; splits that fail, or not.
    for case in 0..8 {
        let small = if case & 1 == 0 { FULL + 1 } else { FULL - 1 };
        let (space, pool) = space_and_pool();
        let tree = spread(&pool, LEAVES, LEAVES);
        tree.drain().expect("room");
        for key in keys_of(small).skip(1) {
            assert!(tree.remove(&key).expect("intact").is_some());
        }
        // A chain as long as it may be, of one key: its buffer is handed over, too.
        assert!(tree.try_insert(&(16 * small + 1), &0).expect("room").is_ok());
        for value in 1..ENTRIES_MAX as u64 {
            assert!(tree.update(&(16 * small + 1), &value).expect("room").is_ok());
        }
        rewrite(&tree, 16 * FULL, 2);
        let buffers = tree.buffers().expect("some");
        let worker = tree.worker();
        let mut batch = [FULL, small];
        batch.rotate_left(case >> 1 & 1);
        for leaf in batch {
            let buffer = tree.leaves.middle.buffer(mnode(&tree, 16 * leaf)).expect("has one");
            assert!(!buffers.has_room(&tree.leaves, buffer));
            buffers.handoff.push(tree.pm(), buffer);
        }
        let probe = Probe::<u64>::new(&(16 * FULL)).expect("a key");
        tree.guide.mislead(tree.locate(&Route::to(&probe)).index);
        let fails = case & 4 != 0;
        pool.fail_allocation_after(fails.then_some(0));
        space.limit_steps(1_000_000); // a wait without end is a panic
        assert_eq!(worker.step().is_err(), fails, "case {case}");
        space.limit_steps(u64::MAX);
        pool.fail_allocation_after(None);
        assert_eq!(tree.check().expect("sound"), 8 * (LEAVES - 1) + 2, "case {case}");
        let leaves = tree.stats().expect("intact").leaves;
        assert_eq!(leaves, LEAVES, "one split, and one merged, or none; case {case}");
    }
}
