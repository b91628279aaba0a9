//! What commits cost: one fence, whatever the number of writes.

use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_testkit::golden::{self, Row};

use crate::{Options, Partition};

/// Commits of a row.
const COMMITS: u64 = 400;

fn key(number: u64) -> Vec<u8> {
    format!("user:{number:019}").into_bytes()
}

#[test]
fn golden_rstore() {
    let pool = Arc::new(Pool::counting(64 << 20).expect("memory"));
    let options = Options::new().capacity(48 << 20);
    let mut partition = Partition::create(&pool, "p", &options).expect("room");
    let pm = pool.pm();
    let mut rows: Vec<Row> = Vec::new();
    for writes in [1, 16, 64] {
        rows.push(golden::measure(
            pm,
            &format!("puts of 100 bytes, {writes} a commit"),
            COMMITS,
            || {
                for commit in 0..COMMITS {
                    for write in 0..writes {
                        let key = key(commit * writes + write);
                        partition.put(&key, &[7; 100], None).expect("room");
                    }
                    partition.commit().expect("room");
                }
            },
        ));
    }
    let mut value = Vec::new();
    rows.push(golden::measure(pm, "get", COMMITS, || {
        for number in 0..COMMITS {
            assert!(partition.get_into(&key(number), 0, &mut value).expect("sound"));
        }
    }));
    rows.push(golden::measure(pm, "remove, 16 a commit", COMMITS / 16, || {
        for number in 0..COMMITS {
            assert!(partition.remove(&key(number)).expect("room"));
            if number % 16 == 15 {
                partition.commit().expect("room");
            }
        }
    }));
    rows.push(golden::measure(pm, "put of 10 KiB, 1 a commit", 100, || {
        for number in 0..100 {
            partition.put(&key(number), &[7; 10 << 10], None).expect("room");
            partition.commit().expect("room");
        }
    }));
    golden::check("rstore", &rows);
}
