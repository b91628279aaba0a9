//! SlateDB whose cache is warm after a crash: `cargo run --release --example slatedb`.
//!
//! A process fills a database, reads it, and dies. Then it is read again, with the cache that the process
//! left and with an empty one: the number of reads from the object store is the difference.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use pmindex_cache::{BlockCache, CacheOptions};
use pmindex_cache_adapters::SlateCache;
use pmindex_core::{Pool, PoolOptions};
use slatedb::Db;
use slatedb::db_cache::foyer::{FoyerCache, FoyerCacheOptions};
use slatedb::object_store::local::LocalFileSystem;

const RECORDS: u32 = 20_000;

/// Opens the cache in the pool at this path.
fn blocks(path: &Path) -> Result<Arc<BlockCache>, Box<dyn std::error::Error>> {
    let pool = Arc::new(Pool::open_or_create(path, &PoolOptions::new().size(64 << 20))?);
    let cache = match BlockCache::open(&pool, "blocks", &CacheOptions::default())? {
        Some(cache) => cache,
        None => BlockCache::create(&pool, "blocks", &CacheOptions::new(32 << 20))?,
    };
    Ok(Arc::new(cache))
}

/// Opens the database in a folder, over this cache.
async fn open(folder: &Path, blocks: &Arc<BlockCache>) -> Result<Db, Box<dyn std::error::Error>> {
    let store = Arc::new(LocalFileSystem::new_with_prefix(folder)?);
    let front = FoyerCache::new_with_opts(FoyerCacheOptions { max_capacity: 1 << 20, shards: 1 });
    let cache = Arc::new(SlateCache::new(front, Arc::clone(blocks)));
    // The database's number, the same at each opening.
    Ok(Db::builder("db", store).with_db_cache(cache, 1).build().await?)
}

fn record(n: u32) -> (Vec<u8>, Vec<u8>) {
    (format!("key {:08}", n * 7919 % RECORDS).into(), format!("value {n} ").repeat(8).into())
}

/// Reads every 20th record; returns the number of reads from the object store.
async fn read(folder: &Path, pool: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let blocks = blocks(&folder.join(pool))?;
    let db = open(folder, &blocks).await?;
    for n in (0..RECORDS).step_by(20) {
        let (key, value) = record(n);
        assert_eq!(db.get(&key).await?.as_deref(), Some(&value[..]), "{n}");
    }
    Ok(blocks.metrics().misses)
}

/// Fills the database, reads it, and dies.
async fn fill_and_die(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let db = open(folder, &blocks(&folder.join("another pool"))?).await?;
    for n in 0..RECORDS {
        let (key, value) = record(n);
        db.put(&key, &value).await?;
    }
    db.close().await?;
    println!("asked {} times, cold", read(folder, "pool").await?);
    std::process::abort() // nothing is closed
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(folder) = std::env::args_os().nth(1) {
        return fill_and_die(Path::new(&folder)).await;
    }
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    Command::new(std::env::current_exe()?).arg(folder.path()).status()?;
    let warm = read(folder.path(), "pool").await?;
    let cold = read(folder.path(), "an empty pool").await?;
    println!("asked {warm} times after the crash, {cold} times with an empty cache");
    if warm * 10 > cold { Err("it is not warm".into()) } else { Ok(()) }
}
