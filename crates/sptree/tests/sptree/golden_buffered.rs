//! What operations with write buffers cost, in the mean, until nothing is left in the buffers.

use std::sync::Arc;

use pmindex_core::{Mapped, Pool};
use pmindex_sptree::BufferedSpTree;
use pmindex_testkit::golden;

/// Leaves, and how many records each gains, has changed, and loses.
const LEAVES: u64 = 3600;
const EACH: u64 = 28;
/// Keys from one leaf to the next: it begins with 32 records, 100 apart.
const SPAN: u64 = 3200;

/// The keys of an operation in a scattered order: as many in every leaf but the first, which are full.
fn keys() -> Vec<u64> {
    let count = (LEAVES - 3) * EACH;
    let mut keys: Vec<u64> = (0..count)
        .map(|n| {
            let n = n * 48_271 % count; // the factor and the count have no common divisor
            (n / EACH + 3) * SPAN + n % EACH * 100 + 1
        })
        .collect();
    keys.truncate(100_000);
    keys
}

type Tree = BufferedSpTree<u64, u64, Mapped>;

/// A tree of Bnodes that are half full.
fn half_full(pool: &Arc<Pool>) -> Tree {
    let tree = Tree::create(pool, "t").expect("room");
    for n in (0..LEAVES * 32).rev() {
        tree.try_insert(&(n * 100), &n).expect("room").expect("done");
    }
    tree.drain().expect("room");
    tree
}

/// What inserts cost that leave full buffers to a worker, its work included.
fn beside_a_worker(keys: &[u64]) -> golden::Row {
    let pool = Arc::new(Pool::counting(256 << 20).expect("memory"));
    let tree = half_full(&pool);
    let worker = tree.worker();
    golden::measure(pool.pm(), "insert (mean, drained), a worker", keys.len() as u64, || {
        for (n, key) in keys.iter().enumerate() {
            assert!(tree.try_insert(key, key).expect("room").is_ok());
            if n.is_multiple_of(256) {
                while worker.step().expect("room") {}
            }
        }
        tree.drain().expect("room");
    })
}

#[test]
fn golden_costs_of_buffered_operations() {
    let pool = Arc::new(Pool::counting(256 << 20).expect("memory"));
    let tree = half_full(&pool);
    let keys = keys();
    let operations = keys.len() as u64;
    let leaves = tree.stats().expect("sound").leaves;
    let row = |name: &str, run: &dyn Fn(u64)| {
        golden::measure(pool.pm(), name, operations, || {
            for &key in &keys {
                run(key);
            }
            tree.drain().expect("room");
        })
    };
    let mut rows = vec![
        row("insert (mean, drained)", &|key| {
            assert!(tree.try_insert(&key, &key).expect("room").is_ok());
        }),
        row("update (mean, drained)", &|key| assert!(tree.update(&key, &1).expect("room").is_ok())),
        row("remove (mean, drained)", &|key| assert!(tree.remove(&key).expect("room").is_some())),
    ];
    assert_eq!(tree.stats().expect("sound").leaves, leaves, "no split, no merge");
    rows.push(golden::measure(pool.pm(), "get", operations, || {
        for &key in &keys {
            assert_eq!(tree.get(&key).expect("intact"), None);
            tree.get(&(key - 1)).expect("intact");
        }
    }));
    let random = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63;
    rows.push(golden::measure(pool.pm(), "insert, splits included", operations, || {
        for n in 0..operations {
            tree.try_insert(&random(n), &n).expect("room").expect("done");
        }
        tree.drain().expect("room");
    }));
    let splits = rows.pop();
    rows.push(beside_a_worker(&keys));
    for (row, lines) in rows.iter().zip([1.6, 2.0, 1.6, 0.0, 1.6]) {
        assert!(row.lines() <= lines && row.fences() <= 1.25, "over the target: {row:?}");
    }
    rows.extend(splits);
    rows.extend(golden::mixed::<Tree, BufferedSpTree<Vec<u8>, Vec<u8>, Mapped>>());
    golden::check("sptree-buffered", &rows);
    tree.check().expect("sound");
}
