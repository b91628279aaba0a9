//! A tree that is made in a grown pool.

use std::sync::Arc;

use pmindex_core::{Pool, PoolOptions};
use pmindex_trees::BzTree;

/// Blocks are no larger in a pool that has grown: the descriptors of a tree that is made then are as many
/// as there is room for in one.
#[test]
fn bztree_made_in_a_grown_pool_fits_its_blocks() {
    for size in [1 << 20, 2 << 20] {
        let options = PoolOptions::new().size(size).max_size(64 << 20);
        let pool = Arc::new(Pool::create_in_memory(&options, |mapped| mapped).expect("memory"));
        pool.grow(32 << 20).expect("addresses");
        let tree = BzTree::<u64, u64>::create(&pool, "numbers").expect("room");
        for number in 0..20_000u64 {
            let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert!(tree.try_insert(&key, &number).expect("room").is_ok());
        }
        assert_eq!(tree.check().expect("whole"), 20_000);
    }
}
