//! What a write costs in a partition that is full to a share: counts of a counting medium.

use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_testkit::crash::Rng;
use pmindex_testkit::golden;

use crate::{BlockSize, Options, Partition};

/// Returns the lines and fences of a write of 160 bytes, 16 a commit, to any record alike, and the bytes that are copied
/// for all writes.
fn costs(percent: u64) -> (f64, f64, u64) {
    let capacity = 8 << 20;
    let pool = Arc::new(Pool::counting(2 * capacity as usize).expect("memory"));
    let options = Options::new().block_size(BlockSize::Kib16).capacity(capacity);
    let mut partition = Partition::create(&pool, "p", &options).expect("room");
    let key = |number: u64| format!("user:{number:019}").into_bytes();
    let (mut random, mut records) = (Rng::new(5), 0);
    while partition.stats().live_bytes < capacity / 100 * percent {
        partition.put(&key(records), &[7; 100], None).expect("room");
        records += 1;
        partition.commit().expect("room");
    }
    let mut write = |count: u64| {
        for turn in 0..count {
            let number = random.next_u64() % records;
            partition.put(&key(number), &[turn as u8; 100], None).expect("room");
            if turn % 16 == 0 {
                partition.commit().expect("room");
            }
        }
        partition.stats().copied_bytes
    };
    let before = write(4 * records);
    let mut after = 0;
    let row = golden::measure(pool.pm(), "write", records, || after = write(records));
    (row.lines(), row.fences(), after - before)
}

#[test]
fn a_write_copies_nothing_where_nearly_all_is_live_and_records_have_one_length() {
    let (lines, fences, copied) = costs(50);
    let (full_lines, full_fences, full_copied) = costs(90);
    assert!(copied > 0 && full_copied == 0, "{copied} {full_copied}");
    // A commit, and those of the log's segments, which are short in a small pool.
    assert!(full_fences < 0.35 && fences < 0.35, "{full_fences} {fences}");
    // A record in a hole has a line for its seal, one for the seal's end, and begins anywhere in a line.
    assert!(full_lines < 1.5 * lines && full_lines < 8.2, "{full_lines} {lines}");
}
