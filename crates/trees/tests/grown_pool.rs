//! An index that was made in a small pool goes on in the grown one.
#![forbid(unsafe_code)]

use std::sync::Arc;

use pmindex_core::{Pool, PoolOptions};
use pmindex_trees::FpTree;

/// Far more records than the pool has room for when the index is made, in its leaves as in the room
/// reserved for inner nodes.
const RECORDS: u64 = 200_000;

#[test]
fn fptree_made_in_one_mebibyte_grows_with_its_pool() {
    let options = PoolOptions::new().size(1 << 20).max_size(64 << 20);
    let pool = Arc::new(Pool::create_in_memory(&options, |mapped| mapped).expect("memory"));
    let tree = FpTree::<u64, u64>::create(&pool, "numbers").expect("room");
    let before = pool.len();
    for number in 0..RECORDS {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        assert!(tree.insert(&key, &number).expect("the pool grows"));
    }
    assert!(pool.len() > 2 * before);
    assert_eq!(tree.check().expect("whole"), RECORDS);
}
