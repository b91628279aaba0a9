//! What FPTree's operations cost.

use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_testkit::golden::{self, Row};
use pmindex_trees::FpTree;

fn pool() -> Arc<Pool> {
    Arc::new(Pool::counting(8 << 20).expect("memory"))
}

/// Records in one leaf: no operation of these rows splits or removes one. (Keys from 1 on: a fresh
/// slot has key 0, from which an insert with one fence could not tell it.)
const RECORDS: u64 = 40;

fn one_leaf() -> Vec<Row> {
    let pool = pool();
    let tree = FpTree::<u64, u64>::create(&pool, "golden").expect("room");
    let row = |name: &str, run: &dyn Fn(u64)| {
        golden::measure(pool.pm(), name, RECORDS, || (1..=RECORDS).for_each(run))
    };
    tree.try_insert(&1000, &0).expect("room").expect("done"); // keeps the leaf alive
    vec![
        row("insert", &|key| assert!(tree.try_insert(&key, &1).expect("room").is_ok())),
        row("insert, key exists", &|key| {
            assert!(tree.try_insert(&key, &1).expect("room").is_err());
        }),
        row("get", &|key| assert_eq!(tree.get(&key).expect("sound"), Some(1))),
        row("update", &|key| assert!(tree.update(&key, &2).expect("room").is_ok())),
        row("upsert, key exists", &|key| assert!(!tree.put(&key, &3).expect("room"))),
        row("remove", &|key| assert_eq!(tree.remove(&key).expect("sound"), Some(3))),
        row("remove, no such key", &|key| assert!(tree.remove(&key).expect("sound").is_none())),
    ]
}

/// The mean over many inserts at random, splits included.
fn many() -> Row {
    const INSERTS: u64 = 100_000;
    let pool = pool();
    let tree = FpTree::<u64, u64>::create(&pool, "golden").expect("room");
    golden::measure(pool.pm(), "insert, splits included", INSERTS, || {
        for i in 0..INSERTS {
            let key = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert!(tree.try_insert(&key, &i).expect("room").is_ok(), "distinct keys");
        }
    })
}

/// Values of byte strings that are replaced by others of the same length; the redo log is there.
fn replaced() -> Row {
    let pool = pool();
    let tree = FpTree::<Vec<u8>, Vec<u8>>::create(&pool, "golden").expect("room");
    let key = |n: u64| format!("a key of 20 bytes {n:02}").into_bytes();
    for n in 0..=RECORDS {
        assert!(tree.try_insert(&key(n), &[1; 100]).expect("room").is_ok());
    }
    assert!(tree.update(&key(0), &[2; 100]).expect("room").is_ok());
    golden::measure(pool.pm(), "update, value of 100 bytes", RECORDS, || {
        (1..=RECORDS).for_each(|n| assert!(tree.update(&key(n), &[2; 100]).expect("room").is_ok()));
    })
}

#[test]
fn golden_fptree() {
    let mut rows = one_leaf();
    rows.push(many());
    rows.push(replaced());
    rows.extend(golden::mixed::<FpTree<u64, u64>, FpTree<Vec<u8>, Vec<u8>>>());
    golden::check("fptree", &rows);
}
