//! Keys that make trees as deep as they can be: what an operation does is bounded by its key's length.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::trace::{Space, ThreadControl, run_as};
use pmindex_core::{Pool, PoolOptions, Traced};
use pmindex_hart::Hart;

/// Counts accesses to the pool and looks at locks: two for each node on a way.
#[derive(Default)]
struct Steps(AtomicU64);

impl ThreadControl for Steps {
    fn yield_point(&self, _thread: u16) {
        self.0.fetch_add(1, Relaxed);
    }
    fn spin(&self, _thread: u16) {
        panic!("nobody to wait for");
    }
}

/// Runs `body`; how many steps it took.
fn steps(body: impl FnOnce()) -> u64 {
    let steps = Arc::new(Steps::default());
    run_as(0, Arc::clone(&steps) as Arc<dyn ThreadControl>, body);
    steps.0.load(Relaxed)
}

/// Sets of keys, by name.
fn hostile() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let long = |byte: u8, len: usize| vec![byte; len];
    let with = |mut key: Vec<u8>, end: &[u8]| {
        key.extend_from_slice(end);
        key
    };
    let chain = |byte: u8| (1..=600).map(move |len| long(byte, len)).collect::<Vec<_>>();
    let comb = (1..=300).flat_map(|len| [long(b'a', len), with(long(b'a', len), b"b")]);
    let numbers = (0..600u64).map(|n| with(long(b'p', 900), &n.to_be_bytes()));
    let late = (1..=600).map(|len| with(long(b'p', 400), &long(0, len)));
    vec![
        ("a, aa, aaa, ..", chain(b'a')),
        ("the same, the longest first", chain(0xff).into_iter().rev().collect()),
        ("a chain, and a fork at each of its keys", comb.collect()),
        ("numbers behind a long common part", numbers.collect()),
        ("a chain behind a long common part", late.collect()),
    ]
}

/// Steps of an operation besides those for its key's bytes: the record, locks, a share of a chunk.
const BESIDES: u64 = 150;

#[test]
fn no_way_has_more_nodes_than_its_key_has_bytes() {
    for (name, keys) in hostile() {
        let options = PoolOptions::new().size(8 << 20).grow(false);
        let len = options.created_size().expect("a size") as usize;
        let space = Space::new(len, len);
        let pool = Arc::new(Pool::create_traced(&space, &options).expect("created"));
        let hart = Hart::<Vec<u8>, u64, Traced>::create(&pool, "hostile").expect("created");
        let (count, bytes) = (keys.len() as u64, keys.concat().len() as u64);
        let mut inserts = 0;
        for (n, key) in (0..).zip(&keys) {
            inserts += steps(|| assert_eq!(hart.try_insert(key, &n), Ok(Ok(()))));
        }
        let (mut gets, mut removals) = (0, 0);
        for (n, key) in (0..).zip(&keys) {
            let took = steps(|| assert_eq!(hart.get(key), Ok(Some(n))));
            // Two looks at each node, and two accesses for each word of the key.
            let most = BESIDES + 2 * key.len() as u64 + key.len() as u64 / 4;
            assert!(took <= most, "{name}, get {n}: {took} steps for {} bytes", key.len());
            gets += took;
        }
        assert_eq!(hart.check(), Ok(count), "{name}");
        let inners = hart.stats().expect("sound").inners;
        assert!(inners <= 2 * count + bytes / 9, "{name}: {inners} nodes");
        for (n, key) in (0..).zip(&keys) {
            removals += steps(|| assert_eq!(hart.remove(key), Ok(Some(n))));
        }
        assert_eq!(hart.stats().expect("sound").inners, 0, "{name}");
        println!("{name}: {count} keys, {bytes} bytes: {inserts}, {gets}, {removals} steps");
        // An insert descends once: it continues where its search ended.
        assert!(inserts <= count * BESIDES + 3 * bytes, "{name}: {inserts} steps of inserts");
        assert!(removals <= count * BESIDES + 3 * bytes, "{name}: {removals} steps of removals");
    }
}
