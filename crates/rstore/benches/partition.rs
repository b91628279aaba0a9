//! What a partition does in a second, beside an index and a map in DRAM, and what collection costs.
//!
//! `cargo bench -p pmindex-rstore [-- RECORDS [VALUE_BYTES]]`. Persistent memory is emulated: flushes and
//! fences are real, the medium is DRAM. One thread.

#![expect(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a program that measures")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Instant;

use pmindex_core::Pool;
use pmindex_rstore::{Options, Partition};
use pmindex_trees::FpTree;

/// Writes of a commit: what a turn of a server's loop has under load.
const TURN: u64 = 16;
const KEY: usize = 24;

fn key(number: u64) -> [u8; KEY] {
    let mut key = *b"user:0000000000000000000";
    let text = format!("{:019}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1);
    key[5..].copy_from_slice(text.as_bytes());
    key
}

/// Numbers below `most`, from a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Millions of `count` operations a second.
fn rate(name: &str, count: u64, mut run: impl FnMut()) -> f64 {
    let begun = Instant::now();
    run();
    let rate = count as f64 / begun.elapsed().as_secs_f64() / 1e6;
    println!("{name:<44} {rate:>8.3} M/s");
    rate
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    let mut number = |usual: u64| arguments.next().map_or(usual, |text| text.parse().unwrap());
    let (records, value_bytes) = (number(500_000), number(100) as usize);
    let value = vec![7; value_bytes];
    let count = records;
    partition(records, &value, count);
    fptree(records, &value, count);
    map(records, &value, count);
    collection(records, &value);
}

fn partition(records: u64, value: &[u8], count: u64) {
    let bytes = records * (value.len() as u64 + 80) * 2;
    let pool = Arc::new(Pool::emulated((bytes + (64 << 20)) as usize).unwrap());
    let mut partition =
        Partition::create(&pool, "p", &Options::new().capacity(bytes + (32 << 20))).unwrap();
    rate("partition: put, new keys, 16 a commit", records, || load(&mut partition, records, value));
    let mut numbers = Numbers(7);
    rate("partition: put, replaced, 16 a commit", count / 2, || {
        replace(&mut partition, records, count / 2, value, &mut numbers);
    });
    rate("partition: put, replaced, 1 a commit", count / 4, || {
        for _ in 0..count / 4 {
            partition.put(&key(numbers.next(records)), value, None).unwrap();
            partition.commit().unwrap();
        }
    });
    let mut out = Vec::new();
    rate("partition: get", count, || {
        for _ in 0..count {
            out.clear();
            assert!(partition.get_into(&key(numbers.next(records)), 0, &mut out).unwrap());
        }
    });
    rate("partition: scans of 100, records", count, || {
        for _ in 0..count / 100 {
            let from = key(numbers.next(records));
            let mut left = 100;
            let visit = &mut |key: &[u8], value: &[u8]| {
                black_box((key, value));
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            partition.scan(Bound::Included(&from), Bound::Unbounded, 0, false, visit).unwrap();
        }
    });
    let stats = partition.stats();
    let each = |bytes: u64| bytes as f64 / records as f64;
    println!(
        "DRAM a record: {:.1} bytes, {:.1} of them the index",
        each(stats.dram_bytes),
        each(stats.index_bytes)
    );
    drop(partition);
    let (_, recovery) = Partition::open(&pool, "p", &Options::new()).unwrap();
    println!("opened: {recovery:?}");
}

fn load(partition: &mut Partition, records: u64, value: &[u8]) {
    for number in 0..records {
        partition.put(&key(number), value, None).unwrap();
        if number % TURN == 0 {
            partition.commit().unwrap();
        }
    }
    partition.commit().unwrap();
}

fn replace(partition: &mut Partition, records: u64, count: u64, value: &[u8], from: &mut Numbers) {
    for turn in 0..count {
        partition.put(&key(from.next(records)), value, None).unwrap();
        if turn % TURN == 0 {
            partition.commit().unwrap();
        }
    }
    partition.commit().unwrap();
}

fn fptree(records: u64, value: &[u8], count: u64) {
    let bytes = records * (value.len() as u64 + 80) * 3 + (64 << 20);
    let pool = Arc::new(Pool::emulated(bytes as usize).unwrap());
    let tree = FpTree::<Vec<u8>, Vec<u8>>::create(&pool, "t").unwrap();
    let value = value.to_vec();
    rate("FPTree: put, new keys", records, || {
        for number in 0..records {
            tree.put(key(number).as_ref(), &value).unwrap();
        }
    });
    let mut numbers = Numbers(7);
    rate("FPTree: put, replaced", count / 4, || {
        for _ in 0..count / 4 {
            tree.put(key(numbers.next(records)).as_ref(), &value).unwrap();
        }
    });
    rate("FPTree: get", count, || {
        for _ in 0..count {
            assert!(tree.get(key(numbers.next(records)).as_ref()).unwrap().is_some());
        }
    });
    rate("FPTree: scans of 100, records", count, || {
        for _ in 0..count / 100 {
            let from = key(numbers.next(records)).to_vec();
            tree.range(from..).take(100).for_each(|record| drop(black_box(record.unwrap())));
        }
    });
}

fn map(records: u64, value: &[u8], count: u64) {
    let mut map = BTreeMap::new();
    rate("BTreeMap in DRAM: insert, new keys", records, || {
        for number in 0..records {
            map.insert(key(number).to_vec(), value.to_vec());
        }
    });
    let mut numbers = Numbers(7);
    rate("BTreeMap in DRAM: insert, replaced", count / 4, || {
        for _ in 0..count / 4 {
            map.insert(key(numbers.next(records)).to_vec(), value.to_vec());
        }
    });
    let mut out = Vec::new();
    rate("BTreeMap in DRAM: get", count, || {
        for _ in 0..count {
            out.clear();
            out.extend_from_slice(&map[key(numbers.next(records)).as_slice()]);
        }
    });
    rate("BTreeMap in DRAM: scans of 100, records", count, || {
        for _ in 0..count / 100 {
            let from = key(numbers.next(records)).to_vec();
            map.range(from..).take(100).for_each(|record| {
                black_box(record);
            });
        }
    });
}

/// Replacing records of a partition that is now as good as empty, now 90 % full (thesis, figure 5.9).
fn collection(records: u64, value: &[u8]) {
    let record = 8 * (4 + KEY as u64 / 8 + (value.len() as u64).div_ceil(8) - 1);
    let live = records * record;
    let mut rates = Vec::new();
    for percent in [20, 50, 75, 90] {
        let capacity = live * 100 / percent;
        let pool =
            Arc::new(Pool::emulated((capacity + capacity / 8 + (32 << 20)) as usize).unwrap());
        let options = Options::new().capacity(capacity);
        let mut partition = Partition::create(&pool, "p", &options).unwrap();
        load(&mut partition, records, value);
        // Until every block has been collected once or so.
        let mut numbers = Numbers(11);
        replace(&mut partition, records, records * 2, value, &mut numbers);
        let before = partition.stats();
        let name = format!("partition {percent} % full: put, 16 a commit");
        rates.push(rate(&name, records, || {
            replace(&mut partition, records, records, value, &mut numbers);
        }));
        let stats = partition.stats();
        println!(
            "    {:.2} bytes copied for each written, {} stalls, {} blocks of {} free",
            (stats.copied_bytes - before.copied_bytes) as f64
                / (stats.written_bytes - before.written_bytes) as f64,
            stats.stalls - before.stalls,
            stats.free_blocks,
            stats.blocks
        );
    }
    let loss = 100.0 * (1.0 - rates[rates.len() - 1] / rates[0]);
    println!("collection at 90 % costs {loss:.0} % of the puts of the engine alone");
}
