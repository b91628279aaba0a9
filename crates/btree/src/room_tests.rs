//! The pages that puts take at most, against those that they take.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread;

use pmindex_buffer::BufferOptions;
use pmindex_core::Pool;
use pmindex_index::{Index, IndexError, Key, PmIndex, Reserved};
use pmindex_wal::sim::{SimDisk, mix};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::Paged;
use crate::map::packed_record;
use crate::meta;
use crate::room::most_pages;

type Bytes = Vec<u8>;

fn index<K: Key>(page_bytes: u64, pages: usize) -> Paged<K, Bytes> {
    let disk = SimDisk::new(256, pages * page_bytes as usize);
    let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
    let options = BufferOptions::new(600).page_bytes(page_bytes).staging(4).identity(1);
    Paged::create_on(&pool, "map", Arc::new(disk), &options).expect("room")
}

/// Keeps pages for records; returns them, their number, and the number without a look at the tree.
fn kept<K: Key>(index: &Paged<K, Bytes>, records: &[(K, Bytes)]) -> (Reserved, u64, u64) {
    let height = index.map.tree.height(index.buffer()).expect("sound");
    let count = records.len() as u64;
    let pages = index.kept.keep(count, most_pages(count, height));
    let most = pages.count();
    let puts: Vec<_> =
        records.iter().map(|(key, value)| (key.borrowed(), value.as_slice())).collect();
    pages.lower(index.look(&puts).expect("sound"));
    let looked = pages.count();
    (Reserved::new(pages), looked, most)
}

/// Puts records, and compares the pages that they take with those that were kept; returns both, and how many would
/// have been kept without a look.
fn put_all<K: Key>(index: &Paged<K, Bytes>, records: &[(K, Bytes)]) -> (u64, u64, u64) {
    let used = || meta::used(index.buffer()).expect("sound");
    let (before, (reserved, looked, most)) = (used(), kept(index, records));
    index.put_many_reserved(records, &reserved).expect("room");
    (used() - before, looked, most)
}

/// The order of the numbers of a run of keys.
#[derive(Clone, Copy, Debug)]
enum Order {
    Up,
    Down,
    Mixed,
}

fn number(order: Order, n: u64) -> u64 {
    match order {
        Order::Up => 1000 + n,
        Order::Down => 2000 - n,
        Order::Mixed => mix(n) % 2000,
    }
}

/// A batch: an order, where it begins, and the length of each value.
type Batch = (Order, u64, Vec<usize>);

fn batch(most: usize) -> impl Strategy<Value = Batch> {
    let order = prop_oneof![Just(Order::Up), Just(Order::Down), Just(Order::Mixed)];
    let lengths = prop_oneof![
        vec(0..most, 1..120),
        (0..most, 1..120_usize).prop_map(|(len, count)| vec![len; count]),
    ];
    (order, 0..900u64, lengths)
}

/// Batch after batch; some records are removed between them.
fn check<K: Key>(
    page_bytes: u64,
    batches: &[Batch],
    key: fn(u64) -> K,
) -> Result<(), TestCaseError> {
    let index = index::<K>(page_bytes, 4000);
    for (at, (order, first, lengths)) in batches.iter().enumerate() {
        let mut records: Vec<(K, Bytes)> = (*first..)
            .zip(lengths)
            .map(|(n, len)| (key(number(*order, n)), vec![at as u8; *len]))
            .collect();
        records.sort_by(|one, other| one.0.cmp(&other.0));
        records.dedup_by(|one, other| one.0 == other.0);
        let (taken, looked, most) = put_all(&index, &records);
        prop_assert!(taken <= looked && looked <= most, "{at}: {taken}, {looked}, {most}");
        for (key, _) in records.iter().filter(|(_, value)| value.len() % 5 == 1) {
            index.remove(key.borrowed()).expect("room");
        }
    }
    index.check().expect("sound");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn puts_of_words_take_no_more_pages_than_are_kept(
        small in vec(batch(33), 1..14),
        large in vec(batch(200), 1..8),
    ) {
        check::<u64>(256, &small, |n| n)?;
        check::<u64>(1024, &large, |n| n)?;
    }

    #[test]
    fn puts_of_texts_take_no_more_pages_than_are_kept(batches in vec(batch(40), 1..10)) {
        check::<String>(512, &batches, |n| format!("{n}{}", "x".repeat(n as usize % 50)))?;
    }
}

/// The same for the worst that puts can meet: full pages on all levels.
#[test]
fn full_pages_are_expected() {
    for order in [Order::Up, Order::Down, Order::Mixed] {
        let index = index::<u64>(256, 4000);
        for first in (0..1000).step_by(20) {
            let records = |len: usize| {
                let numbers = (first..first + 20).map(|n| number(order, n));
                let mut records: Vec<_> = numbers.map(|n| (3 * n, vec![7; len])).collect();
                records.sort();
                records.dedup();
                records
            };
            let (taken, looked, _) = put_all(&index, &records(8));
            assert!(taken <= looked, "{order:?}, {first}: {taken} of {looked}");
            // The same again, of the same length and of another one.
            assert_eq!(put_all(&index, &records(7)).0, 0, "{order:?}");
            assert_eq!(put_all(&index, &records(8)).1, 0, "{order:?}");
            let (taken, looked, most) = put_all(&index, &records(30));
            assert!(taken <= looked && looked < most, "{order:?}: {taken}, {looked}, {most}");
        }
    }
}

/// Keys that came in order have filled all pages of all levels: each of the next puts splits a leaf, and each second one
/// the page above it.
#[test]
fn a_put_may_split_a_page_of_each_level() {
    let index = index::<u64>(512, 4000);
    for first in (0..20_000).step_by(200) {
        let records: Vec<_> = (first..first + 200).map(|n| (10 * n, vec![7; 8])).collect();
        put_all(&index, &records);
    }
    let (mut parents, mut records) = (BTreeSet::new(), Vec::new());
    for n in 0..20_000 {
        let record = packed_record::<u64, Bytes>(&(10 * n + 5), &[7; 30]);
        let passed = index.map.tree.passed(index.buffer(), &record).expect("sound");
        if parents.insert(passed.expect("a new key")[&1]) {
            records.extend([n, n + 40].map(|n| (10 * n + 5, vec![7; 30])));
        }
    }
    records.truncate(records.len() - 4); // the last page of each level is not full
    let count = records.len() as u64;
    let (taken, looked, most) = put_all(&index, &records);
    assert!(count > 80 && 2 * taken > 3 * count, "{taken} for {count}");
    assert!(taken <= looked && 2 * looked < 3 * taken, "{taken} of {looked}");
    assert!(2 * looked < most, "{looked} of {most}");
}

/// Small pages, many more than frames: each of them goes to the disk and comes back.
#[test]
fn small_pages_without_a_frame_are_on_the_disk() {
    let index = index::<u64>(256, 4000);
    let value = |n: u64| vec![n as u8; 1 + n as usize % 8];
    for n in 0..6000 {
        index.put(&n, &value(n)).expect("room");
    }
    assert!(meta::used(index.buffer()).expect("sound") > index.buffer().frames() + 200);
    for n in 0..6000 {
        assert_eq!(index.get(&n).expect("its page"), Some(value(n)), "{n}");
    }
    assert_eq!(index.check().expect("sound"), 6000);
}

/// Records are counted while another thread puts more, and splits leaves.
#[test]
fn records_are_counted_while_others_are_put() {
    let index = index::<u64>(256, 4000);
    let (begun, done) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..6000 {
                begun.store(n + 1, SeqCst);
                index.put(&mix(n), &vec![1; n as usize % 9]).expect("room");
                done.store(n + 1, SeqCst);
            }
        });
        while done.load(SeqCst) < 6000 {
            let before = done.load(SeqCst);
            let counted = index.len().expect("sound");
            assert!((before..=begun.load(SeqCst)).contains(&counted), "{before}: {counted}");
        }
    });
    assert_eq!((index.len().expect("sound"), index.check().expect("sound")), (6000, 6000));
}

/// Whatever other threads put meanwhile, with pages kept and without: what is granted finds room.
#[test]
fn what_is_granted_finds_room_among_threads() {
    let granted = AtomicU64::new(0);
    for round in 0..30 {
        let index = index::<u64>(256, 150 + 10 * (round as usize % 9));
        thread::scope(|scope| {
            for nth in 0..3 {
                let (index, granted) = (&index, &granted);
                scope.spawn(move || {
                    for n in 0..500 {
                        let size = 1 + mix(n) % 24;
                        // Keys of this thread, between those of the others.
                        let key = |i: u64| 4 * (mix(n << 8 | round << 30) % 300 + i) + nth;
                        let mut records: Vec<(u64, Bytes)> = (0..size)
                            .map(|i| (key(i), vec![1; (mix(n + i) % 33) as usize]))
                            .collect();
                        records.sort();
                        records.dedup_by(|one, other| one.0 == other.0);
                        let puts = records.iter().map(|(key, value)| (key, value.as_slice()));
                        let reserved = match index.reserve(&mut { puts }) {
                            Err(IndexError::Pool(error)) if error.is_full() => return,
                            reserved => reserved.expect("sound"),
                        };
                        index.put_many_reserved(&records, &reserved).expect("granted");
                        granted.fetch_add(1, Relaxed);
                    }
                });
            }
            let index = &index;
            scope.spawn(move || {
                for n in 0..2000u64 {
                    let key = 4 * (mix(n) % 500) + 3;
                    if index.put(&key, &vec![2; (mix(n) % 33) as usize]).is_err() {
                        return;
                    }
                    thread::yield_now();
                }
            });
        });
        index.check().expect("sound");
    }
    assert!(granted.into_inner() > 200);
}
