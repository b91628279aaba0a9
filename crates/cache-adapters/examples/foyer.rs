//! foyer in front of blocks in a pool: `cargo run --release --example foyer`.
//!
//! A process reads a slow file and dies; the next one finds the blocks in the pool.

mod warm;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pmindex_cache::{Block, BlockCache, Key};
use pmindex_cache_adapters::FoyerFront;

#[tokio::main]
async fn main() -> warm::Done {
    warm::twice("foyer", async |back: Arc<BlockCache>| {
        let cache = FoyerFront::new(1 << 20, back);
        let loads = Arc::new(AtomicU64::new(0));
        for n in 0..warm::BLOCKS {
            let key = Key { instance: 1, file: 1, offset: n * warm::BLOCK };
            let loads = Arc::clone(&loads);
            let load = move || async move {
                loads.fetch_add(1, Relaxed);
                warm::read_slowly(n).await.map(|bytes| Block { kind: 0, bytes })
            };
            assert_eq!(cache.get_or_load(key, load).await?.bytes, warm::block(n));
        }
        Ok(loads.load(Relaxed))
    })
    .await
}
