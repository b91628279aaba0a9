//! foyer in front of a cache in a pool.

use std::future::Future;
use std::sync::Arc;

use foyer::{Cache, CacheBuilder};
use pmindex_cache::{Block, BlockCache, Key, Prefix};
use pmindex_core::PmError;

use crate::{get_or_load, note};

/// A cache of foyer in front of the one in a pool, which replaces foyer's disk cache.
#[derive(Clone, Debug)]
pub struct FoyerFront {
    front: Cache<Key, Arc<Block>>,
    back: Arc<BlockCache>,
}

impl FoyerFront {
    /// Makes a cache with this many bytes of blocks in DRAM, in front of a cache in a pool.
    #[must_use]
    pub fn new(bytes: usize, back: Arc<BlockCache>) -> Self {
        let weigh = |_: &Key, block: &Arc<Block>| size_of::<Block>() + block.bytes.len();
        Self { front: CacheBuilder::new(bytes).with_weighter(weigh).build(), back }
    }

    /// Returns the block with this name: from DRAM, from the pool, or from `load`, which is called once for
    /// all callers. Call it within a runtime of tokio, on which foyer loads.
    ///
    /// # Errors
    /// Those of `load`, which foyer returns to all waiting callers.
    pub async fn get_or_load<E, L>(
        &self,
        key: Key,
        load: impl FnOnce() -> L + Send + 'static,
    ) -> Result<Arc<Block>, foyer::Error>
    where
        E: std::error::Error + Send + Sync + 'static,
        L: Future<Output = Result<Block, E>> + Send + 'static,
    {
        if let Some(entry) = self.front.get(&key) {
            note(&self.back, || Some(key));
            return Ok(Arc::clone(entry.value()));
        }
        let back = Arc::clone(&self.back);
        let below =
            move || async move { get_or_load(&back, &key, load).await.map(|(block, _)| block) };
        self.front.get_or_fetch(&key, below).await.map(|entry| Arc::clone(entry.value()))
    }

    /// Removes a block here and from the pool. The caller ensures that it is not being loaded: a load that began
    /// before would put what it read into DRAM when it ends, and that would be served from then on.
    ///
    /// # Errors
    /// Those of [`BlockCache::remove`].
    pub fn remove(&self, key: &Key) -> Result<(), PmError> {
        self.back.remove(key)?;
        self.front.remove(key);
        Ok(())
    }

    /// Invalidates all blocks of a file or an instance in the pool, and all blocks in DRAM, so that the
    /// number of the file can be reused. The caller ensures that no such block is being loaded.
    ///
    /// # Errors
    /// Those of [`BlockCache::invalidate`].
    pub fn invalidate(&self, prefix: Prefix) -> Result<u64, PmError> {
        let ended = self.back.invalidate(prefix)?;
        self.front.clear();
        Ok(ended)
    }

    /// Returns the cache in the pool.
    #[must_use]
    pub fn back(&self) -> &Arc<BlockCache> {
        &self.back
    }
}
