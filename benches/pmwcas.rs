//! Benchmarks of multi-word compare-and-swap by the number of words, durable and volatile, and of reads.
//!
//! `cargo bench --bench pmwcas` measures; `cargo test --benches` runs each once. Write-back is emulated on
//! anonymous memory: the instructions are real, the medium is DRAM.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pmindex::core::{Medium, PmU64, Pool};
use pmindex_pmwcas::{Config, Mwcas};

/// A line for each word.
const STRIDE: usize = 8;
const LINES: usize = 4096;
const WORDS: usize = STRIDE * LINES;

/// Adds one to `width` words, each on a line of its own.
fn change(mwcas: &Mwcas, words: &[PmU64], first: usize, width: usize) {
    let mut session = mwcas.session().expect("a partition");
    let mut change = session.descriptor();
    for line in first..first + width {
        let word = &words[line % LINES * STRIDE];
        let value = mwcas.read(word).expect("no descriptor stays");
        change.add_word(word, value, value + 1).expect("room in the descriptor");
    }
    assert!(change.execute().expect("durable"), "nobody else changes them");
}

fn words(c: &mut Criterion) {
    let pools = [
        ("durable", Pool::emulated(64 << 20).expect("memory")),
        ("volatile", Pool::volatile(64 << 20).expect("memory")),
    ];
    let mut group = c.benchmark_group("pmwcas");
    group.throughput(Throughput::Elements(1));
    for (kind, pool) in pools {
        let pool = Arc::new(pool);
        let made = |words: &[PmU64; WORDS]| {
            for word in words {
                pool.pm().store(word, 0);
            }
            pool.pm().flush(words)
        };
        let entry = pool.create_index::<[PmU64; WORDS]>("words", *b"words   ", 0, made);
        let words = pool.get(entry.expect("room").root::<[PmU64; WORDS]>()).expect("made above");
        let mwcas = Mwcas::create(&pool, "mwcas", Config::default()).expect("room");
        let mut at = 0;
        for width in [1, 2, 4, 8, 12] {
            let id = BenchmarkId::new(kind, format!("{width} words"));
            group.bench_function(id, |b| {
                b.iter(|| {
                    at = (at + 61) % LINES;
                    change(&mwcas, words, at, width);
                });
            });
        }
        group.bench_function(BenchmarkId::new(kind, "read"), |b| {
            b.iter(|| {
                at = (at + 61) % LINES;
                black_box(mwcas.read(&words[at * STRIDE]).expect("a value"));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, words);
criterion_main!(benches);
