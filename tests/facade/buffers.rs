//! Reads into buffers allocate nothing once the buffers have room: the allocator counts.

use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;

use allocation_counter::measure;
use pmindex::{AnyIndex, Index, Key, Kind, Map, Pool, Records, Shape, Store, StoreOptions, Value};

const RECORDS: u64 = 2000;
/// Records of a scan: of several leaves.
const PAGE: usize = 150;

/// A value of a test: as long for each key, or shorter.
trait Sample: Clone + Debug + PartialEq {
    fn of(i: u64) -> Self;
}

impl Sample for u64 {
    fn of(i: u64) -> Self {
        i.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Sample for (u32, i64, bool) {
    fn of(i: u64) -> Self {
        (i as u32 % 7, (u64::of(i) >> 8).cast_signed(), i.is_multiple_of(3))
    }
}

impl Sample for [u8; 40] {
    fn of(i: u64) -> Self {
        let mut bytes = [7; 40];
        bytes[16..24].copy_from_slice(&u64::of(i).to_be_bytes());
        bytes
    }
}

/// Half of them begin like addresses. Not longer than a key that HART reads in a walk without an allocation.
impl Sample for String {
    fn of(i: u64) -> Self {
        let begins = ["", "https://example.org/"][i as usize % 2];
        format!("{begins}{:020}", u64::of(i))
    }
}

impl Sample for Vec<u8> {
    fn of(i: u64) -> Self {
        vec![i as u8; 100 - (i % 50) as usize]
    }
}

/// Returns the numbers of allocations of gets and of scans, after a first run.
fn allocations<K: Key + Sample, V: Value + Sample>(index: &dyn Index<K, V>) -> (u64, u64) {
    let keys: Vec<K> = (0..RECORDS).map(K::of).collect();
    for (key, i) in keys.iter().zip(0..) {
        index.put(key.borrowed(), V::of(i).borrowed()).expect("room");
    }
    let missing = K::of(RECORDS);
    let mut value = V::of(50); // of the longest
    let mut get = || {
        for (key, i) in keys.iter().zip(0..) {
            assert!(index.get_into(key.borrowed(), &mut value).expect("intact"));
            assert_eq!(value, V::of(i));
        }
        assert!(!index.get_into(missing.borrowed(), &mut value).expect("intact"));
    };
    get();
    // The assertions make values, which allocate as the samples do.
    let samples = measure(|| (0..RECORDS).for_each(|i| drop(V::of(i)))).count_total;
    let gets = measure(&mut get).count_total - samples;

    let mut sorted: Vec<(K, V)> = keys.iter().cloned().zip((0..).map(V::of)).collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let mut page = Records::new();
    // Which record has which place in the buffer is another one in each round.
    let mut scan = || {
        for from in (0..sorted.len()).step_by(PAGE) {
            let (lower, upper) = (sorted[from].0.borrowed(), sorted[sorted.len() - 7].0.borrowed());
            let bounds = (Bound::Included(lower), Bound::Excluded(upper));
            let count =
                index.scan_bounds_into(bounds.0, bounds.1, PAGE, &mut page).expect("intact");
            let end = (from + PAGE).min(sorted.len() - 7);
            assert_eq!((count, &*page), (end - from, &sorted[from..end]));
        }
        let all = Bound::Unbounded;
        index.scan_bounds_into(all, all, PAGE, &mut page).expect("intact");
        assert_eq!(*page, sorted[..PAGE]);
    };
    // A place in the buffer is as long as its longest record after some rounds of the same; sorting a leaf
    // moves the places.
    (0..12).for_each(|_| scan());
    (gets, measure(&mut scan).count_total)
}

/// FAST&FAIR looks keys of several words up as bytes, which it allocates; BzTree copies keys with the
/// fingerprint of the wanted key.
fn all_allocates<K: Key>(kind: Kind) -> bool {
    match kind {
        Kind::FastFair => matches!(K::SHAPE, Shape::Inline(2..)),
        Kind::BzTree => K::SHAPE != Shape::Inline(1),
        _ => false,
    }
}

fn check<K: Key + Sample, V: Value + Sample>() {
    for &kind in Kind::ALL {
        let pool = Arc::new(Pool::emulated(64 << 20).expect("memory"));
        let index = AnyIndex::<K, V>::create(&pool, "index", kind).expect("room");
        let (gets, scans) = allocations(&index);
        if all_allocates::<K>(kind) {
            continue;
        }
        assert_eq!(gets, 0, "get_into of {kind}, {}", K::type_name());
        // BzTree's scans allocate for separators and for sorting keys.
        if kind != Kind::BzTree {
            assert_eq!(scans, 0, "scan_into of {kind}, {}", K::type_name());
        }
    }
}

#[test]
fn numbers_are_read_without_an_allocation() {
    check::<u64, u64>();
    check::<(u32, i64, bool), u64>();
    check::<u64, [u8; 40]>();
}

#[test]
fn strings_are_read_without_an_allocation() {
    check::<String, u64>();
    check::<String, Vec<u8>>();
    check::<[u8; 40], String>();
}

#[test]
fn maps_of_a_store_read_without_an_allocation() {
    let pool = Arc::new(Pool::emulated(64 << 20).expect("memory"));
    let store = Store::in_pool(&pool, &StoreOptions::new()).expect("room");
    let map: Map<String, Vec<u8>> = store.map("map").expect("room");
    assert_eq!(allocations(&map), (0, 0));
    // Through a snapshot too, if the record has not changed since.
    let snapshot = store.snapshot().expect("room");
    let (then, key) = (map.at(&snapshot), String::of(77));
    let mut value = Vec::of(50);
    let read = || assert!(then.get_into(&key, &mut value).expect("the snapshot lives"));
    assert_eq!(measure(read).count_total, 0);
    assert_eq!(value, Vec::of(77));
    map.put(&key, &Vec::of(1)).expect("room");
    assert!(then.get_into(&key, &mut value).expect("the snapshot lives"));
    assert_eq!(value, Vec::of(77));
    assert!(map.get_into(&key, &mut value).expect("intact"));
    assert_eq!(value, Vec::of(1));
}

/// A plain scan allocates only for its records.
#[test]
fn the_counter_counts() {
    let pool = Arc::new(Pool::emulated(64 << 20).expect("memory"));
    let index = AnyIndex::<String, Vec<u8>>::create(&pool, "index", Kind::FpTree).expect("room");
    for i in 0..RECORDS {
        index.put(&String::of(i), &Vec::of(i)).expect("room");
    }
    let mut out = Vec::with_capacity(200);
    let count = measure(|| index.scan("", 100, &mut out).expect("intact")).count_total;
    assert!((200..400).contains(&count), "{count} allocations for 100 records of two strings");
}
