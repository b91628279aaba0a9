//! Code that the examples share: a slow file, and a process that reads it and dies.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex_cache::{BlockCache, CacheOptions};
use pmindex_core::{Pool, PoolOptions};

/// The result of an example.
pub type Done = Result<(), Box<dyn Error>>;

/// The number of blocks of the slow file.
pub const BLOCKS: u64 = 2_000;
/// The bytes of a block.
pub const BLOCK: u64 = 4096;

/// Returns a block of the slow file.
pub fn block(n: u64) -> Vec<u8> {
    (0..BLOCK).map(|at| (n * 31 + at) as u8).collect()
}

/// Reads a block, which takes a millisecond, as over a network.
pub async fn read_slowly(n: u64) -> std::io::Result<Vec<u8>> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    Ok(block(n))
}

/// Opens the cache in the pool at this path.
pub fn back(path: &Path) -> Result<Arc<BlockCache>, Box<dyn Error>> {
    let pool = Arc::new(Pool::open_or_create(path, &PoolOptions::new().size(64 << 20))?);
    let cache = match BlockCache::open(&pool, "blocks", &CacheOptions::default())? {
        Some(cache) => cache,
        None => BlockCache::create(&pool, "blocks", &CacheOptions::new(32 << 20))?,
    };
    Ok(Arc::new(cache))
}

/// Runs `read`, which returns how often it read the slow file, in a process that then dies, and once more.
pub async fn twice(
    name: &str,
    read: impl AsyncFn(Arc<BlockCache>) -> Result<u64, Box<dyn Error>>,
) -> Done {
    if let Some(path) = std::env::args_os().nth(1) {
        let began = Instant::now();
        let loads = read(back(Path::new(&path))?).await?;
        println!("{name}, cold: {BLOCKS} blocks, {loads} loads, {:?}", began.elapsed());
        std::process::abort(); // nothing is closed
    }
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    let path = folder.path().join("pool");
    Command::new(std::env::current_exe()?).arg(&path).status()?;
    let began = Instant::now();
    let loads = read(back(&path)?).await?;
    println!("{name}, after the crash: {BLOCKS} blocks, {loads} loads, {:?}", began.elapsed());
    if loads > BLOCKS / 100 { Err("it is not warm".into()) } else { Ok(()) }
}
