//! What the operations of PACTree cost.

use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_pactree::PacTree;
use pmindex_testkit::golden::{self, Row};

type Tree = PacTree<u64, u64>;

/// Half full nodes, so that no operation of a row splits or merges one; then those that do.
fn rows() -> Vec<Row> {
    let pool = Arc::new(Pool::counting(16 << 20).expect("memory"));
    let index = Tree::create(&pool, "golden").expect("room");
    let row = |name: &str, count: u64, run: &dyn Fn(u64)| {
        golden::measure(pool.pm(), name, count, || (0..count).for_each(run))
    };
    let scattered = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut rows = vec![
        row("insert", 40, &|i| assert!(index.try_insert(&i, &1).expect("room").is_ok())),
        row("insert, key exists", 40, &|i| {
            assert!(index.try_insert(&i, &1).expect("room").is_err());
        }),
        row("get", 40, &|i| assert_eq!(index.get(&i).expect("sound"), Some(1))),
        row("update", 40, &|i| assert!(index.update(&i, &2).expect("room").is_ok())),
        row("remove, no such key", 40, &|i| {
            assert!(index.remove(&!i).expect("sound").is_none());
        }),
        row("remove", 40, &|i| assert_eq!(index.remove(&i).expect("sound"), Some(2))),
        row("insert, with splits", 20_000, &|i| {
            assert!(index.try_insert(&scattered(i), &1).expect("room").is_ok());
        }),
        row("remove, with merges", 20_000, &|i| {
            assert_eq!(index.remove(&scattered(i)).expect("sound"), Some(1));
        }),
    ];
    index.try_insert(&1, &1).expect("room").expect("new");
    drop(index); // not closed: as after a crash
    rows.push(golden::measure(pool.pm(), "open after a crash", 1, || {
        drop(Tree::open(&pool, "golden").expect("sound"));
    }));
    rows
}

#[test]
fn golden_pactree() {
    let mut all = rows();
    all.extend(golden::mixed::<Tree, PacTree<Vec<u8>, Vec<u8>>>());
    golden::check("pactree", &all);
}
