//! Golden costs of CCEH's operations.

use std::sync::Arc;

use pmindex_cceh::Cceh;
use pmindex_core::Pool;
use pmindex_testkit::Unordered;
use pmindex_testkit::golden::{self, Row};

fn pool() -> Arc<Pool> {
    Arc::new(Pool::counting(16 << 20).expect("memory"))
}

fn key(i: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Few records, so that no operation splits or merges.
fn two_segments() -> Vec<Row> {
    const RECORDS: u64 = 600;
    let pool = pool();
    let index = Cceh::<u64, u64>::create(&pool, "golden").expect("room");
    let row = |name: &str, run: &dyn Fn(u64)| {
        golden::measure(pool.pm(), name, RECORDS, || (0..RECORDS).for_each(|i| run(key(i))))
    };
    vec![
        row("insert", &|key| assert!(index.try_insert(&key, &1).expect("room").is_ok())),
        row("insert, key exists", &|key| {
            assert!(index.try_insert(&key, &1).expect("room").is_err());
        }),
        row("get", &|key| assert_eq!(index.get(&key).expect("sound"), Some(1))),
        row("update", &|key| assert!(index.update(&key, &2).expect("room").is_ok())),
        row("put, key exists", &|key| assert!(!index.put(&key, &3).expect("room"))),
        row("remove, no such key", &|key| assert!(index.remove(&!key).expect("sound").is_none())),
        row("remove", &|key| assert_eq!(index.remove(&key).expect("sound"), Some(3))),
    ]
}

/// The mean over many random writes, including splits and merges.
fn many() -> Vec<Row> {
    const RECORDS: u64 = 100_000;
    let pool = pool();
    let index = Cceh::<u64, u64>::create(&pool, "golden").expect("room");
    let inserts = golden::measure(pool.pm(), "insert, splits included", RECORDS, || {
        for i in 0..RECORDS {
            assert!(index.try_insert(&key(i), &i).expect("room").is_ok(), "distinct keys");
        }
    });
    let batches = golden::measure(pool.pm(), "insert_many of 64, splits included", RECORDS, || {
        for from in (RECORDS..2 * RECORDS).step_by(64) {
            let to = (from + 64).min(2 * RECORDS);
            let records: Vec<(u64, u64)> = (from..to).map(|i| (key(i), i)).collect();
            assert_eq!(index.try_insert_many(&records).stopped, None);
        }
    });
    let removals = golden::measure(pool.pm(), "remove, merges included", 2 * RECORDS, || {
        for i in 0..2 * RECORDS {
            assert_eq!(index.remove(&key(i)).expect("sound"), Some(i));
        }
    });
    vec![inserts, batches, removals]
}

/// Opening after a crash writes nothing, whatever the size.
fn opening() -> Row {
    let pool = pool();
    let index = Cceh::<u64, u64>::create(&pool, "golden").expect("room");
    for i in 0..50_000 {
        index.try_insert(&key(i), &i).expect("room").expect("done");
    }
    drop(index); // not closed, as after a crash
    golden::measure(pool.pm(), "open after a crash", 1, || {
        drop(Cceh::<u64, u64>::open(&pool, "golden").expect("sound"));
    })
}

#[test]
fn golden_cceh() {
    let mut rows = two_segments();
    rows.extend(many());
    rows.push(opening());
    rows.extend(golden::mixed::<Unordered<Cceh<u64, u64>>, Unordered<Cceh<Vec<u8>, Vec<u8>>>>());
    golden::check("cceh", &rows);
}
