//! Maintenance that is preempted.

use std::sync::Arc;

use pmindex_core::trace::Space;
use pmindex_core::{Pool, PoolOptions, Traced};
use pmindex_testkit::crash::preempt_once;

use super::{Buffered, rewrite, spread};

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
