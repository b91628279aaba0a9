//! Blocks are no larger in a pool that has grown: a log that is made then fits them, and so do its
//! segments and checkpoints.

use std::sync::Arc;

use pmindex_core::{Pool, PoolOptions};
use pmindex_sptree::BufferedSpTree;

const RECORDS: u64 = 60_000;

#[test]
fn a_buffered_tree_in_a_grown_pool_fits_its_blocks() {
    for size in [1 << 20, 2 << 20] {
        let options = PoolOptions::new().size(size).max_size(1 << 30);
        let pool = Arc::new(Pool::create_in_memory(&options, |mapped| mapped).expect("memory"));
        pool.grow(64 << 20).expect("addresses");
        let tree = BufferedSpTree::<u64, u64>::create(&pool, "numbers").expect("room");
        for number in 0..RECORDS {
            let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert!(tree.try_insert(&key, &number).expect("room").is_ok());
        }
        assert_eq!(tree.check().expect("whole"), RECORDS);
        tree.close().expect("room for a checkpoint");
        let tree = BufferedSpTree::<u64, u64>::open(&pool, "numbers").expect("whole");
        assert_eq!(tree.check().expect("whole"), RECORDS);
    }
}
