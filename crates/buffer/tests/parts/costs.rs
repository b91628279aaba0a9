//! What operations cost, in lines and fences.

use std::sync::Arc;

use pmindex_buffer::page::Layout;
use pmindex_buffer::runs::Runs;
use pmindex_buffer::{Buffer, BufferOptions, Sums};
use pmindex_core::{Medium, Pool};
use pmindex_testkit::golden;
use pmindex_wal::sim::SimDisk;

const TIMES: u64 = 64;

#[test]
fn golden_costs() {
    let pool = Arc::new(Pool::counting(256 << 20).unwrap());
    let mut rows = Vec::new();
    for (name, sums) in [("one sum", Sums::Incremental), ("8 partitions", Sums::Partitioned(8))] {
        let mut op = pool.op().unwrap();
        let block = op.reserve_bytes(4096, 64).unwrap().ptr().offset();
        let words = pool.words(block, 512).unwrap();
        let layout = Layout::new(512, sums, 1);
        let mut image = vec![0; 512];
        layout.seal(&mut image, 1, 1);
        pool.pm().write_words(words, &image);
        rows.push(golden::measure(pool.pm(), &format!("update of a page: {name}"), TIMES, || {
            for lsn in 2..2 + TIMES {
                let runs = [(lsn % 500) | (1 << 32), lsn];
                layout.update(pool.pm(), words, 1, lsn, Runs::new(&runs));
            }
        }));
    }
    let disk = Arc::new(SimDisk::new(512, 256 * 4096));
    let buffer = Buffer::create(&pool, "pages", disk, &BufferOptions::new(64)).unwrap();
    let all = |first: u64| {
        let mut tx = buffer.begin();
        (first..first + 8).for_each(|page| tx.create(page).unwrap().set(0, 1));
        tx.commit().unwrap();
    };
    (0..8).for_each(|nth| all(1 + 8 * nth));
    let change = |value: u64| {
        let mut tx = buffer.begin();
        tx.write(1 + value % 60).unwrap().set(9, value);
        tx
    };
    rows.push(golden::measure(pool.pm(), "commit: one word", TIMES, || {
        (1..=TIMES).for_each(|value| assert!(change(value).commit().is_ok()));
    }));
    rows.push(golden::measure(pool.pm(), "commit: group of 8", TIMES, || {
        for group in 0..TIMES {
            let group = (0..8).map(|nth| change(1000 + 8 * group + nth)).collect();
            buffer.commit_all(group).unwrap().into_iter().for_each(|lsn| assert!(lsn.is_ok()));
        }
    }));
    rows.push(golden::measure(pool.pm(), "read", TIMES, || {
        (0..TIMES).for_each(|page| assert!(buffer.read(1 + page % 60, |p| p.word(9)).is_ok()));
    }));
    rows.push(golden::measure(pool.pm(), "checkpoint: 64 pages", 1, || {
        buffer.checkpoint().unwrap();
    }));
    (0..8).for_each(|nth| all(65 + 8 * nth));
    buffer.checkpoint().unwrap();
    rows.push(golden::measure(pool.pm(), "read: page of the disk", 32, || {
        (1..33).for_each(|page| assert!(buffer.read(page, |p| p.word(9)).is_ok()));
    }));
    golden::check("buffer", &rows);
}
