//! What NV-Tree's operations cost.

use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_testkit::golden::{self, Row};
use pmindex_trees::NvTree;

fn pool() -> Arc<Pool> {
    Arc::new(Pool::counting(16 << 20).expect("memory"))
}

/// Records in one leaf, few enough that everything that is appended finds room.
const RECORDS: u64 = 10;

fn one_leaf() -> Vec<Row> {
    let pool = pool();
    let tree = NvTree::<u64, u64>::create(&pool, "golden").expect("room");
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

/// Removals from full leaves, which have no room for a negative record.
fn full_leaves() -> Row {
    const RECORDS: u64 = 42 * 100;
    let pool = pool();
    let tree = NvTree::<u64, u64>::create(&pool, "golden").expect("room");
    tree.bulk_load(&mut (0..RECORDS).map(|key| (key, key))).expect("room");
    golden::measure(pool.pm(), "remove from full leaves", RECORDS / 2, || {
        for key in (0..RECORDS).step_by(2) {
            assert_eq!(tree.remove(&key).expect("sound"), Some(key));
        }
    })
}

fn scattered(i: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The means over many operations at random, splits and compactions included.
fn many() -> Vec<Row> {
    const RECORDS: u64 = 100_000;
    let pool = pool();
    let tree = NvTree::<u64, u64>::create(&pool, "golden").expect("room");
    let row = |name: &str, run: &dyn Fn(u64)| {
        golden::measure(pool.pm(), name, RECORDS, || (0..RECORDS).for_each(run))
    };
    let mut rows = vec![
        row("insert, splits included", &|i| {
            assert!(tree.try_insert(&scattered(i), &i).expect("room").is_ok(), "distinct keys");
        }),
        row("update, compactions included", &|i| {
            let key = scattered(i.wrapping_mul(7919) % RECORDS);
            assert!(tree.update(&key, &i).expect("room").is_ok());
        }),
    ];
    let batches: Vec<Vec<(u64, u64)>> = (RECORDS..2 * RECORDS)
        .map(|i| (scattered(i), i))
        .collect::<Vec<_>>()
        .chunks(64)
        .map(<[_]>::to_vec)
        .collect();
    rows.push(golden::measure(pool.pm(), "insert_many of 64, splits included", RECORDS, || {
        for batch in &batches {
            assert!(tree.try_insert_many(batch).stopped.is_none());
        }
    }));
    rows
}

#[test]
fn golden_nvtree() {
    let mut rows = one_leaf();
    rows.push(full_leaves());
    rows.extend(many());
    rows.extend(golden::mixed::<NvTree<u64, u64>, NvTree<Vec<u8>, Vec<u8>>>());
    golden::check("nvtree", &rows);
}
