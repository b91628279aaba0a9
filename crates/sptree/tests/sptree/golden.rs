//! What SPTree's operations cost.

use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_sptree::SpTree;
use pmindex_testkit::golden::{self, Row};

fn pool() -> Arc<Pool> {
    Arc::new(Pool::counting(8 << 20).expect("memory"))
}

/// Records in one Bnode: no operation of these rows splits or removes one.
const RECORDS: u64 = 40;

fn one_bnode() -> Vec<Row> {
    let pool = pool();
    let tree = SpTree::<u64, u64>::create(&pool, "golden").expect("room");
    let row = |name: &str, run: &dyn Fn(u64)| {
        golden::measure(pool.pm(), name, RECORDS, || (1..=RECORDS).for_each(run))
    };
    tree.try_insert(&1000, &0).expect("room").expect("done"); // keeps the Bnode full enough
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
    let tree = SpTree::<u64, u64>::create(&pool, "golden").expect("room");
    golden::measure(pool.pm(), "insert, splits included", INSERTS, || {
        for i in 0..INSERTS {
            let key = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert!(tree.try_insert(&key, &i).expect("room").is_ok(), "distinct keys");
        }
    })
}

#[test]
fn golden_sptree() {
    let mut rows = one_bnode();
    rows.push(many());
    rows.extend(golden::mixed::<SpTree<u64, u64>, SpTree<Vec<u8>, Vec<u8>>>());
    golden::check("sptree", &rows);
}
