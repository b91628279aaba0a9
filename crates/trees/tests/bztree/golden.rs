//! What BzTree's operations cost.

use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_testkit::golden::{self, Row};
use pmindex_trees::BzTree;

fn pool() -> Arc<Pool> {
    Arc::new(Pool::counting(8 << 20).expect("memory"))
}

/// Records in one leaf: no operation of these rows splits or removes one.
const RECORDS: u64 = 40;

fn one_leaf() -> Vec<Row> {
    let pool = pool();
    let tree = BzTree::<u64, u64>::create(&pool, "golden").expect("room");
    let row = |name: &str, run: &dyn Fn(u64)| {
        golden::measure(pool.pm(), name, RECORDS, || (0..RECORDS).for_each(run))
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

/// Means over many inserts and updates at random, splits included.
fn many() -> Vec<Row> {
    const RECORDS: u64 = 100_000;
    let scattered = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let pool = pool();
    let tree = BzTree::<u64, u64>::create(&pool, "golden").expect("room");
    let row = |name: &str, run: &dyn Fn(u64)| {
        golden::measure(pool.pm(), name, RECORDS, || (0..RECORDS).for_each(run))
    };
    vec![
        row("insert, splits included", &|i| {
            assert!(tree.try_insert(&scattered(i), &i).expect("room").is_ok(), "distinct keys");
        }),
        row("update to a random value", &|i| {
            let key = scattered(scattered(i) % RECORDS);
            assert!(tree.update(&key, &scattered(i)).expect("room").is_ok());
        }),
    ]
}

#[test]
fn golden_bztree() {
    let mut rows = one_leaf();
    rows.extend(many());
    rows.extend(golden::mixed::<BzTree<u64, u64>, BzTree<Vec<u8>, Vec<u8>>>());
    golden::check("bztree", &rows);
}
