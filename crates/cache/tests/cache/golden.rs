//! Golden costs of the block cache.

use std::sync::Arc;

use pmindex_cache::{BlockCache, CacheOptions, Inserted, Key, Prefix};
use pmindex_core::Pool;
use pmindex_testkit::golden::{self, Row};

const BLOCK: usize = 4096;
/// The blocks of a row.
const BLOCKS: u64 = 200;

type Cache = BlockCache;

fn pool() -> Arc<Pool> {
    Arc::new(Pool::counting(8 << 20).expect("memory"))
}

/// Eight segments of 256 KiB: about 480 blocks.
fn cache(pool: &Arc<Pool>) -> Cache {
    let options = CacheOptions::new(2 << 20).segment_bytes(256 << 10).identity(7);
    BlockCache::create(pool, "blocks", &options).expect("room")
}

fn key(n: u64) -> Key {
    Key { instance: 1, file: n / 64, offset: n % 64 * BLOCK as u64 }
}

fn put(cache: &Cache, n: u64, version: u64) {
    let bytes: Vec<u8> = (0..BLOCK as u64).map(|at| (n * 31 + version + at) as u8).collect();
    assert_eq!(cache.insert(&key(n), 0, &bytes).expect("room"), Inserted::Stored);
}

fn hit(cache: &Cache, n: u64) {
    assert!(cache.get(&key(n)).is_some(), "{n}");
}

#[test]
fn golden_block_cache() {
    let (pool, mut rows) = (pool(), Vec::<Row>::new());
    let cache = cache(&pool);
    let pm = pool.pm();
    let mut row = |name: &str, operations: u64, run: &dyn Fn(u64)| {
        rows.push(golden::measure(pm, name, operations, || (0..operations).for_each(run)));
    };
    row("insert of 4 KiB into new segments", BLOCKS, &|n| put(&cache, n, 0));
    row("first hit", BLOCKS, &|n| hit(&cache, n));
    row("hit", BLOCKS, &|n| hit(&cache, n));
    row("miss", BLOCKS, &|n| assert!(cache.get(&key(100_000 + n)).is_none()));
    row("insert that replaces", BLOCKS, &|n| put(&cache, n, 1));
    (1_000..2_000).for_each(|n| put(&cache, n, 0));
    row("insert into segments used anew", BLOCKS, &|n| put(&cache, 2_000 + n, 0));
    row("insert, another block hit before each", BLOCKS, &|n| {
        hit(&cache, 2_000 + n);
        put(&cache, 3_000 + n, 0);
    });
    row("seal", 1, &|_| cache.seal().expect("sound"));
    row("remove", 32, &|n| assert!(cache.remove(&key(3_100 + n)).expect("sound")));
    row("invalidate a file of 64 blocks", 1, &|_| {
        let file = key(3_150).file;
        assert!(cache.invalidate(Prefix::File(1, file)).expect("sound") > 30);
    });
    drop(cache);
    row("open", 1, &|_| {
        let cache = BlockCache::open(&pool, "blocks", &CacheOptions::default());
        assert!(cache.expect("sound").expect("there").len() > 300);
    });
    golden::check("block-cache", &rows);
}
