//! What FAST&FAIR's operations cost.

use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_fastfair::FastFair;
use pmindex_testkit::golden::{self, Row};

fn pool() -> Arc<Pool> {
    Arc::new(Pool::counting(8 << 20).expect("memory"))
}

/// Records in one leaf: no operation of these rows splits or removes one.
const RECORDS: u64 = 29;

fn one_leaf() -> Vec<Row> {
    let pool = pool();
    let tree = FastFair::<u64, u64>::create(&pool, "golden").expect("room");
    // Scattered, so that records go between others.
    let row = |name: &str, run: &dyn Fn(u64)| {
        golden::measure(pool.pm(), name, RECORDS, || {
            (0..RECORDS).for_each(|i| run(i * 11 % RECORDS));
        })
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
fn many() -> Vec<Row> {
    const INSERTS: u64 = 100_000;
    let pool = pool();
    let tree = FastFair::<u64, u64>::create(&pool, "golden").expect("room");
    let key = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let inserts = golden::measure(pool.pm(), "insert, splits included", INSERTS, || {
        for i in 0..INSERTS {
            assert!(tree.try_insert(&key(i), &i).expect("room").is_ok(), "distinct keys");
        }
    });
    let batches = golden::measure(pool.pm(), "insert_many of 64, splits included", INSERTS, || {
        for from in (INSERTS..2 * INSERTS).step_by(64) {
            let to = (from + 64).min(2 * INSERTS);
            let records: Vec<(u64, u64)> = (from..to).map(|i| (key(i), i)).collect();
            assert_eq!(tree.try_insert_many(&records).stopped, None);
        }
    });
    vec![inserts, batches]
}

/// Opening reads two lines and writes one, whatever the size; the next writer repairs.
fn opening() -> Row {
    let pool = pool();
    let tree = FastFair::<u64, u64>::create(&pool, "golden").expect("room");
    for i in 0..50_000u64 {
        tree.try_insert(&i.wrapping_mul(0x9e37_79b9_7f4a_7c15), &i).expect("room").expect("done");
    }
    drop(tree); // not closed: as after a crash
    golden::measure(pool.pm(), "open after a crash", 1, || {
        drop(FastFair::<u64, u64>::open(&pool, "golden").expect("sound"));
    })
}

#[test]
fn golden_fastfair() {
    let mut rows = one_leaf();
    rows.extend(many());
    rows.push(opening());
    rows.extend(golden::mixed::<FastFair<u64, u64>, FastFair<Vec<u8>, Vec<u8>>>());
    golden::check("fastfair", &rows);
}
