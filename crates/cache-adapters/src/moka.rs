//! moka in front of a cache in a pool.

use std::future::Future;
use std::sync::Arc;

use moka::future::Cache;
use pmindex_cache::{Block, BlockCache, Key, Prefix};
use pmindex_core::PmError;

use crate::{get_or_load, note};

/// A cache of moka in front of the one in a pool.
#[derive(Clone, Debug)]
pub struct MokaFront {
    front: Cache<Key, Arc<Block>>,
    back: Arc<BlockCache>,
}

impl MokaFront {
    /// Makes a cache with this many bytes of blocks in DRAM, in front of a cache in a pool.
    #[must_use]
    pub fn new(bytes: u64, back: Arc<BlockCache>) -> Self {
        let weigh = |_: &Key, block: &Arc<Block>| {
            u32::try_from(size_of::<Block>() + block.bytes.len()).unwrap_or(u32::MAX)
        };
        Self { front: Cache::builder().max_capacity(bytes).weigher(weigh).build(), back }
    }

    /// Returns the block with this name: from DRAM, from the pool, or from `load`, which is called once for
    /// all callers.
    ///
    /// # Errors
    /// Those of `load`, for all waiting callers.
    pub async fn get_or_load<E, L>(
        &self,
        key: Key,
        load: impl FnOnce() -> L,
    ) -> Result<Arc<Block>, Arc<E>>
    where
        E: Send + Sync + 'static,
        L: Future<Output = Result<Block, E>>,
    {
        if let Some(block) = self.front.get(&key).await {
            note(&self.back, || Some(key));
            return Ok(block);
        }
        let below = async { get_or_load(&self.back, &key, load).await.map(|(block, _)| block) };
        self.front.try_get_with(key, below).await
    }

    /// Removes a block here and from the pool. The caller ensures that it is not being loaded: a load that began
    /// before would put what it read into DRAM when it ends, and that would be served from then on.
    ///
    /// # Errors
    /// Those of [`BlockCache::remove`].
    pub async fn remove(&self, key: &Key) -> Result<(), PmError> {
        self.back.remove(key)?;
        self.front.invalidate(key).await;
        Ok(())
    }

    /// Invalidates all blocks of a file or an instance in the pool, and all blocks in DRAM, so that the
    /// number of the file can be reused. The caller ensures that no such block is being loaded.
    ///
    /// # Errors
    /// Those of [`BlockCache::invalidate`].
    pub fn invalidate(&self, prefix: Prefix) -> Result<u64, PmError> {
        let ended = self.back.invalidate(prefix)?;
        self.front.invalidate_all();
        Ok(ended)
    }

    /// Returns the cache in the pool.
    #[must_use]
    pub fn back(&self) -> &Arc<BlockCache> {
        &self.back
    }
}
