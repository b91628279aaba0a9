//! Golden costs of the operations of a pool: its directory and its growth.

use pmindex_core::{Mapped, Medium, PmU64, Pool, PoolOptions};
use pmindex_testkit::golden::{self, Row};

const INDEXES: u64 = 60;

fn pool() -> Pool {
    let opts = PoolOptions::new().size(1 << 20).max_size(64 << 20).emulate_pm(true);
    Pool::create_in_memory(&opts, Mapped::counting).expect("memory")
}

fn row(pool: &Pool, name: &str, operations: u64, operation: impl Fn(u64)) -> Row {
    golden::measure(pool.pm(), name, operations, || (0..operations).for_each(operation))
}

#[test]
fn golden_pool() {
    let pool = pool();
    let create = |i: u64| {
        let fill = |block: &[PmU64; 8]| {
            pool.pm().store(&block[0], i);
            pool.pm().flush(block)
        };
        pool.create_index::<[PmU64; 8]>(&i.to_string(), *b"golden  ", 0, fill).expect("created");
    };
    let find = |i: u64| assert!(pool.find_index(&i.to_string()).expect("whole").is_some());
    let remove = |i: u64| assert!(pool.drop_root(&i.to_string()).expect("whole"));
    let grow = |_| {
        pool.grow(pool.len() + 1).expect("grown");
    };
    let rows = [
        row(&pool, "create_index, one line of root", INDEXES, create),
        row(&pool, "find_index", INDEXES, find),
        row(&pool, "drop_index", INDEXES, remove),
        row(&pool, "grow", 8, grow),
    ];
    golden::check("pool", &rows);
}
