//! Benchmarks of the allocator: single blocks and batches, with one and two threads, durable and volatile,
//! compared with the system allocator.
//!
//! `cargo bench --bench alloc` measures; `cargo test --benches` runs each once. Write-back is emulated on
//! anonymous memory: the instructions are real, the medium is DRAM.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pmindex::core::{Flushed, Medium, Owner, PPtr, PmCell, PmU64, Pool, pm_struct};

const BLOCKS: usize = 1024;
const BATCH: usize = 64;

/// The measured work on the owners of a pool.
type Work = fn(&Pool, PPtr<Owners>);

pm_struct! {
    /// A block of 1 KiB.
    #[align(64)]
    struct Block: size 1024 {
        words: [PmU64; 128],
    }

    /// Owners.
    #[align(64)]
    struct Owners: size 8448 {
        places: [PmCell<PPtr<Block>>; 1024],
        bits: [PmU64; 32],
    }
}

fn owners(pool: &Pool, name: &str) -> PPtr<Owners> {
    pool.create_index::<Owners>(name, *b"bench   ", 1, |_| Flushed::nothing()).expect("room").root()
}

/// Allocates a block for every place, then frees all.
fn one_by_one(pool: &Pool, owners: PPtr<Owners>) {
    let pm = pool.pm();
    let owners = pool.get(owners).expect("made above");
    for place in &owners.places {
        let init = |block: &Block| {
            pm.store(&block.words[0], 1);
            pm.flush(&block.words[0])
        };
        pool.alloc_into(place, init).expect("room");
    }
    for place in &owners.places {
        pool.free_from(place).expect("live");
    }
}

/// Allocates and frees the same number of blocks, 64 in an operation.
fn in_batches(pool: &Pool, owners: PPtr<Owners>) {
    let pm = pool.pm();
    let owners = pool.get(owners).expect("made above");
    for bits in &owners.bits[..BLOCKS / BATCH] {
        let mut blocks = Vec::with_capacity(BATCH);
        for value in [u64::MAX, 0] {
            let mut op = pool.op().expect("a slot");
            let mut filled = Flushed::nothing();
            if value == 0 {
                for (bit, block) in (0..).zip(&blocks) {
                    op.free(*block, Owner::bit(bits, bit)).expect("live");
                }
            } else {
                for bit in 0..BATCH as u32 {
                    let block = op.reserve::<Block>().expect("room");
                    let words = &pool.get(block.ptr()).expect("reserved").words;
                    pm.store(&words[0], 1);
                    filled = filled.and(pm.flush(&words[0]));
                    op.allocate(&block, Owner::bit(bits, bit)).expect("a ticket");
                    blocks.push(block.ptr());
                }
            }
            op.prepare(filled).expect("durable");
            pm.store(bits, value);
            let flushed = op.seal().and(pm.flush(bits));
            op.finish(pm.fence(flushed).expect("durable"));
        }
    }
}

fn system() {
    let mut blocks: Vec<Vec<u64>> = Vec::with_capacity(BLOCKS);
    for _ in 0..BLOCKS {
        let mut block = Vec::with_capacity(128);
        block.push(1);
        blocks.push(black_box(block));
    }
}

fn blocks(c: &mut Criterion) {
    let mut group = c.benchmark_group("allocate and free 1 KiB");
    group.throughput(Throughput::Elements(BLOCKS as u64));
    let pools = [
        ("durable", Pool::emulated(256 << 20).expect("memory")),
        ("volatile", Pool::volatile(256 << 20).expect("memory")),
    ];
    let works: [(&str, Work); 2] = [("one by one", one_by_one), ("in batches of 64", in_batches)];
    for (kind, pool) in &pools {
        let roots = [owners(pool, "a"), owners(pool, "b")];
        for (how, work) in works {
            let id = BenchmarkId::new(format!("{kind}, {how}"), "1 thread");
            group.bench_function(id, |b| b.iter(|| work(pool, roots[0])));
        }
        let id = BenchmarkId::new(format!("{kind}, one by one"), "2 threads");
        group.bench_function(id, |b| {
            b.iter_custom(|rounds| {
                let start = Instant::now();
                std::thread::scope(|threads| {
                    for root in roots {
                        threads.spawn(move || (0..rounds).for_each(|_| one_by_one(pool, root)));
                    }
                });
                start.elapsed() / 2 // two threads do twice the work
            });
        });
    }
    group.bench_function("system allocator", |b| b.iter(system));
    group.finish();
}

criterion_group!(benches, blocks);
criterion_main!(benches);
