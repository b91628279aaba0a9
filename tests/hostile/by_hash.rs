//! Attacks on the index by hash, which is no [`Kind`](pmindex::Kind): an error or any answer, and no more memory than
//! is in proportion to the file.

use std::cell::Cell;
use std::sync::Arc;

use pmindex::core::{Pool, PoolOptions};
use pmindex::{Cceh, IndexError, Key, Value};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::Damage;
use crate::attack::damaged;
use crate::image::{bytes_of, number, text};
use crate::tests::{damages, times};

/// Attacks of one image.
const ATTACKS: usize = 60;
const RECORDS: u64 = 1500;
/// Bytes in DRAM for one of the pool: the arrays of the directory, and the smaller ones that they replaced.
const IN_DRAM: u64 = 8;

fn options() -> PoolOptions {
    PoolOptions::new().size(512 << 10).zone_bytes(64 << 10).slots(4).write_back(false)
}

/// The words of a pool with an index that was killed, or closed.
fn image<K: Key, V: Value>(
    closed: bool,
    key: impl Fn(u64) -> K,
    value: impl Fn(u64) -> V,
) -> Vec<u64> {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("image");
    let pool = Arc::new(Pool::create(&path, &options()).expect("created"));
    let index = Cceh::<K, V>::create(&pool, "target").expect("created");
    for n in 0..RECORDS {
        index.put(key(number(n)).borrowed(), value(n).borrowed()).expect("room");
    }
    for n in 0..RECORDS / 10 {
        index.remove(key(number(n)).borrowed()).expect("there");
    }
    if closed {
        index.close().expect("closed");
    } else {
        drop(index);
    }
    let pool = Arc::into_inner(pool).expect("the only one");
    if closed {
        pool.close().expect("closed");
    } else {
        pool.kill();
    }
    let bytes = std::fs::read(&path).expect("readable");
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Opens an image and uses the index; returns `true` if it opened.
fn exploit<K: Key, V: Value>(
    image: &[u64],
    key: impl Fn(u64) -> K,
    value: impl Fn(u64) -> V,
) -> bool {
    let bytes = bytes_of(image);
    let Ok(pool) = Pool::open_copy(&bytes, &options().grow(false)) else { return false };
    let pool = Arc::new(pool);
    let _ = Cceh::<K, V>::salvage(&pool, "target", Some(&|_| false), &mut |_, _| true);
    let Ok(index) = Cceh::<K, V>::open(&pool, "target") else { return false };
    // Any result is right, as long as the call returns.
    let _ = (index.check(), index.len());
    let _ = index.for_each(&mut |_, _| true);
    let used = (0..200).try_for_each(|n| {
        let (key, value) = (key(n), value(n));
        index.get(key.borrowed())?;
        index.put(key.borrowed(), value.borrowed())?;
        index.remove(key.borrowed())?;
        Ok::<_, IndexError>(())
    });
    let _ = (used, index.check());
    if let Ok(stats) = index.stats() {
        let dram = stats.dram_bytes;
        assert!(dram < IN_DRAM * bytes.len() as u64, "{dram} bytes in DRAM for a small file");
    }
    let _ = pool.audit(index.blocks().unwrap_or_default().into_iter());
    let _ = index.close();
    true
}

fn attack_all<K: Key, V: Value>(key: impl Fn(u64) -> K + Copy, value: impl Fn(u64) -> V + Copy) {
    for closed in [false, true] {
        let image = image(closed, key, value);
        assert!(exploit(&image, key, value), "it is sound");
        let used: Vec<usize> = (0..image.len()).filter(|&at| image[at] != 0).collect();
        let opened = Cell::new(0);
        let cases = (ATTACKS * times()) as u32;
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let attack = |damages: &[Damage], forge| {
            let got_in = exploit(&damaged(&image, &used, damages, forge), key, value);
            opened.set(opened.get() + u32::from(got_in));
        };
        let outcome = runner.run(&(damages(), proptest::bool::ANY), |(damages, forge)| {
            attack(&damages, forge);
            Ok(())
        });
        outcome.unwrap_or_else(|e| panic!("{e}"));
        let opened = opened.get();
        assert!(opened > cases / 10, "only {opened} attacks got in");
    }
}

#[test]
fn whatever_an_index_by_hash_contains_is_an_error_or_an_answer() {
    attack_all(|n| n, |n| !n);
    attack_all(text, |n| text(n * 3));
}

/// A list in which each segment covers half of what the next one covers is valid, and makes the directory as long as
/// the deepest one wants.
#[test]
fn a_small_file_chooses_no_large_directory() {
    const BYTES: usize = 16 << 10;
    let options = PoolOptions::new().size(2 << 20).zone_bytes(1 << 20).slots(4).write_back(false);
    let path = tempfile::tempdir().expect("a folder");
    let path = path.path().join("image");
    let pool = Arc::new(Pool::create(&path, &options).expect("created"));
    let index = Cceh::<u64, u64>::create(&pool, "target").expect("created");
    for n in 0..20_000 {
        index.put(&n, &n).expect("room");
    }
    let blocks = index.blocks().expect("whole");
    let (root, segments) = blocks.split_first().expect("a root");
    drop(index);
    Arc::into_inner(pool).expect("the only one").kill();
    let bytes = std::fs::read(&path).expect("readable");
    let mut image: Vec<u64> =
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    assert!(segments.len() > 32, "{}", segments.len());
    let bases = [0].into_iter().chain((1..=32).rev().map(|depth| 1u64 << (64 - depth)));
    let mut next = 0;
    for (base, &segment) in bases.collect::<Vec<_>>().into_iter().zip(segments).rev() {
        assert!(segment as usize + BYTES <= bytes.len());
        image[segment as usize / 8] = base;
        image[segment as usize / 8 + 1] = next;
        next = segment;
    }
    assert_eq!(image[*root as usize / 8], next, "the list begins with the same segment");
    pmindex::core::forge_checksums(&mut image);
    let pool = Pool::open_copy(&bytes_of(&image), &options).expect("a pool");
    let opened = Cceh::<u64, u64>::open(&Arc::new(pool), "target");
    assert!(opened.is_err(), "a directory of 2^26 entries for a file of {} bytes", bytes.len());
}
