//! SlateDB: a `DbCache` in front of a cache in a pool.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use async_trait::async_trait;
use pmindex_cache::{Block, BlockCache, Key};
use serde::Deserialize;
use slatedb::Error;
use slatedb::db_cache::{CacheFetch, CacheLoader, CacheLookup, CachedEntry, CachedKey, DbCache};
use ulid::Ulid;

use crate::{Source, get_or_load, note};

/// A cache of SlateDB that is warm after a crash: any of its caches in DRAM, in front of one in a pool.
///
/// Every entry of the cache in front is also written to the pool (write-through), so nothing has to be saved
/// at the end, and no kind of end loses it. A restarted process must give the database the same
/// `db_cache_id`; databases that share a cache need different ids. SlateDB names each table by 128 bits of
/// which 80 are random, so a database that was restored or copied never finds blocks of its former life.
///
/// The cache in front is [`FoyerCache`](slatedb::db_cache::foyer::FoyerCache) or
/// [`MokaCache`](slatedb::db_cache::moka::MokaCache); a `SplitCache` must contain this one, not be inside.
#[derive(Clone, Debug)]
pub struct SlateCache<C> {
    front: C,
    back: Arc<BlockCache>,
}

/// A key in the encoding of SlateDB 0.18; entries of other versions are not stored.
#[derive(Deserialize)]
enum Written<'k> {
    V1,
    V2,
    V3(u64, &'k str, u64),
}

/// The bytes of an encoded key: three numbers and 26 letters.
const KEY_BYTES: usize = 64;

/// Returns the name of an entry in the pool: all its 256 bits.
fn name(key: &CachedKey) -> Option<Key> {
    let mut bytes = [0; KEY_BYTES];
    let written = postcard::to_slice(key, &mut bytes).ok()?;
    match postcard::from_bytes(written).ok()? {
        Written::V3(database, table, offset) => {
            let table = Ulid::from_string(table).ok()?;
            Some(Key { instance: table.0, file: database, offset })
        }
        Written::V1 | Written::V2 => None,
    }
}

fn encode(entry: &CachedEntry) -> Option<Block> {
    postcard::to_stdvec(entry).ok().map(|bytes| Block { kind: 0, bytes })
}

fn decode(block: &Block) -> Option<CachedEntry> {
    postcard::from_bytes(&block.bytes).ok()
}

impl<C: DbCache> SlateCache<C> {
    /// Makes a cache of SlateDB in front of one in a pool.
    pub fn new(front: C, back: Arc<BlockCache>) -> Self {
        Self { front, back }
    }

    /// Returns the cache in the pool.
    pub fn back(&self) -> &Arc<BlockCache> {
        &self.back
    }

    /// Copies an entry from the pool to the cache in front.
    async fn promote(&self, key: &CachedKey) -> Option<CachedEntry> {
        let entry = decode(&self.back.get(&name(key)?)?)?;
        self.front.insert(key.clone(), entry.clone()).await;
        Some(entry)
    }

    /// Returns a loader that searches the pool first, and a flag that it sets if it found the entry there.
    fn below(&self, key: &CachedKey, loader: CacheLoader) -> (CacheLoader, Arc<AtomicBool>) {
        let (back, key) = (Arc::clone(&self.back), name(key));
        let was_there = Arc::new(AtomicBool::new(false));
        let note = Arc::clone(&was_there);
        let below = async move || {
            let Some(key) = key else { return loader().await };
            let (mut loader, mut loaded) = (Some(loader), None);
            loop {
                let load = async || {
                    let loader = loader.take().ok_or_else(|| Error::internal("loaded".into()))?;
                    let entry = loader().await?;
                    let block = encode(&entry);
                    loaded = Some(entry);
                    block.ok_or_else(|| Error::internal("no encoding".into()))
                };
                let found = get_or_load(&back, &key, load).await;
                if let Some(entry) = loaded {
                    return Ok(entry);
                }
                let (block, source) = found?;
                if let Some(entry) = decode(&block) {
                    note.store(source == Source::Pool, Release);
                    return Ok(entry);
                }
                // Written by another version of SlateDB.
                let _ = back.remove(&key);
            }
        };
        (Box::new(move || Box::pin(below())), was_there)
    }
}

/// Reports an entry from the pool as a hit.
fn told(fetched: CacheFetch, was_there: &AtomicBool) -> CacheFetch {
    let was_there = was_there.load(Acquire);
    let lookup = if was_there { CacheLookup::Hit } else { fetched.lookup };
    CacheFetch { lookup, ..fetched }
}

/// The methods that are alike for each kind of entry.
macro_rules! kinds {
    ($($get:ident, $fetch:ident;)*) => {
        #[async_trait]
        impl<C: DbCache> DbCache for SlateCache<C> {
            $(
                async fn $get(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
                    match self.front.$get(key).await? {
                        Some(entry) => {
                            note(&self.back, || name(key));
                            Ok(Some(entry))
                        }
                        None => Ok(self.promote(key).await),
                    }
                }

                async fn $fetch(
                    &self,
                    key: CachedKey,
                    loader: CacheLoader,
                ) -> Result<CacheFetch, Error> {
                    let (below, was_there) = self.below(&key, loader);
                    let fetched = self.front.$fetch(key.clone(), below).await?;
                    if matches!(fetched.lookup, CacheLookup::Hit) {
                        note(&self.back, || name(&key));
                    }
                    Ok(told(fetched, &was_there))
                }
            )*

            async fn insert(&self, key: CachedKey, value: CachedEntry) {
                if let (Some(name), Some(block)) = (name(&key), encode(&value)) {
                    // Only the metrics of the cache tell whether it could be stored.
                    let _ = self.back.insert(&name, block.kind, &block.bytes);
                }
                self.front.insert(key, value).await;
            }

            async fn remove(&self, key: &CachedKey) {
                if let Some(name) = name(key) {
                    let _ = self.back.remove(&name);
                }
                self.front.remove(key).await;
            }

            fn entry_count(&self) -> u64 {
                self.back.len()
            }

            async fn close(&self) -> Result<(), Error> {
                let _ = self.back.seal();
                self.front.close().await
            }

            async fn flush_scope(&self, db_cache_id: u64) -> Result<(), Error> {
                let _ = self.back.seal();
                self.front.flush_scope(db_cache_id).await
            }

            async fn flush_to_disk(&self) -> Result<(), Error> {
                let _ = self.back.seal();
                self.front.flush_to_disk().await
            }
        }
    };
}

kinds! {
    get_block, fetch_block;
    get_index, fetch_index;
    get_filter, fetch_filter;
    get_stats, fetch_stats;
}
