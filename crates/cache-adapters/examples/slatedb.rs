//! SlateDB whose cache is warm after a crash: `cargo run --release --example slatedb`.
//!
//! A process fills a database in an object store that takes 5 ms a request, reads it, and dies. Then it is read
//! again: with the cache that the process left, and with an empty one.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex_cache::{BlockCache, CacheOptions};
use pmindex_cache_adapters::SlateCache;
use pmindex_core::{Pool, PoolOptions};
use slatedb::Db;
use slatedb::db_cache::foyer::{FoyerCache, FoyerCacheOptions};
use slatedb::object_store::local::LocalFileSystem;
use slatedb::object_store::throttle::{ThrottleConfig, ThrottledStore};

const RECORDS: u32 = 20_000;

/// The cache in the pool of this path.
fn blocks(path: &Path) -> Result<Arc<BlockCache>, Box<dyn std::error::Error>> {
    let pool = Arc::new(Pool::open_or_create(path, &PoolOptions::new().size(64 << 20))?);
    let cache = match BlockCache::open(&pool, "blocks", &CacheOptions::default())? {
        Some(cache) => cache,
        None => BlockCache::create(&pool, "blocks", &CacheOptions::new(32 << 20))?,
    };
    Ok(Arc::new(cache))
}

/// The database in a folder; its cache in a pool.
async fn open(folder: &Path, pool: &str) -> Result<Db, Box<dyn std::error::Error>> {
    let store = LocalFileSystem::new_with_prefix(folder)?;
    let config =
        ThrottleConfig { wait_get_per_call: Duration::from_millis(5), ..Default::default() };
    let front = FoyerCache::new_with_opts(FoyerCacheOptions { max_capacity: 1 << 20, shards: 1 });
    let cache = SlateCache::new(front, blocks(&folder.join(pool))?);
    let store = Arc::new(ThrottledStore::new(store, config));
    // The database's own number, the same whenever it is opened.
    Ok(Db::builder("db", store).with_db_cache(Arc::new(cache), 1).build().await?)
}

fn record(n: u32) -> (Vec<u8>, Vec<u8>) {
    (format!("key {:08}", n * 7919 % RECORDS).into(), format!("value {n} ").repeat(8).into())
}

/// Reads every 20th record.
async fn read(db: &Db) -> Result<Duration, Box<dyn std::error::Error>> {
    let began = Instant::now();
    for n in (0..RECORDS).step_by(20) {
        let (key, value) = record(n);
        assert_eq!(db.get(&key).await?.as_deref(), Some(&value[..]), "{n}");
    }
    Ok(began.elapsed())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(folder) = std::env::args_os().nth(1) {
        let db = open(Path::new(&folder), "pool").await?;
        for n in 0..RECORDS {
            let (key, value) = record(n);
            db.put(&key, &value).await?;
        }
        db.flush().await?;
        db.close().await?;
        let db = open(Path::new(&folder), "pool").await?;
        read(&db).await?;
        std::process::abort(); // nothing is closed
    }
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    Command::new(std::env::current_exe()?).arg(folder.path()).status()?;
    let warm = read(&open(folder.path(), "pool").await?).await?;
    let cold = read(&open(folder.path(), "another pool").await?).await?;
    println!("{} records after the crash: {warm:?}; with an empty cache {cold:?}", RECORDS / 20);
    if warm * 3 > cold { Err("it is not warm".into()) } else { Ok(()) }
}
