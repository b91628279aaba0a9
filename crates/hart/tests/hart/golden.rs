//! What HART's operations cost.

use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_hart::Hart;
use pmindex_testkit::golden::{self, Row};

fn pool() -> Arc<Pool> {
    Arc::new(Pool::counting(16 << 20).expect("memory"))
}

/// Records in one chunk: no operation of these rows makes or gives back one.
const RECORDS: u64 = 40;

fn one_chunk() -> Vec<Row> {
    let pool = pool();
    let hart = Hart::<u64, u64>::create(&pool, "golden").expect("room");
    let row = |name: &str, run: &dyn Fn(u64)| {
        golden::measure(pool.pm(), name, RECORDS, || (0..RECORDS).for_each(run))
    };
    hart.try_insert(&1000, &0).expect("room").expect("done"); // keeps the chunk alive
    vec![
        row("insert", &|key| assert!(hart.try_insert(&key, &1).expect("room").is_ok())),
        row("insert, key exists", &|key| {
            assert!(hart.try_insert(&key, &1).expect("room").is_err());
        }),
        row("get", &|key| assert_eq!(hart.get(&key).expect("sound"), Some(1))),
        row("update", &|key| assert!(hart.update(&key, &2).expect("room").is_ok())),
        row("upsert, key exists", &|key| assert!(!hart.put(&key, &3).expect("room"))),
        row("remove", &|key| assert_eq!(hart.remove(&key).expect("sound"), Some(3))),
        row("remove, no such key", &|key| assert!(hart.remove(&key).expect("sound").is_none())),
    ]
}

/// Values of 40 bytes, in objects.
fn objects() -> Vec<Row> {
    let pool = pool();
    let hart = Hart::<u64, Vec<u8>>::create(&pool, "golden").expect("room");
    let row = |name: &str, run: &dyn Fn(u64)| {
        golden::measure(pool.pm(), name, RECORDS, || (0..RECORDS).for_each(run))
    };
    let value = |byte: u8| vec![byte; 40];
    hart.try_insert(&1000, &value(0)).expect("room").expect("done");
    vec![
        row("insert, value of 40 bytes", &|key| {
            assert!(hart.try_insert(&key, &value(1)).expect("room").is_ok());
        }),
        row("update, value of 40 bytes", &|key| {
            assert!(hart.update(&key, &value(2)).expect("room").is_ok());
        }),
        row("update, value of 7 bytes", &|key| {
            assert!(hart.update(&key, &[3; 7]).expect("room").is_ok());
        }),
    ]
}

/// The mean over many inserts and removals, chunks included.
fn many() -> Vec<Row> {
    const RECORDS: u64 = 100_000;
    let pool = pool();
    let hart = Hart::<u64, u64>::create(&pool, "golden").expect("room");
    let key = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let row = |name: &str, count: u64, run: &dyn Fn()| golden::measure(pool.pm(), name, count, run);
    let records: Vec<(u64, u64)> = (0..RECORDS).map(|i| (key(i), i)).collect();
    vec![
        row("insert, chunks included", RECORDS, &|| {
            for (k, v) in &records {
                assert!(hart.try_insert(k, v).expect("room").is_ok());
            }
        }),
        row("remove, chunks included", RECORDS, &|| {
            for (k, _) in &records {
                assert!(hart.remove(k).expect("sound").is_some());
            }
        }),
        row("insert_many, 64 at a time", RECORDS, &|| {
            for part in records.chunks(64) {
                assert!(hart.try_insert_many(part).inserted.iter().all(|new| *new));
            }
        }),
    ]
}

#[test]
fn golden_hart() {
    let mut rows = one_chunk();
    rows.extend(objects());
    rows.extend(many());
    rows.extend(golden::mixed::<Hart<u64, u64>, Hart<Vec<u8>, Vec<u8>>>());
    golden::check("hart", &rows);
}
