//! Golden costs of the operations of a skip list.

use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_skiplist::SkipList;
use pmindex_testkit::golden::{self, Row};

fn pool() -> Arc<Pool> {
    Arc::new(Pool::counting(16 << 20).expect("memory"))
}

fn key(i: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Two nodes, which are never split or merged.
fn two_nodes() -> Vec<Row> {
    const RECORDS: u64 = 4;
    let pool = pool();
    let index = SkipList::<u64, u64>::create(&pool, "golden").expect("room");
    // Inserts until the first node is split; then there is room for as many records as are removed.
    let mut there = 0;
    while index.stats().expect("sound").leaves < 2 {
        there += 1;
        index.try_insert(&key(there), &1).expect("room").expect("new");
    }
    for i in 1..=RECORDS {
        assert_eq!(index.remove(&key(i)).expect("sound"), Some(1));
    }
    let row = |name: &str, run: &dyn Fn(u64)| {
        golden::measure(pool.pm(), name, RECORDS, || (1..=RECORDS).for_each(|i| run(key(i))))
    };
    vec![
        row("insert", &|key| assert!(index.try_insert(&key, &1).expect("room").is_ok())),
        row("insert, key exists", &|key| {
            assert!(index.try_insert(&key, &1).expect("room").is_err());
        }),
        row("get", &|key| assert_eq!(index.get(&key).expect("sound"), Some(1))),
        row("scan of 10", &|key| {
            let mut out = Vec::new();
            index.scan(&key, 10, &mut out).expect("sound");
        }),
        row("update", &|key| assert!(index.update(&key, &3).expect("room").is_ok())),
        row("remove, no such key", &|key| assert!(index.remove(&!key).expect("sound").is_none())),
        row("remove", &|key| assert_eq!(index.remove(&key).expect("sound"), Some(3))),
    ]
}

/// The mean over many random writes, including splits and merges.
fn many() -> Vec<Row> {
    const RECORDS: u64 = 20_000;
    let pool = pool();
    let index = SkipList::<u64, u64>::create(&pool, "golden").expect("room");
    let inserts = golden::measure(pool.pm(), "insert, divided nodes included", RECORDS, || {
        for i in 0..RECORDS {
            assert!(index.try_insert(&key(i), &i).expect("room").is_ok(), "distinct keys");
        }
    });
    let removals = golden::measure(pool.pm(), "remove, united nodes included", RECORDS, || {
        for i in 0..RECORDS {
            assert_eq!(index.remove(&key(i)).expect("sound"), Some(i));
        }
    });
    vec![inserts, removals]
}

/// Opening after a crash writes nothing, whatever the size.
fn opening() -> Row {
    let pool = pool();
    let index = SkipList::<u64, u64>::create(&pool, "golden").expect("room");
    for i in 0..10_000 {
        index.try_insert(&key(i), &i).expect("room").expect("done");
    }
    drop(index); // not closed, as after a crash
    golden::measure(pool.pm(), "open after a crash", 1, || {
        drop(SkipList::<u64, u64>::open(&pool, "golden").expect("sound"));
    })
}

#[test]
fn golden_skiplist() {
    let mut rows = two_nodes();
    rows.extend(many());
    rows.push(opening());
    rows.extend(golden::mixed::<SkipList<u64, u64>, SkipList<Vec<u8>, Vec<u8>>>());
    golden::check("skiplist", &rows);
}
