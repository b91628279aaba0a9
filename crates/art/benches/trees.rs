//! Benchmarks of the radix tree, compared with `BTreeMap`, with scattered 8-byte keys.
//!
//! `cargo bench -p pmindex-art` measures; `cargo test --benches` runs each once.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Bound;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pmindex_art::{Direction, KeyBuf, Nodes, Root, Search, Tree};
use pmindex_core::{Arena, Mapped, PmError, Pool};

/// Fewer under test, whose profile has debug assertions: `cfg!(test)` is true in both.
const RECORDS: u64 = if cfg!(debug_assertions) { 1 << 10 } else { 1 << 20 };
const LOOKUPS: u64 = 1 << 10;

/// Returns scattered, distinct keys: multiplication by an odd number permutes. Leaf numbers have 61 bits, so
/// the leaf is the number and the key is its product.
fn key(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[allow(clippy::unnecessary_wraps, reason = "what the tree calls")]
fn load(leaf: u64, out: &mut KeyBuf) -> Result<(), PmError> {
    out.push(&key(leaf).to_be_bytes());
    Ok(())
}

fn wanted(i: u64) -> u64 {
    key(i.wrapping_mul(7919) % RECORDS)
}

type Loader = fn(u64, &mut KeyBuf) -> Result<(), PmError>;

fn benches(c: &mut Criterion) {
    let pool = Pool::volatile(1 << 16).expect("memory");
    let pm = pool.pm();
    let roots: Arena<Root> = Arena::new(1).expect("memory");
    let nodes = Nodes::new(2 * RECORDS).expect("memory");
    let leaves: Loader = load;
    let tree = Tree::new(&nodes, roots.get(roots.alloc().expect("memory")), &leaves);
    let mut map = BTreeMap::new();
    for number in 0..RECORDS {
        tree.insert(pm, &key(number).to_be_bytes(), number).expect("memory");
        map.insert(key(number), number);
    }
    println!("{} bytes of nodes per key", nodes.bytes() as u64 / RECORDS);
    let mut group = c.benchmark_group("art");
    group.throughput(Throughput::Elements(LOOKUPS));
    group.bench_function("get/art", |b| {
        b.iter(|| {
            for i in 0..LOOKUPS {
                black_box(tree.get(pm, &wanted(i).to_be_bytes()).expect("sound"));
            }
        });
    });
    group.bench_function("get/btreemap", |b| {
        b.iter(|| {
            for i in 0..LOOKUPS {
                black_box(map.get(&wanted(i)));
            }
        });
    });
    group.bench_function("get_many/art", |b| {
        let mut places = Vec::new();
        b.iter(|| {
            for start in (0..LOOKUPS).step_by(64) {
                let keys: [[u8; 8]; 64] =
                    std::array::from_fn(|i| wanted(start + i as u64).to_be_bytes());
                let searches: [_; 64] =
                    std::array::from_fn(|i| Search { root: tree.root(), key: &keys[i] });
                nodes.find_many(pm, &searches, &mut places, |leaf| {
                    black_box(leaf);
                });
            }
        });
    });
    group.bench_function("floor/art", |b| {
        b.iter(|| {
            for i in 0..LOOKUPS {
                black_box(tree.floor(pm, &(wanted(i) + 1).to_be_bytes()).expect("sound"));
            }
        });
    });
    group.bench_function("floor/btreemap", |b| {
        b.iter(|| {
            for i in 0..LOOKUPS {
                black_box(map.range(..=wanted(i) + 1).next_back());
            }
        });
    });
    group.finish();
    changes_and_walks(c, pm, &tree, &mut map);
}

fn changes_and_walks(
    c: &mut Criterion,
    pm: &Mapped,
    tree: &Tree<'_, Loader>,
    map: &mut BTreeMap<u64, u64>,
) {
    let mut group = c.benchmark_group("art");
    group.throughput(Throughput::Elements(LOOKUPS));
    group.bench_function("insert, remove/art", |b| {
        b.iter(|| {
            for i in RECORDS..RECORDS + LOOKUPS {
                tree.insert(pm, &key(i).to_be_bytes(), i).expect("memory");
            }
            for i in RECORDS..RECORDS + LOOKUPS {
                tree.remove(pm, &key(i).to_be_bytes()).expect("sound");
            }
        });
    });
    group.bench_function("insert, remove/btreemap", |b| {
        b.iter(|| {
            for i in RECORDS..RECORDS + LOOKUPS {
                map.insert(key(i), i);
            }
            for i in RECORDS..RECORDS + LOOKUPS {
                map.remove(&key(i));
            }
        });
    });
    group.bench_function("walk 1024/art", |b| {
        let mut places = Vec::new();
        b.iter(|| {
            places.clear();
            let from = wanted(5).to_be_bytes();
            tree.walk(pm, Bound::Included(&from), Direction::Ascending, 1024, &mut places)
                .expect("sound")
        });
    });
    group.bench_function("walk 1024/btreemap", |b| {
        b.iter(|| map.range(wanted(5)..).take(1024).map(|(_, v)| *v).sum::<u64>());
    });
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
