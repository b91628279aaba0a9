//! A tree in a pool that is open for reading only: readable, recovered, never written.

use std::sync::Arc;

use pmindex_core::{PmError, Pool, PoolOptions};
use pmindex_index::IndexError;
use pmindex_trees::FpTree;

#[test]
fn a_tree_is_read_and_recovered_but_never_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool");
    let opts = PoolOptions::new().size(1 << 20).write_back(false);
    let pool = Arc::new(Pool::create(&path, &opts).expect("created"));
    let tree = FpTree::<u64, u64>::create(&pool, "t").expect("created");
    for key in 0..500 {
        assert!(tree.try_insert(&key, &key).expect("inserted").is_ok());
    }
    drop(tree);
    Arc::into_inner(pool).expect("the last").kill(); // not closed: opening recovers
    let before = std::fs::read(&path).expect("read");

    let pool = Arc::new(Pool::open(&path, &opts.read_only(true)).expect("opened"));
    let tree = FpTree::<u64, u64>::open(&pool, "t").expect("recovered");
    assert_eq!(tree.get(&77).expect("read"), Some(77));
    let refused = IndexError::Pool(PmError::ReadOnly);
    assert_eq!(tree.try_insert(&1000, &1), Err(refused.clone()));
    assert_eq!(tree.update(&77, &1), Err(refused.clone()));
    assert_eq!(tree.put(&77, &1), Err(refused.clone()));
    assert_eq!(tree.remove(&77), Err(refused.clone()));
    assert_eq!(tree.try_insert_many(&[(1000, 1)]).stopped, Some(refused.clone()));
    assert_eq!(FpTree::<u64, u64>::create(&pool, "u").err(), Some(refused));
    assert_eq!(tree.get(&77).expect("read"), Some(77));
    assert!(std::fs::read(&path).expect("read") == before, "the file was written");
}

#[test]
fn an_empty_tree_is_loaded_neither_for_reading_only_nor_in_a_damaged_pool() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool");
    let opts = PoolOptions::new().size(1 << 20).write_back(false);
    let pool = Arc::new(Pool::create(&path, &opts).expect("created"));
    let tree = FpTree::<u64, u64>::create(&pool, "t").expect("created");
    pool.note_damage(&PmError::Corrupt { what: "a test", offset: 0 });
    let refused = tree.bulk_load(&mut std::iter::once((1, 1)));
    assert!(matches!(refused, Err(IndexError::Pool(PmError::Damaged { .. }))), "{refused:?}");
    assert_eq!(tree.get(&1).expect("read"), None);
    drop(tree);
    Arc::into_inner(pool).expect("the last").kill();

    let pool = Arc::new(Pool::open(&path, &opts.read_only(true)).expect("opened"));
    let tree = FpTree::<u64, u64>::open(&pool, "t").expect("recovered");
    let refused = tree.bulk_load(&mut std::iter::once((1, 1)));
    assert_eq!(refused, Err(IndexError::Pool(PmError::ReadOnly)));
    assert_eq!(tree.get(&1).expect("read"), None);
}
