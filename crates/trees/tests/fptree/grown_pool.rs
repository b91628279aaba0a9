//! A tree that was created in a small pool continues in the grown one.

use std::sync::Arc;

use pmindex_core::{PmError, Pool, PoolOptions};
use pmindex_index::{IndexError, MAX_VALUE_BYTES};
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
        assert!(tree.try_insert(&key, &number).expect("the pool grows").is_ok());
    }
    assert!(pool.len() > 2 * before);
    assert_eq!(tree.check().expect("whole"), RECORDS);
}

/// A value has what a block has room for, and 4 MiB where zones are larger than that.
#[test]
fn the_longest_value_is_a_block() {
    let tree_in = |options: PoolOptions| {
        let pool = Arc::new(Pool::create_in_memory(&options, |mapped| mapped).expect("memory"));
        let tree = FpTree::<u64, Vec<u8>>::create(&pool, "values").expect("room");
        (pool, tree)
    };
    let (pool, tree) = tree_in(PoolOptions::new());
    let longest = pool.largest_block() as usize - 8;
    assert_eq!(longest, (4 << 20) - (8 << 10) - 8, "as the guide says");
    assert!(tree.try_insert(&1, &vec![1; longest]).expect("room").is_ok());
    assert_eq!(tree.get(&1).expect("whole").map(|value| value.len()), Some(longest));
    let error = tree.try_insert(&2, &vec![1; longest + 1]).expect_err("no such block");
    assert!(matches!(error, IndexError::Pool(PmError::TooLarge { .. })), "{error:?}");
    let (_pool, tree) = tree_in(PoolOptions::new().zone_bytes(8 << 20));
    assert!(tree.try_insert(&1, &vec![1; MAX_VALUE_BYTES]).expect("room").is_ok());
    let error = tree.try_insert(&2, &vec![1; MAX_VALUE_BYTES + 1]).expect_err("too long");
    assert!(matches!(error, IndexError::ValueTooLong { .. }), "{error:?}");
}
