//! Each adapter returns the loaded data, and loads once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pmindex_cache::{Block, BlockCache, CacheOptions, Key, Prefix};
use pmindex_cache_adapters::{FoyerFront, MokaFront, SlateCache};
use pmindex_core::{Pool, PoolOptions};
use slatedb::Db;
use slatedb::db_cache::moka::MokaCache;
use slatedb::object_store::memory::InMemory;

fn pool() -> Arc<Pool> {
    Arc::new(Pool::emulated(32 << 20).expect("memory"))
}

fn back(pool: &Arc<Pool>) -> Arc<BlockCache> {
    let cache = BlockCache::create(pool, "blocks", &CacheOptions::new(16 << 20));
    Arc::new(cache.expect("room"))
}

/// Returns the pool as the next process finds it after a kill.
fn killed(pool: &Pool) -> Arc<BlockCache> {
    let mut image = vec![0; usize::try_from(pool.len()).expect("small")];
    pool.read_image(0, &mut image).expect("whole");
    let pool = Arc::new(Pool::open_copy(&image, &PoolOptions::new()).expect("whole"));
    let cache = BlockCache::open(&pool, "blocks", &CacheOptions::default());
    Arc::new(cache.expect("whole").expect("there"))
}

fn key(n: u64) -> Key {
    Key { instance: 1, file: n / 100, offset: n % 100 }
}

fn block(n: u64) -> Block {
    Block { kind: 7, bytes: vec![n as u8; 100 + n as usize] }
}

#[tokio::test(flavor = "multi_thread")]
async fn moka_loads_once_and_is_warm_afterwards() {
    let pool = pool();
    let loads = Arc::new(AtomicU64::new(0));
    let front = MokaFront::new(10_000, back(&pool)); // a part of the blocks
    let get = async |front: &MokaFront, n| {
        let load = || async {
            loads.fetch_add(1, Relaxed);
            Ok::<_, std::io::Error>(block(n))
        };
        front.get_or_load(key(n), load).await.expect("loaded")
    };
    for _ in 0..2 {
        for n in 0..200 {
            assert_eq!(*get(&front, n).await, block(n));
        }
    }
    assert_eq!(loads.load(Relaxed), 200);
    let front = MokaFront::new(10_000, killed(&pool));
    for n in 0..200 {
        assert_eq!(*get(&front, n).await, block(n));
    }
    assert_eq!(loads.load(Relaxed), 200);
    assert_eq!(front.invalidate(Prefix::File(1, 1)).expect("whole"), 100);
    for n in 0..200 {
        get(&front, n).await;
    }
    assert_eq!(loads.load(Relaxed), 300);
    let fails = front.get_or_load(key(900), || async { Err(std::io::Error::other("no disk")) });
    assert!(fails.await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn foyer_loads_once_and_is_warm_afterwards() {
    let pool = pool();
    let loads = Arc::new(AtomicU64::new(0));
    let front = FoyerFront::new(10_000, back(&pool));
    let get = async |front: &FoyerFront, n| {
        let loads = Arc::clone(&loads);
        let load = move || async move {
            loads.fetch_add(1, Relaxed);
            tokio::task::yield_now().await;
            Ok::<_, std::io::Error>(block(n))
        };
        front.get_or_load(key(n), load).await.expect("loaded")
    };
    for n in 0..200 {
        let (one, two) = tokio::join!(get(&front, n), get(&front, n));
        assert_eq!((&*one, &*two), (&block(n), &block(n)));
    }
    assert_eq!(loads.load(Relaxed), 200);
    let front = FoyerFront::new(10_000, killed(&pool));
    for n in 0..200 {
        assert_eq!(*get(&front, n).await, block(n));
    }
    assert_eq!(loads.load(Relaxed), 200);
    front.remove(&key(3)).expect("whole");
    assert_eq!(front.invalidate(Prefix::File(1, 1)).expect("whole"), 100);
    for n in 0..200 {
        get(&front, n).await;
    }
    assert_eq!(loads.load(Relaxed), 301);
}

/// A pool of few segments, which new blocks fill again and again.
fn small(pool: &Arc<Pool>, segments: u64) -> Arc<BlockCache> {
    let options = CacheOptions::new(segments << 16).segment_bytes(64 << 10);
    Arc::new(BlockCache::create(pool, "blocks", &options).expect("room"))
}

/// Ten blocks are read all the time, among thousands that are each read once. The cache in front has room for
/// all of them, the pool for a few hundred.
async fn hot_among_cold(mut get: impl AsyncFnMut(u64)) {
    for cold in 0..4000 {
        get(cold % 10).await;
        get(100 + cold).await;
    }
}

fn assert_hot_is_there(back: &BlockCache) {
    assert!(back.len() < 1000, "cold blocks went");
    for n in 0..10 {
        assert_eq!(back.get(&key(n)), Some(block(n)), "hot, but hit in front alone");
    }
}

#[tokio::test]
async fn what_moka_has_in_front_stays_in_the_pool() {
    let pool = pool();
    let front = MokaFront::new(64 << 20, small(&pool, 8));
    let load = async |n: u64| Ok::<_, std::io::Error>(block(n % 1000));
    hot_among_cold(async |n| {
        front.get_or_load(key(n), || load(n)).await.expect("loaded");
    })
    .await;
    assert_hot_is_there(&killed(&pool));
}

#[tokio::test]
async fn what_foyer_has_in_front_stays_in_the_pool() {
    let pool = pool();
    let front = FoyerFront::new(64 << 20, small(&pool, 8));
    hot_among_cold(async |n| {
        let load = move || async move { Ok::<_, std::io::Error>(block(n % 1000)) };
        front.get_or_load(key(n), load).await.expect("loaded");
    })
    .await;
    assert_hot_is_there(&killed(&pool));
}

/// One record is read all the time, among thousands in other blocks; its block, the index and the filter are
/// hit in front. After a kill they are all in the pool.
#[tokio::test(flavor = "multi_thread")]
async fn what_slatedb_has_in_front_stays_in_the_pool() {
    let (pool, store) = (pool(), Arc::new(InMemory::new()));
    let open = async |back: &Arc<BlockCache>| {
        let cache = SlateCache::new(MokaCache::new(), Arc::clone(back));
        let builder = Db::builder("hot", Arc::clone(&store) as _);
        builder.with_db_cache(Arc::new(cache), 1).build().await.expect("a database")
    };
    let cache = small(&pool, 8);
    let db = open(&cache).await;
    for n in 0..700 {
        db.put(format!("key {n:05}"), vec![n as u8; 3000]).await.expect("written");
    }
    db.close().await.expect("closed");
    let db = open(&cache).await;
    for n in 1..700 {
        for n in [0, n, 0] {
            let found = db.get(format!("key {n:05}")).await.expect("read").expect("there");
            assert_eq!(found, vec![n as u8; 3000]);
        }
    }
    let warm = killed(&pool);
    assert!(warm.len() < 300, "cold blocks went");
    let db = open(&warm).await;
    let before = warm.metrics();
    db.get("key 00000").await.expect("read").expect("there");
    let after = warm.metrics();
    assert!(after.hits > before.hits, "{after:?}");
    assert_eq!(after.misses, before.misses, "hot, but hit in front alone");
}

/// Databases that share a cache have separate entries, and a restored database finds nothing of its former
/// life, since its tables have other names.
#[tokio::test(flavor = "multi_thread")]
async fn slatedb_reads_what_it_wrote_over_a_cache_that_was_killed() {
    let (pool, store) = (pool(), Arc::new(InMemory::new()));
    let open = async |name: &str, number, back: &Arc<BlockCache>| {
        let cache = SlateCache::new(MokaCache::new(), Arc::clone(back));
        let builder = Db::builder(name, Arc::clone(&store) as _);
        builder.with_db_cache(Arc::new(cache), number).build().await.expect("a database")
    };
    let read = async |db: &Db, name: &str| {
        for n in 0..500 {
            let found = db.get(format!("key {n:05}")).await.expect("read");
            assert_eq!(found.as_deref(), Some(format!("{name} {n}").as_bytes()));
        }
    };
    let cache = back(&pool);
    for (number, name) in [(1, "one"), (2, "two")] {
        let db = open(name, number, &cache).await;
        for n in 0..500 {
            db.put(format!("key {n:05}"), format!("{name} {n}")).await.expect("written");
        }
        db.close().await.expect("closed");
        let db = open(name, number, &cache).await;
        read(&db, name).await;
        db.close().await.expect("closed");
    }
    assert!(cache.len() > 4, "{:?}", cache.metrics());
    let warm = killed(&pool);
    for (number, name) in [(1, "one"), (2, "two")] {
        read(&open(name, number, &warm).await, name).await;
    }
    let metrics = warm.metrics();
    assert!(metrics.hits > 4 && metrics.corrupt == 0, "{metrics:?}");
}
