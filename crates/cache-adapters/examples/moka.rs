//! moka in front of blocks in a pool: `cargo run --release --example moka`.
//!
//! A process reads a slow file and dies; the next one finds the blocks in the pool.

mod warm;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pmindex_cache::{Block, BlockCache, Key};
use pmindex_cache_adapters::MokaFront;

#[tokio::main]
async fn main() -> warm::Done {
    warm::twice("moka", async |back: Arc<BlockCache>| {
        let cache = MokaFront::new(1 << 20, back);
        let loads = AtomicU64::new(0);
        for n in 0..warm::BLOCKS {
            let key = Key { instance: 1, file: 1, offset: n * warm::BLOCK };
            let load = async || {
                loads.fetch_add(1, Relaxed);
                warm::read_slowly(n).await.map(|bytes| Block { kind: 0, bytes })
            };
            let block = cache.get_or_load(key, load).await.map_err(|e| e.to_string())?;
            assert_eq!(block.bytes, warm::block(n));
        }
        Ok(loads.into_inner())
    })
    .await
}
