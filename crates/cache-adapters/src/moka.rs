//! moka in front of a cache in a pool.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use moka::future::Cache;
use pmindex_cache::{Block, BlockCache, Key, Prefix};
use pmindex_core::PmError;

use crate::removals::{Removals, Stamped};
use crate::{get_or_load, note};

/// A cache of moka in front of the one in a pool.
#[derive(Clone, Debug)]
pub struct MokaFront {
    front: Cache<Key, Stamped>,
    back: Arc<BlockCache>,
    removals: Arc<Removals>,
}

impl MokaFront {
    /// Makes a cache with this many bytes of blocks in DRAM, in front of a cache in a pool.
    #[must_use]
    pub fn new(bytes: u64, back: Arc<BlockCache>) -> Self {
        let weigh = |_: &Key, found: &Stamped| u32::try_from(found.bytes()).unwrap_or(u32::MAX);
        let front = Cache::builder().max_capacity(bytes).weigher(weigh).build();
        Self { front, back, removals: Arc::new(Removals::new()) }
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
        if let Some(found) = self.front.get(&key).await {
            if self.removals.is_current(&key, &found) {
                note(&self.back, || Some(key));
                return Ok(found.block);
            }
            self.front.invalidate(&key).await;
        }
        let load = Mutex::new(Some(load));
        let take = || load.lock().unwrap_or_else(PoisonError::into_inner).take();
        loop {
            let below = async {
                let stamp = self.removals.stamp(&key); // R1
                let load = || {
                    let load = take().unwrap_or_else(|| unreachable!("a call loads once"));
                    load()
                };
                let (block, _) = get_or_load(&self.back, &key, load).await?; // R2
                Ok::<_, E>(Stamped { block, stamp })
            };
            let found = self.front.try_get_with(key, below).await?;
            let is_loaded = load.lock().unwrap_or_else(PoisonError::into_inner).is_none();
            // What this call has loaded was there during the call.
            if is_loaded || self.removals.is_current(&key, &found) {
                return Ok(found.block);
            }
            self.front.invalidate(&key).await;
        }
    }

    /// Removes a block here and from the pool. Calls that begin after it has returned do not get what was loaded before,
    /// also if a load that began before ends later.
    ///
    /// # Errors
    /// Those of [`BlockCache::remove`].
    pub async fn remove(&self, key: &Key) -> Result<(), PmError> {
        self.back.remove(key)?; // E1
        self.removals.note(key); // E2
        self.front.invalidate(key).await;
        Ok(())
    }

    /// Invalidates all blocks of a file or an instance in the pool, and all blocks in DRAM, so that the
    /// number of the file can be reused. Loads in progress count as those of [`remove`](Self::remove) do.
    ///
    /// # Errors
    /// Those of [`BlockCache::invalidate`].
    pub fn invalidate(&self, prefix: Prefix) -> Result<u64, PmError> {
        let ended = self.back.invalidate(prefix)?; // E1
        self.removals.note_many(); // E2
        self.front.invalidate_all();
        Ok(ended)
    }

    /// Returns the cache in the pool.
    #[must_use]
    pub fn back(&self) -> &Arc<BlockCache> {
        &self.back
    }
}
