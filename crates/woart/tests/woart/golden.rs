//! Golden costs of the operations of WOART and ART+CoW.

use std::sync::Arc;

use pmindex_core::{Mapped, Pool};
use pmindex_index::PmIndex;
use pmindex_testkit::golden::{self, Row};
use pmindex_woart::{ArtCow, Woart};

/// Measures random keys of one word, with nodes of all kinds.
fn rows<I: PmIndex<u64, u64, Mapped>>() -> Vec<Row> {
    const RECORDS: u64 = 20_000;
    let pool = Arc::new(Pool::counting(16 << 20).expect("memory"));
    let index = I::create(&pool, "golden").expect("room");
    let key = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let row = |name: &str, run: &dyn Fn(u64)| {
        golden::measure(pool.pm(), name, RECORDS, || (0..RECORDS).for_each(|i| run(key(i))))
    };
    let mut rows = vec![
        row("insert", &|key| assert!(index.try_insert(&key, &1).expect("room").is_ok())),
        row("insert, key exists", &|key| {
            assert!(index.try_insert(&key, &1).expect("room").is_err());
        }),
        row("get", &|key| assert_eq!(index.get(&key).expect("sound"), Some(1))),
        row("update", &|key| assert!(index.update(&key, &2).expect("room").is_ok())),
        row("remove, no such key", &|key| assert!(index.remove(&!key).expect("sound").is_none())),
        row("remove", &|key| assert_eq!(index.remove(&key).expect("sound"), Some(2))),
    ];
    index.try_insert(&1, &1).expect("room").expect("new");
    drop(index); // not closed, as after a crash
    rows.push(golden::measure(pool.pm(), "open after a crash", 1, || {
        drop(I::open(&pool, "golden").expect("sound"));
    }));
    rows
}

#[test]
fn golden_woart() {
    let mut all = rows::<Woart<u64, u64>>();
    all.extend(golden::mixed::<Woart<u64, u64>, Woart<Vec<u8>, Vec<u8>>>());
    golden::check("woart", &all);
}

#[test]
fn golden_artcow() {
    let mut all = rows::<ArtCow<u64, u64>>();
    all.extend(golden::mixed::<ArtCow<u64, u64>, ArtCow<Vec<u8>, Vec<u8>>>());
    golden::check("artcow", &all);
}
