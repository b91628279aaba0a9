//! A cache of blocks in a pool, which is warm after a crash.
//!
//! It is for an engine whose files are on a slow medium: an SSD, a network disk, an object store. Blocks that
//! it reads stay in persistent memory, or in a file that outlives the process, where the next process finds
//! them. The cache may lose blocks; it never returns a wrong one:
//!
//! * A lookup returns the bytes that were last inserted under a name, or nothing: after a crash at any step,
//!   in a file with flipped bits, and whatever the memory contained before.
//! * A block that was [invalidated](BlockCache::invalidate) or replaced never returns.
//! * After the death of the process (`kill -9`) nothing is lost. After that of the system, at most the blocks
//!   since the last segment was sealed.
//!
//! ```text
//! root --> table of places     segment 0:  | e e e e e e e | summary |    sealed
//!              |               segment 1:  | e e e e . . . |         |    being filled
//!              +-> segments    segment 2:  | e e e e e e e | summary |    the oldest: used anew next
//! ```
//!
//! * [`log`]: blocks are appended to one segment; a full one is sealed under one fence, which also begins the
//!   next one. The oldest segment is reused; entries that were hit since they were written are copied (a
//!   second chance), up to half a segment. The module explains why dead entries never return.
//! * [`index`]: the locations of the entries, in DRAM, 9 to 18 bytes each; [`recover`] rebuilds it from the
//!   summaries.
//! * [`entry`]: checksums. An entry is verified at its first hit after it was written or the cache was
//!   opened.
//! * [`flight`]: one load for all callers that miss the same block, with or without threads.
//! * [`quota`]: the limit of an instance.
//! * [`pack`]: compression, if the opener asks for it.
//!
//! Inserts take one lock; hits that of a shard of the index. The cache starts no thread, and waits only for
//! these locks and, if the caller asks for it, for another caller's load.
//!
//! ```
//! use std::sync::Arc;
//!
//! use pmindex_cache::{Block, BlockCache, CacheOptions, Key, Prefix};
//! use pmindex_core::{PmError, Pool};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Arc::new(Pool::emulated(32 << 20)?); // or Pool::create(path, &PoolOptions::new())?
//! let cache = BlockCache::create(&pool, "blocks", &CacheOptions::new(16 << 20))?;
//! let key = Key { instance: 0x1234, file: 7, offset: 4096 };
//! let load = || Ok::<_, PmError>(Block { kind: 0, bytes: b"from the slow disk".to_vec() });
//! assert_eq!(cache.get_or_load(&key, load)?.bytes, b"from the slow disk");
//! drop(cache); // or the process dies
//!
//! let cache = BlockCache::open(&pool, "blocks", &CacheOptions::default())?.ok_or("none")?;
//! assert_eq!(cache.get(&key).ok_or("not warm")?.bytes, b"from the slow disk");
//! cache.invalidate(Prefix::File(0x1234, 7))?; // the file is deleted: its number may be used again
//! assert_eq!(cache.get(&key), None);
//! # Ok(())
//! # }
//! ```

mod check;
mod entry;
mod flight;
mod index;
mod invalidate;
mod key;
mod layout;
mod log;
mod metrics;
mod pack;
mod places;
mod quota;
mod read;
mod recover;
mod summary;

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use pmindex_core::{Mapped, Medium, OpenIndex, PPtr, PmError, Pool};

pub use check::Checked;
pub use flight::{Fetch, Ticket, Waiting};
pub use key::{Key, Prefix};
pub use metrics::Metrics;
pub use read::Pinned;

use entry::{lines_for, payload_sum};
use metrics::count;

/// The possible sizes of a segment. An entry is found by the number of its line, in 16 bits.
const SEGMENT_BYTES: RangeInclusive<u64> = 1024..=4 << 20;

/// Options for creating and opening a cache.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    capacity: u64,
    segment_bytes: u64,
    shards: usize,
    identity: Option<u64>,
    compress: bool,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self::new(1 << 30)
    }
}

impl CacheOptions {
    /// Uses at most this many bytes of the pool, in segments of 2 MiB; at least two segments.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self { capacity, segment_bytes: 2 << 20, shards: 16, identity: None, compress: false }
    }

    /// Sets the bytes of a segment: 1 KiB to 4 MiB, whole lines. The largest block takes half a segment.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Sets the number of shards of the index in DRAM, each with a lock.
    #[must_use]
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// Sets whether blocks that are inserted from now on are compressed (LZ4), if that makes them smaller by
    /// an eighth or more. A cache may contain blocks of both kinds; the opener chooses.
    ///
    /// # Cost
    /// An insert compresses its block; a hit of a compressed block allocates a buffer and decompresses the
    /// block.
    #[cfg(feature = "lz4")]
    #[must_use]
    pub fn compress(mut self, compress: bool) -> Self {
        self.compress = compress;
        self
    }

    /// Sets the number that distinguishes this cache from others, instead of a random one. For reproducible
    /// tests only: of two caches with the same number one might read the remains of the other in its memory.
    #[doc(hidden)]
    #[must_use]
    pub fn identity(mut self, identity: u64) -> Self {
        self.identity = Some(identity);
        self
    }
}

/// A block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// A kind of block, which the caller defines.
    pub kind: u8,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The outcome of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The block is stored.
    Stored,
    /// The cache already had the same bytes.
    Present,
    /// The block is not stored. The former block with its name is gone.
    Refused(Refusal),
}

/// The reason why a block is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It is larger than half a segment.
    TooLarge,
    /// It exceeds the quota of its instance.
    Quota,
    /// All segments have pinned blocks, or the pool has no room for a segment.
    NoRoom,
    /// It was invalidated while it was loaded.
    Invalidated,
}

/// A cache of blocks in a pool. See the [module](self).
#[derive(Debug)]
pub struct BlockCache<M: Medium = Mapped> {
    pool: Arc<Pool<M>>,
    root: PPtr<layout::Root>,
    /// The offset of the table.
    table: u64,
    identity: u64,
    /// The lines of a segment.
    lines: u32,
    places: Box<[places::Place]>,
    index: index::Index,
    /// Taken before the locks of the index and of the loads.
    log: Mutex<log::Log>,
    flights: flight::Flights,
    /// `true` to compress blocks.
    compress: bool,
    counters: metrics::Counters,
    /// Dropped last, so that no other handle opens the cache before.
    _open: OpenIndex,
}

impl<M: Medium> BlockCache<M> {
    /// Stores a block, replacing the block with its name.
    ///
    /// # Errors
    /// [`PmError::DurabilityLost`], [`PmError::ReadOnly`], [`PmError::Damaged`], [`PmError::Corrupt`]. Then
    /// the former block with the name may be gone.
    ///
    /// # Cost
    /// The lines of the block and one more. No fence, except: one to replace other bytes; one when a segment
    /// is full, with the lines of its summary and of the copied entries; two when a segment is allocated.
    ///
    /// # Durability
    /// None is guaranteed. See [`seal`](Self::seal).
    pub fn insert(&self, key: &Key, kind: u8, bytes: &[u8]) -> Result<Inserted, PmError> {
        self.insert_unless(key, kind, bytes, || false)
    }

    /// Does the same as [`insert`](Self::insert), if `disowned` is `false` under the lock that invalidations
    /// take.
    fn insert_unless(
        &self,
        key: &Key,
        kind: u8,
        bytes: &[u8],
        disowned: impl FnOnce() -> bool,
    ) -> Result<Inserted, PmError> {
        self.pool.check_writable()?;
        let smaller = if self.compress { pack::pack(bytes) } else { None };
        let packed = smaller.is_some();
        let bytes = smaller.as_deref().unwrap_or(bytes);
        let block = log::Append { key: *key, kind, packed, bytes, payload: payload_sum(bytes) };
        let mut log = self.pool.pm().lock(&self.log);
        let inserted = if disowned() {
            Inserted::Refused(Refusal::Invalidated)
        } else {
            self.put(&mut log, &block)?
        };
        count(match inserted {
            Inserted::Stored => {
                self.counters.packed.fetch_add(packed.into(), Relaxed);
                &self.counters.admitted
            }
            Inserted::Present => return Ok(inserted),
            Inserted::Refused(_) => &self.counters.refused,
        });
        Ok(inserted)
    }

    fn put(&self, log: &mut log::Log, block: &log::Append<'_>) -> Result<Inserted, PmError> {
        let log::Append { key, kind, packed, bytes, payload } = *block;
        if let Some(found) = self.find(&key, key.hash()) {
            let (at, header) = (found.at(), found.stored.header());
            let seed = self.seed(self.generation_of(at.place()));
            if (header.kind, header.packed, header.len as usize) == (kind, packed, bytes.len())
                && found.stored.holds(seed, at.line(), payload)
            {
                return Ok(Inserted::Present);
            }
            let killed = self.kill(log, [(at.place(), found.record())])?; // durable before: the new entry
            (0..killed).for_each(|_| count(&self.counters.invalidated));
        }
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if bytes.len() as u64 > u64::from(self.lines) * entry::LINE_BYTES as u64
            || lines_for(len) + summary::lines(1) > self.lines / 2
        {
            return Ok(Inserted::Refused(Refusal::TooLarge));
        }
        if !self.keep_quota(log, key.instance, len)? {
            return Ok(Inserted::Refused(Refusal::Quota));
        }
        if !self.append(log, block)? {
            return Ok(Inserted::Refused(Refusal::NoRoom));
        }
        Ok(Inserted::Stored)
    }

    /// Returns the metrics since the cache was opened.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.counters.read()
    }

    /// Returns the number of entries. Some that ended before a restart count until they are looked up.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.index.size(self.pool.pm()).0
    }

    /// Returns `true` if there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of the index in DRAM.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        self.index.size(self.pool.pm()).1
    }

    /// Returns the pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool<M>> {
        &self.pool
    }
}
