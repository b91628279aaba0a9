//! foyer in front of a cache in a pool.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use foyer::{Cache, CacheBuilder};
use pmindex_cache::{Block, BlockCache, Key, Prefix};
use pmindex_core::PmError;

use crate::removals::{Removals, Stamped};
use crate::{get_or_load, note};

/// A cache of foyer in front of the one in a pool, which replaces foyer's disk cache.
#[derive(Clone, Debug)]
pub struct FoyerFront {
    front: Cache<Key, Stamped>,
    back: Arc<BlockCache>,
    removals: Arc<Removals>,
}

impl FoyerFront {
    /// Makes a cache with this many bytes of blocks in DRAM, in front of a cache in a pool.
    #[must_use]
    pub fn new(bytes: usize, back: Arc<BlockCache>) -> Self {
        let weigh = |_: &Key, found: &Stamped| found.bytes();
        let front = CacheBuilder::new(bytes).with_weighter(weigh).build();
        Self { front, back, removals: Arc::new(Removals::new()) }
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
            if self.removals.is_current(&key, entry.value()) {
                note(&self.back, || Some(key));
                return Ok(Arc::clone(&entry.value().block));
            }
            self.front.remove(&key);
        }
        let load = Arc::new(Mutex::new(Some(load)));
        loop {
            let (back, removals) = (Arc::clone(&self.back), Arc::clone(&self.removals));
            let own = Arc::clone(&load);
            let below = move || async move {
                let stamp = removals.stamp(&key); // R1
                let load = || {
                    let load = own.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let load = load.unwrap_or_else(|| unreachable!("a call loads once"));
                    load()
                };
                let (block, _) = get_or_load(&back, &key, load).await?; // R2
                Ok::<_, E>(Stamped { block, stamp })
            };
            let found = self.front.get_or_fetch(&key, below).await?;
            let is_loaded = load.lock().unwrap_or_else(PoisonError::into_inner).is_none();
            // What this call has loaded was there during the call.
            if is_loaded || self.removals.is_current(&key, found.value()) {
                return Ok(Arc::clone(&found.value().block));
            }
            self.front.remove(&key);
        }
    }

    /// Removes a block here and from the pool. Calls that begin after it has returned do not get what was loaded before,
    /// also if a load that began before ends later.
    ///
    /// # Errors
    /// Those of [`BlockCache::remove`].
    pub fn remove(&self, key: &Key) -> Result<(), PmError> {
        self.back.remove(key)?; // E1
        self.removals.note(key); // E2
        self.front.remove(key);
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
        self.front.clear();
        Ok(ended)
    }

    /// Returns the cache in the pool.
    #[must_use]
    pub fn back(&self) -> &Arc<BlockCache> {
        &self.back
    }
}
