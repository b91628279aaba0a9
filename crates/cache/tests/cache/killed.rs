//! Kills a real process: the next one is warm at once.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use pmindex_cache::{Block, BlockCache, CacheOptions, Key};
use pmindex_core::{Durability, PmError, Pool, PoolOptions};

const CHILD: &str = "PMINDEX_TEST_WARM_CHILD";
/// The blocks of the slow file.
const BLOCKS: u64 = 6_000;
const BLOCK: u64 = 1024;
/// The accesses of one hit ratio.
const WINDOW: u64 = 10_000;

fn cache(path: &Path) -> BlockCache {
    let options = PoolOptions::new().size(16 << 20).require(Durability::Process);
    let pool = Arc::new(Pool::open_or_create(path, &options).expect("a pool"));
    let options = CacheOptions::new(2 << 20).segment_bytes(64 << 10);
    match BlockCache::open(&pool, "blocks", &options).expect("whole") {
        Some(cache) => cache,
        None => BlockCache::create(&pool, "blocks", &options).expect("room"),
    }
}

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ x >> 32
}

/// Returns the contents of a block of the slow file.
fn block(n: u64) -> Vec<u8> {
    (0..BLOCK / 8).flat_map(|at| mix(n << 20 | at).to_le_bytes()).collect()
}

/// Four of five accesses go to a fifth of the blocks.
fn nth(access: u64) -> u64 {
    let random = mix(access.wrapping_mul(0x2545_f491_4f6c_dd1d) + 1);
    let hot = !random.is_multiple_of(5);
    (random >> 8) % if hot { BLOCKS / 5 } else { BLOCKS }
}

/// Returns the hits in a window of 10,000 accesses, and checks the bytes of each.
fn window(cache: &BlockCache, number: u64) -> u64 {
    let before = cache.metrics().hits;
    for access in number * WINDOW..(number + 1) * WINDOW {
        let n = nth(access);
        let key = Key { instance: 1, file: n / 100, offset: n % 100 * BLOCK };
        let load = || Ok::<_, PmError>(Block { kind: 0, bytes: block(n) });
        assert_eq!(cache.get_or_load(&key, load).expect("loaded").bytes, block(n), "block {n}");
    }
    (cache.metrics().hits - before) * 10_000 / WINDOW
}

/// Reads blocks until it is killed, and prints the hits of each window.
fn child(path: &Path) -> ! {
    let cache = cache(path);
    for number in 0.. {
        println!("window {number} hits {}", window(&cache, number));
    }
    unreachable!()
}

#[test]
fn the_hit_ratio_after_a_kill_is_at_once_what_it_was() {
    if let Ok(path) = std::env::var(CHILD) {
        child(Path::new(&path));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pool");
    let mut victim = Command::new(std::env::current_exe().expect("this program"))
        .args(["killed::the_hit_ratio_after_a_kill_is_at_once_what_it_was", "--exact"])
        .arg("--nocapture")
        .env(CHILD, &path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let lines = BufReader::new(victim.stdout.take().expect("piped")).lines();
    let mut windows = lines.map_while(Result::ok).filter_map(|line| {
        let words = line.split("window ").nth(1)?;
        let (number, hits) = words.split_once(" hits ")?;
        Some((number.parse::<u64>().ok()?, hits.trim().parse::<u64>().ok()?))
    });
    let cold = windows.next().expect("a window").1;
    let mut last = windows.by_ref().find(|&(number, _)| number >= 9).expect("windows");
    victim.kill().expect("killed"); // in the middle of a window
    last = windows.last().unwrap_or(last); // the rest of the pipe
    victim.wait().expect("ended");

    let cache = cache(&path);
    let warm = window(&cache, last.0 + 2);
    println!("in 10,000: cold {cold}, before the kill {}, after it {warm}", last.1);
    assert!(cold < last.1, "{cold} of {}: the cache was never cold", last.1);
    assert!(warm * 100 >= last.1 * 95, "{warm} of {}", last.1);
    assert_eq!(cache.metrics().corrupt, 0);
    cache.check().expect("whole");
    // A new cache, in which no block is evicted in a window, has fewer hits.
    let empty = self::cache(&folder.path().join("other"));
    let cold = window(&empty, last.0 + 2);
    assert!(cold * 100 < last.1 * 95, "an empty cache passes this test: {cold}");
}
