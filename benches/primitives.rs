//! Benchmarks of the persistence primitives, one number each: the cost of making a store durable, and of the
//! racing bulk reads in the inner loops of the indexes.
//!
//! `cargo bench --bench primitives` measures; `cargo test --benches` runs each once. Write-back is emulated
//! on anonymous memory: the instructions are real, the medium is DRAM.
#![forbid(unsafe_code)]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use pmindex::core::sync::VersionLock;
use pmindex::core::{Medium, PPtr, PmU64, Pool, rank_sort};

/// The offset of the words that are read and written.
const FIRST: u64 = 4 << 20;
/// Their bytes: many times the private caches.
const SPAN: u64 = 256 << 20;

fn pool() -> Pool {
    Pool::emulated((FIRST + SPAN + 4096) as usize).expect("memory")
}

/// A generator of scattered offsets, multiples of `align` below `span`.
struct Scatter(u64);

impl Scatter {
    fn next(&mut self, span: u64, align: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        FIRST + (self.0 >> 20) % span / align * align
    }
}

/// Stores, writes back and fences, on a scattered line each time.
fn persist(c: &mut Criterion) {
    let pool = pool();
    let pm = pool.pm();
    let mut group = c.benchmark_group("persist");
    let mut scatter = Scatter(1);
    let mut lines = |count: usize| {
        let offset = scatter.next(SPAN, 64 * 16);
        pool.words(offset, 8 * count).expect("in bounds")
    };
    for count in [1, 2, 4, 8] {
        group.bench_function(BenchmarkId::new("lines under one fence", count), |b| {
            b.iter(|| {
                let words = lines(count);
                for line in words.as_chunks::<8>().0 {
                    pm.store(&line[0], 1);
                }
                pm.fence(pm.flush_words(words))
            });
        });
    }
    group.bench_function("one word, non-temporal where faster", |b| {
        b.iter(|| pm.fence(pm.store_nt(&lines(1)[0], 1)));
    });
    for count in [1, 4, 16] {
        group.bench_function(BenchmarkId::new("streamed lines", count), |b| {
            b.iter(|| pm.fence(pm.stream_words(lines(count), &[1; 128][..8 * count])));
        });
    }
    group.bench_function("store alone", |b| b.iter(|| pm.store(&lines(1)[0], 1)));
    group.finish();
}

/// Reads words in bulk that are in the cache.
fn bulk_reads(c: &mut Criterion) {
    let pool = pool();
    let pm = pool.pm();
    let words = pool.words(FIRST, 128).expect("in bounds");
    for (i, word) in words.iter().enumerate() {
        pm.store(word, (i as u64) << 32);
    }
    let mut group = c.benchmark_group("read");
    let mut copy = [0; 128];
    for count in [8, 64, 128] {
        group.bench_function(BenchmarkId::new("words", count), |b| {
            b.iter(|| {
                pm.read_words(&words[..black_box(count)], &mut copy);
                black_box(copy[0])
            });
        });
    }
    group.bench_function("match 56 fingerprints and their header", |b| {
        b.iter(|| pm.match_byte(black_box(&words[..8]), black_box(3)));
    });
    group.bench_function("match 32 words", |b| {
        b.iter(|| pm.match_word(black_box(&words[..32]), black_box(9 << 32)));
    });
    for count in [16, 30, 64] {
        group.bench_function(BenchmarkId::new("count less", count), |b| {
            b.iter(|| pm.count_less(&words[..count], black_box(9 << 32)));
        });
    }
    let probe: Vec<u8> = (0..20u64).flat_map(|i| (i << 32).to_le_bytes()).collect();
    for len in [20, 100] {
        group.bench_function(BenchmarkId::new("compare bytes", len), |b| {
            b.iter(|| pm.cmp_bytes(black_box(words), len, black_box(&probe[..len])));
        });
    }
    group.finish();
}

/// Follows a checked pointer and validates the read value, compared with an array in DRAM.
fn access(c: &mut Criterion) {
    let pool = pool();
    let pm = pool.pm();
    let near = 1 << 14; // in the first-level cache
    let array: Vec<[u64; 8]> = (0..near / 64).map(|i| [i; 8]).collect();
    let lock = VersionLock::new();
    let mut group = c.benchmark_group("access");
    let mut scatter = Scatter(7);
    group.bench_function("index an array", |b| {
        b.iter(|| array[((scatter.next(near, 64) - FIRST) / 64) as usize][1]);
    });
    group.bench_function("follow a pointer, load", |b| {
        b.iter(|| {
            let line =
                pool.get(PPtr::<[PmU64; 8]>::new(scatter.next(near, 64))).expect("in bounds");
            pm.load(&line[1])
        });
    });
    group.bench_function("the same, validated by a version", |b| {
        b.iter(|| {
            let version = lock.begin_read(pm);
            let line =
                pool.get(PPtr::<[PmU64; 8]>::new(scatter.next(near, 64))).expect("in bounds");
            let value = pm.load(&line[1]);
            lock.validate(pm, version).then_some(value)
        });
    });
    group.finish();
}

/// Sorts the keys of a leaf.
fn leaf_order(c: &mut Criterion) {
    let mut scatter = Scatter(3);
    let leaves: Vec<[u64; 64]> =
        (0..256).map(|_| std::array::from_fn(|_| scatter.next(u64::MAX >> 20, 1))).collect();
    let mut group = c.benchmark_group("order");
    for count in [16, 40, 64] {
        let mut turn = leaves.iter().cycle();
        let mut order = [0u8; 64];
        group.bench_function(BenchmarkId::new("by rank", count), |b| {
            b.iter(|| {
                let keys = turn.next().expect("a cycle has no end");
                rank_sort(&keys[..count], &mut order)[0]
            });
        });
        group.bench_function(BenchmarkId::new("by the standard sort", count), |b| {
            b.iter(|| {
                let keys = turn.next().expect("a cycle has no end");
                let order = &mut order[..count];
                order.iter_mut().zip(0..).for_each(|(place, i)| *place = i);
                order.sort_unstable_by_key(|&i| keys[usize::from(i)]);
                order[0]
            });
        });
    }
    group.finish();
}

criterion_group!(benches, persist, bulk_reads, access, leaf_order);
criterion_main!(benches);
