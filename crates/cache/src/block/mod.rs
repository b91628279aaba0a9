//! A cache of blocks in a pool, which is warm after a crash.
//!
//! For an engine whose files lie on something slow: an SSD, a network disk, an object store. What it
//! read stays in persistent memory, or in a file that outlives the process, and the next process finds it
//! there. Losing blocks is legal, a wrong block is not:
//!
//! * A block is found with the bytes that were last inserted under its name, or not at all: after a
//!   crash at any step, in a file in which bits flipped, and whatever lay in the same memory before.
//! * What was [invalidated](BlockCache::invalidate) or replaced never comes back.
//! * After the death of the process (`kill -9`) nothing is lost. After that of the system, at most the
//!   blocks since the last segment was sealed.
//!
//! ```text
//! root --> table of places     segment 0:  | e e e e e e e | summary |    sealed
//!              |               segment 1:  | e e e e . . . |         |    being filled
//!              +-> segments    segment 2:  | e e e e e e e | summary |    the oldest: used anew next
//! ```
//!
//! * [`log`]: blocks are appended to one segment; a full one is sealed under one fence, which begins the
//!   next one as well. The oldest is used anew; what was hit since it was written is copied on (a second
//!   chance), up to half a segment. The essay there says why nothing comes back.
//! * [`index`]: where the entries are, in DRAM, 9 to 18 bytes each; [`recover`] rebuilds it from the
//!   summaries.
//! * [`entry`]: checksums. An entry is verified at its first hit after it was written or the cache opened.
//! * [`flight`]: one load for all who miss a block at once, with or without threads.
//! * [`quota`]: what an instance may have.
//! * [`pack`]: compression, if the opener asks for it.
//!
//! Inserts take one lock; hits that of a shard of the index. No thread is started, and nothing waits but
//! for these locks and, if the caller says so, for somebody's load.
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

/// What a segment may have. An entry is found by the number of its line, in 16 bits.
const SEGMENT_BYTES: RangeInclusive<u64> = 1024..=4 << 20;

/// How a cache is made.
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
    /// At most so many bytes of the pool, in segments of 2 MiB; at least two segments.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self { capacity, segment_bytes: 2 << 20, shards: 16, identity: None, compress: false }
    }

    /// Bytes of a segment: 1 KiB to 4 MiB, whole lines. Half a segment is the largest block.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// How many parts the index in DRAM has, each with a lock of its own.
    #[must_use]
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// Whether blocks that are inserted from now on are compressed (LZ4) where that makes them smaller by an
    /// eighth or more. Blocks of both kinds lie in one cache; the choice is the opener's.
    ///
    /// # Cost
    /// An insert compresses its block, a hit of a compressed block takes a buffer and restores the block.
    #[cfg(feature = "lz4")]
    #[must_use]
    pub fn compress(mut self, compress: bool) -> Self {
        self.compress = compress;
        self
    }

    /// The number that tells this cache from others, in place of a random one. For tests, which repeat
    /// what they do: of two caches with one number one might take what the other left in its memory.
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
    /// What kind of block it is: the caller's affair.
    pub kind: u8,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What became of a block that was to be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is stored.
    Stored,
    /// The same bytes were there.
    Present,
    /// It is not stored. What was there under its name is gone.
    Refused(Refusal),
}

/// Why a block is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It is larger than half a segment.
    TooLarge,
    /// Its instance may not have so many bytes.
    Quota,
    /// Blocks in all segments are pinned, or the pool has no room for one segment.
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
    /// Of a segment.
    lines: u32,
    places: Box<[places::Place]>,
    index: index::Index,
    /// Taken before the locks of the index and of the loads.
    log: Mutex<log::Log>,
    flights: flight::Flights,
    /// Whether blocks are compressed.
    compress: bool,
    counters: metrics::Counters,
    /// Last, so that the rest is gone when somebody else may open the cache.
    _open: OpenIndex,
}

impl<M: Medium> BlockCache<M> {
    /// Stores a block, in place of what there is under its name.
    ///
    /// # Errors
    /// [`PmError::DurabilityLost`], [`PmError::ReadOnly`], [`PmError::Damaged`], [`PmError::Corrupt`]. What
    /// there was under the name may be gone then.
    ///
    /// # Cost
    /// The lines of the block and one more. No fence, but: one to replace other bytes; one when a segment
    /// is full, with the lines of its summary and of what is copied on; two when a segment is allocated.
    ///
    /// # Durability
    /// Nothing that is promised. See [`seal`](Self::seal).
    pub fn insert(&self, key: &Key, kind: u8, bytes: &[u8]) -> Result<Inserted, PmError> {
        self.insert_unless(key, kind, bytes, || false)
    }

    /// As [`insert`](Self::insert), if `disowned` is false once nobody can invalidate.
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
            let killed = self.kill(log, [(at.place(), found.record())])?; // durable before: another one
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

    /// What it did since it was opened.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.counters.read()
    }

    /// How many entries there are. Some that ended before a restart count until they are met.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.index.size(self.pool.pm()).0
    }

    /// Returns whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the index in DRAM.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        self.index.size(self.pool.pm()).1
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool<M>> {
        &self.pool
    }
}
