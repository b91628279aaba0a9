//! Golden costs of the matrix: all operations of what a crash keeps, and inserts of what is lost on crash.

use std::sync::Arc;

use pmindex_core::{Mapped, Pool};
use pmindex_index::PmIndex;
use pmindex_testkit::golden::{self, Row};

use super::{Hash, List, Tree};

/// Records of the rows with batches.
const RECORDS: u64 = 20_000;

fn key(i: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn pool() -> Arc<Pool> {
    Arc::new(Pool::counting(16 << 20).expect("memory"))
}

/// Measures operations of a logged index: few records, so that no buffer is full (their inserts begin the lanes of the
/// log), then many; and its opening, which reads the log.
fn kept<I: PmIndex<u64, u64, Mapped>>(name: &str) -> Vec<Row> {
    let pool = pool();
    let index = I::create(&pool, "golden").expect("room");
    let row = |operation: &str, count: u64, run: &dyn Fn(u64)| {
        let operation = format!("{name}, log: {operation}");
        golden::measure(pool.pm(), &operation, count, || (0..count).for_each(|i| run(key(i))))
    };
    let mut rows = vec![
        row("insert", 15, &|key| index.try_insert(&key, &1).expect("room").expect("new")),
        row("insert, key exists", 15, &|key| {
            assert!(index.try_insert(&key, &1).expect("room").is_err());
        }),
        row("get", 15, &|key| assert_eq!(index.get(&key).expect("sound"), Some(1))),
        row("update", 15, &|key| assert!(index.update(&key, &2).expect("room").is_ok())),
        row("remove, no such key", 15, &|key| {
            assert!(index.remove(&!key).expect("sound").is_none());
        }),
        row("remove", 15, &|key| assert_eq!(index.remove(&key).expect("sound"), Some(2))),
        row("insert, batches included", RECORDS, &|key| {
            index.try_insert(&key, &1).expect("room").expect("new");
        }),
        row("remove, batches included", RECORDS / 2, &|key| {
            assert_eq!(index.remove(&key).expect("sound"), Some(1));
        }),
    ];
    drop(index); // not closed: as after a crash
    rows.push(golden::measure(pool.pm(), &format!("{name}, log: open after a crash"), 1, || {
        let index = I::open(&pool, "golden").expect("sound");
        assert_eq!(index.len().expect("sound"), RECORDS - RECORDS / 2);
    }));
    rows
}

/// Measures inserts of an index that is lost on crash: what its batches cost.
fn lost<I: PmIndex<u64, u64, Mapped>>(name: &str) -> Row {
    let pool = pool();
    let index = I::create(&pool, "golden").expect("room");
    let operation = format!("{name}, lost on crash: insert, batches included");
    golden::measure(pool.pm(), &operation, RECORDS, || {
        for i in 0..RECORDS {
            index.try_insert(&key(i), &1).expect("room").expect("new");
        }
    })
}

#[test]
fn golden_boc() {
    let mut rows = kept::<Hash<false, true>>("CCEH");
    rows.extend(kept::<Hash<true, true>>("CCEH, out of place"));
    rows.extend(kept::<Tree<false, true>>("FAST&FAIR"));
    rows.extend(kept::<Tree<true, true>>("FAST&FAIR, out of place, cached"));
    rows.extend(kept::<List<true>>("skip list"));
    rows.push(lost::<Hash<false, false>>("CCEH"));
    rows.push(lost::<Hash<true, false>>("CCEH, out of place"));
    rows.push(lost::<Tree<false, false>>("FAST&FAIR"));
    rows.push(lost::<Tree<true, false>>("FAST&FAIR, out of place, cached"));
    rows.push(lost::<List<false>>("skip list"));
    golden::check("boc", &rows);
}
