//! What wBTree's operations cost.

use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_index::{Index, PmIndex};
use pmindex_testkit::golden::{self, Row};
use pmindex_trees::SharedWbTree;

fn pool() -> Arc<Pool> {
    Arc::new(Pool::counting(16 << 20).expect("memory"))
}

/// Records in one leaf: no operation of these rows splits or removes one.
const RECORDS: u64 = 40;

fn one_leaf() -> Vec<Row> {
    let pool = pool();
    let tree = SharedWbTree::<u64, u64>::create(&pool, "golden").expect("room");
    let row = |name: &str, run: &dyn Fn(u64)| {
        golden::measure(pool.pm(), name, RECORDS, || (1..=RECORDS).for_each(run)) // key 0 is what a free slot looks like
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

fn scattered(i: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The means over many operations at random, splits and removals of leaves included.
fn many() -> Vec<Row> {
    const RECORDS: u64 = 100_000;
    let pool = pool();
    let tree = SharedWbTree::<u64, u64>::create(&pool, "golden").expect("room");
    let row = |name: &str, run: &dyn Fn(u64)| {
        golden::measure(pool.pm(), name, RECORDS, || (0..RECORDS).for_each(run))
    };
    let inserts = row("insert, splits included", &|i| {
        assert!(tree.try_insert(&scattered(i), &i).expect("room").is_ok(), "distinct keys");
    });
    let batches: Vec<Vec<(u64, u64)>> = (RECORDS..2 * RECORDS)
        .map(|i| (scattered(i), i))
        .collect::<Vec<_>>()
        .chunks(64)
        .map(<[_]>::to_vec)
        .collect();
    let many = golden::measure(pool.pm(), "insert_many of 64, splits included", RECORDS, || {
        for batch in &batches {
            assert!(tree.try_insert_many(batch).stopped.is_none());
        }
    });
    let removals = golden::measure(pool.pm(), "remove until nothing is left", 2 * RECORDS, || {
        for i in 0..2 * RECORDS {
            assert_eq!(tree.remove(&scattered(i)).expect("sound"), Some(i));
        }
    });
    vec![inserts, many, removals]
}

/// Records of other widths: two words of value.
fn wide() -> Vec<Row> {
    let pool = pool();
    let tree = SharedWbTree::<u64, u128>::create(&pool, "golden").expect("room");
    let row = |name: &str, run: &dyn Fn(u64)| {
        golden::measure(pool.pm(), name, RECORDS, || (1..=RECORDS).for_each(run))
    };
    tree.try_insert(&1000, &0).expect("room").expect("done"); // keeps the leaf alive
    vec![
        row("insert, values of 16 bytes", &|key| {
            assert!(tree.try_insert(&key, &1).expect("room").is_ok());
        }),
        row("update, values of 16 bytes", &|key| {
            assert!(tree.update(&key, &2).expect("room").is_ok());
        }),
    ]
}

#[test]
fn golden_wbtree() {
    let mut rows = one_leaf();
    rows.extend(wide());
    rows.extend(many());
    rows.extend(golden::mixed::<SharedWbTree<u64, u64>, SharedWbTree<Vec<u8>, Vec<u8>>>());
    golden::check("wbtree", &rows);
}
