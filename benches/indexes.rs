//! Benchmarks of every index: single operations, batches, scans, and opening after a kill, compared with
//! `BTreeMap`.
//!
//! `cargo bench --bench indexes` measures; `cargo test --benches` runs each once, with few records. A million
//! records with scattered 8-byte keys and values; flushes are emulated on a pool in memory (`/dev/shm`, if it
//! exists). `pmindex bench` measures other sizes, mixes and numbers of threads.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pmindex::{AnyIndex, Index, Kind, Pool, PoolOptions};

/// Tests have debug assertions, benchmarks have none.
const RECORDS: u64 = if cfg!(debug_assertions) { 1 << 12 } else { 1 << 20 };
const POOL_BYTES: u64 = if cfg!(debug_assertions) { 16 << 20 } else { 128 << 20 };
const BATCH: usize = 64;
const SCAN: usize = 100;

/// Returns scattered, distinct keys: multiplication by an odd number permutes.
fn key(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Generates keys in random order.
struct Keys {
    state: u64,
    made: u64,
}

impl Keys {
    fn new() -> Self {
        Self { state: 1, made: RECORDS }
    }

    /// Returns the key of an existing record.
    fn there(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x6a09_e667_f3bc_c909);
        key((self.state.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % RECORDS)
    }

    /// Returns a key that was never used.
    fn fresh(&mut self) -> u64 {
        self.made += 1;
        key(self.made)
    }
}

fn options() -> PoolOptions {
    PoolOptions::new().size(POOL_BYTES).emulate_pm(true)
}

/// Measures single operations and scans. Inserted records are removed again, untimed, and vice versa, so that
/// the size of the index stays the same.
fn one_by_one(c: &mut Criterion, name: &str, index: &AnyIndex<u64, u64>, keys: &mut Keys) {
    let mut group = c.benchmark_group("one by one");
    group.throughput(Throughput::Elements(1));
    group.bench_function(BenchmarkId::new("get", name), |b| {
        b.iter(|| black_box(index.get(&keys.there()).expect("sound")));
    });
    group.bench_function(BenchmarkId::new("get_miss", name), |b| {
        b.iter(|| black_box(index.get(&!keys.there()).expect("sound")));
    });
    group.bench_function(BenchmarkId::new("update", name), |b| {
        b.iter(|| assert!(index.update(&keys.there(), &keys.state).expect("room").is_ok()));
    });
    let mut last = None;
    group.bench_function(BenchmarkId::new("insert", name), |b| {
        let another = || {
            if let Some(last) = last.take() {
                index.remove(&last).expect("sound");
            }
            *last.insert(keys.fresh())
        };
        let insert = |key| assert!(index.try_insert(&key, &key).expect("room").is_ok());
        b.iter_batched(another, insert, BatchSize::PerIteration);
    });
    group.bench_function(BenchmarkId::new("remove", name), |b| {
        let another = || {
            let key = keys.fresh();
            index.try_insert(&key, &key).expect("room").expect("done");
            key
        };
        let remove = |key| assert!(index.remove(&key).expect("sound").is_some());
        b.iter_batched(another, remove, BatchSize::PerIteration);
    });
    let mut out = Vec::with_capacity(SCAN);
    group.bench_function(BenchmarkId::new("scan 100", name), |b| {
        b.iter(|| {
            out.clear();
            index.scan(&keys.there(), SCAN, &mut out).expect("sound");
            black_box(out.len())
        });
    });
    group.finish();
}

/// Measures batches of 64.
fn batches(c: &mut Criterion, name: &str, index: &AnyIndex<u64, u64>, keys: &mut Keys) {
    let mut group = c.benchmark_group("in batches of 64");
    group.throughput(Throughput::Elements(BATCH as u64));
    let mut found = [None; BATCH];
    group.bench_function(BenchmarkId::new("get_many", name), |b| {
        let wanted = || -> [u64; BATCH] { std::array::from_fn(|_| keys.there()) };
        let get = |wanted: [u64; BATCH]| index.get_many(&wanted, &mut found).expect("sound");
        b.iter_batched(wanted, get, BatchSize::SmallInput);
    });
    let mut last: Vec<(u64, u64)> = Vec::new();
    group.bench_function(BenchmarkId::new("insert_many", name), |b| {
        let others = || {
            for (key, _) in last.drain(..) {
                index.remove(&key).expect("sound");
            }
            last.extend((0..BATCH).map(|_| (keys.fresh(), 1)));
            last.clone()
        };
        let insert = |records: Vec<(u64, u64)>| index.try_insert_many(&records);
        b.iter_batched(others, insert, BatchSize::PerIteration);
    });
    group.finish();
}

/// Opens pool and index as a kill left them, and reads one record.
fn open(path: &Path) -> (Arc<Pool>, AnyIndex<u64, u64>) {
    let pool = Arc::new(Pool::open(path, &options()).expect("a pool"));
    let index = AnyIndex::open(&pool, "index").expect("an index");
    assert!(index.get(&key(1)).expect("sound").is_some());
    (pool, index)
}

fn indexes(c: &mut Criterion) {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder");
    let file = |name: &str| folder.path().join(name);
    for &kind in Kind::ALL {
        let pool = Arc::new(Pool::create(file("pool"), &options()).expect("room"));
        let index = AnyIndex::create(&pool, "index", kind).expect("room");
        for number in 0..RECORDS {
            index.try_insert(&key(number), &number).expect("room").expect("done");
        }
        // A kill leaves the file as it is now.
        std::fs::copy(file("pool"), file("killed")).expect("room");
        let mut keys = Keys::new();
        one_by_one(c, kind.name(), &index, &mut keys);
        batches(c, kind.name(), &index, &mut keys);
        index.close().expect("durable");
        drop(pool);
        let mut group = c.benchmark_group("open after a kill");
        group.sample_size(10);
        group.bench_function(kind.name(), |b| {
            let killed = || std::fs::copy(file("killed"), file("pool")).expect("room");
            b.iter_batched(killed, |_| open(&file("pool")), BatchSize::PerIteration);
        });
        group.finish();
        for name in ["pool", "killed"] {
            std::fs::remove_file(file(name)).expect("made above");
        }
    }
}

fn btreemap(c: &mut Criterion) {
    let mut keys = Keys::new();
    let mut map: BTreeMap<u64, u64> = (0..RECORDS).map(|number| (key(number), number)).collect();
    let mut group = c.benchmark_group("one by one");
    group.throughput(Throughput::Elements(1));
    group.bench_function(BenchmarkId::new("get", "btreemap"), |b| {
        b.iter(|| black_box(map.get(&keys.there()).copied()));
    });
    group.bench_function(BenchmarkId::new("get_miss", "btreemap"), |b| {
        b.iter(|| black_box(map.get(&!keys.there()).copied()));
    });
    group.bench_function(BenchmarkId::new("update", "btreemap"), |b| {
        b.iter(|| map.insert(keys.there(), keys.state));
    });
    group.bench_function(BenchmarkId::new("insert and remove", "btreemap"), |b| {
        b.iter(|| {
            let key = keys.fresh();
            map.insert(key, key);
            black_box(map.remove(&key))
        });
    });
    group.bench_function(BenchmarkId::new("scan 100", "btreemap"), |b| {
        b.iter(|| map.range(keys.there()..).take(SCAN).fold(0, |sum, record| sum ^ record.0));
    });
    group.finish();
}

criterion_group!(benches, btreemap, indexes);
criterion_main!(benches);
