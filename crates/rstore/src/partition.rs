//! The partition: its state, and its most frequent queries.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::thread::ThreadId;

use pmindex_core::{Mapped, Medium, OpenIndex, PPtr, Pool};
use pmindex_log::Log;

use crate::backup::Running;
use crate::blocks::{Blocks, Location, State};
use crate::collect::Victim;
use crate::graves::Graves;
use crate::holes::{Hole, Holes};
use crate::index::Index;
use crate::large::Large;
use crate::layout::Root;
use crate::table::Table;
use crate::wrong::Faults;
use crate::{Error, Millis, Stats};

/// A partition of keys and values in a pool, owned by one thread. See the [crate's](crate) documentation.
///
/// It may move to another thread between two calls.
#[derive(Debug)]
pub struct Partition<M: Medium = Mapped> {
    pub(crate) root: PPtr<Root>,
    pub(crate) blocks: Blocks<M>,
    pub(crate) table: Table<M>,
    pub(crate) log: Log<M>,
    pub(crate) index: Index,
    pub(crate) graves: Graves,
    pub(crate) large: HashMap<u32, Large>,
    /// The bytes of the blocks of large values.
    pub(crate) large_bytes: u64,
    /// The bytes that data blocks and large values may take.
    pub(crate) capacity: u64,
    /// Places without a block.
    pub(crate) unused: Vec<u32>,
    /// Free blocks.
    pub(crate) free: Vec<u32>,
    /// Blocks in which opening found room behind their records.
    pub(crate) tails: Vec<u32>,
    /// The number of data blocks.
    pub(crate) data_blocks: u64,
    /// `true` if the pool refused another block: no more are requested until one is returned.
    pub(crate) exhausted: bool,
    /// The blocks to which writes and collection append.
    pub(crate) active: Option<u32>,
    pub(crate) copies: Option<u32>,
    /// The bodies that are not in the log yet, and the end of each log record in them.
    pub(crate) staged: Vec<u64>,
    pub(crate) ends: Vec<usize>,
    /// The most words of a record of the log.
    pub(crate) logged: usize,
    /// The last LSN.
    pub(crate) lsn: u64,
    /// A clearing has removed the records up to this LSN.
    pub(crate) cleared: u64,
    /// The number of records for which the index has addresses.
    pub(crate) most_records: u64,
    /// The last generation.
    pub(crate) generation: u64,
    pub(crate) pipeline: Pipeline,
    /// The last LSN of each segment of the log, by the segment's sequence number.
    pub(crate) segments: VecDeque<(u64, u64)>,
    pub(crate) victim: Option<Victim>,
    /// The bytes that writes owe to collection.
    pub(crate) debt: u64,
    /// The words of blocks that were taken since a write paid.
    pub(crate) unpaid: u64,
    pub(crate) holes: Holes,
    /// The words that writes stored in blocks since the last turn, and the most of recent turns.
    pub(crate) turn_words: u64,
    pub(crate) peak_words: u64,
    /// Those that were appended, copies included.
    pub(crate) turn_appended: u64,
    pub(crate) peak_appended: u64,
    /// The blocks with records that expire, by the earliest expiry.
    pub(crate) expiries: BTreeSet<(Millis, u32)>,
    pub(crate) running: Vec<Running>,
    pub(crate) counters: Stats,
    pub(crate) scratch: Scratch,
    /// The seed of the hashes of keys.
    pub(crate) seed: u64,
    /// The thread that has flushed what was written since the last fence; `None`: there were several.
    pub(crate) thread: Option<ThreadId>,
    /// `true` during recovery: blocks may exceed the capacity, because what is read from the log had room
    /// before.
    pub(crate) recovering: bool,
    pub(crate) broken: bool,
    pub(crate) faults: Faults,
    /// The last field, so that everything else is dropped before another thread can open the partition.
    pub(crate) _open: OpenIndex,
}

/// A buffer for the copy of a record. A visitor may read during another read, so a read takes the buffer
/// for its own use.
#[derive(Default)]
pub(crate) struct Scratch(Cell<Vec<u64>>);

impl Scratch {
    pub(crate) fn take(&self) -> Vec<u64> {
        self.0.take()
    }

    pub(crate) fn set(&self, words: Vec<u64>) {
        self.0.set(words);
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scratch")
    }
}

/// What waits for fences: see [`commit`](crate::commit).
#[derive(Debug, Default)]
pub(crate) struct Pipeline {
    /// The blocks whose lengths are to be stored after the next fence.
    pub(crate) grown: Vec<u32>,
    /// The lengths that were stored: place, words, and the LSN up to which they cover.
    pub(crate) lengths: Vec<(u32, u32, u64)>,
    /// Victims without live records.
    pub(crate) emptied: Vec<Victim>,
    /// Those whose copies are durable after the next fence.
    pub(crate) settled: Vec<Victim>,
    /// Those that are void after the next fence.
    pub(crate) void: Vec<Victim>,
    /// Holes whose seals are durable after the next fence, and the hashes of their keys if their versions
    /// are counted.
    pub(crate) sealed: Vec<(Hole, Option<u64>)>,
    /// Staged records in holes, and their LSNs.
    pub(crate) filled: Vec<(Location, u64)>,
    /// The records that are durably open after the next fence.
    pub(crate) opened: Vec<(Location, u64)>,
    /// Large values that are not needed once the staged writes are durable.
    pub(crate) replaced: Vec<u32>,
    /// Those that only a backup needs.
    pub(crate) kept: Vec<u32>,
}

impl Pipeline {
    /// Returns the number of victims that are free after further fences.
    pub(crate) fn victims(&self) -> u64 {
        (self.emptied.len() + self.settled.len() + self.void.len()) as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.grown.is_empty()
            && self.lengths.is_empty()
            && self.emptied.is_empty()
            && self.settled.is_empty()
            && self.void.is_empty()
            && self.opened.is_empty()
            && self.replaced.is_empty()
    }
}

impl<M: Medium> Partition<M> {
    /// Returns the pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool<M>> {
        &self.blocks.pool
    }

    /// Returns the number of records, including expired ones that have not been swept.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.index.len
    }

    /// Returns `true` if there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.len == 0
    }

    /// Returns the LSN of the last write. It grows with each write, and is never used again, even after a
    /// crash.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Returns the length of the longest key.
    #[must_use]
    pub fn max_key(&self) -> usize {
        crate::MAX_KEY.min(8 * self.blocks.payload() as usize / 4)
    }

    /// Returns the length of the longest value that is stored in its record.
    pub(crate) fn max_inline(&self) -> usize {
        (2 << 10).min(self.blocks.words as usize)
    }

    /// Returns the bytes of a data block.
    pub(crate) fn block_bytes(&self) -> u64 {
        8 * u64::from(self.blocks.words)
    }

    /// Returns the bytes of live records and large values.
    pub(crate) fn live_bytes(&self) -> u64 {
        8 * self.blocks.live + self.large_bytes
    }

    /// Returns the number of blocks available without collection: free ones, and those that the capacity has
    /// room for.
    pub(crate) fn available(&self) -> u64 {
        self.free.len() as u64 + self.allocatable()
    }

    /// Returns the number of blocks that the capacity has room for.
    pub(crate) fn allocatable(&self) -> u64 {
        let taken = self.data_blocks * self.block_bytes() + self.large_bytes;
        let room = self.capacity.saturating_sub(taken) / self.block_bytes();
        if self.exhausted { 0 } else { room }
    }

    pub(crate) fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    /// Looks anew for room in the pool: a disk that was full may have some since.
    pub fn look_for_room(&mut self) {
        self.exhausted = false;
    }

    /// Returns the number of places without a block.
    pub(crate) fn free_places(&self) -> u64 {
        self.unused.len() as u64 + self.table.more_places()
    }

    /// Returns a place without a block.
    pub(crate) fn take_place(&mut self) -> Result<u32, Error> {
        if self.unused.is_empty() {
            let first = self.table.places();
            self.table.grow()?;
            let end = self.table.places();
            self.unused.extend((first..end).rev());
            self.blocks.list.resize_with(end as usize, crate::blocks::Block::absent);
        }
        self.unused.pop().ok_or(Error::Broken)
    }

    pub(crate) fn usable(&self) -> Result<(), Error> {
        if self.broken {
            return Err(Error::Broken);
        }
        Ok(self.pool().check_writable()?)
    }

    /// Returns the hash of a key in words.
    pub(crate) fn hash(&self, key: &[u64], len: usize) -> u64 {
        hash(self.seed, key, len)
    }

    /// Returns figures. Cheap, except for the DRAM of the bits, which requires a look at each block.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let index_bytes = self.index.bytes();
        let vectors = 8 * self.staged.capacity() as u64;
        Stats {
            records: self.index.len,
            live_bytes: self.live_bytes(),
            capacity: self.capacity,
            blocks: self.data_blocks,
            free_blocks: self.free.len() as u64,
            large_values: self.large.len() as u64,
            large_bytes: self.large_bytes,
            tombstones: self.graves.tombstones(),
            log_bytes: self.log.bytes(),
            dram_bytes: index_bytes + self.blocks.bytes() + self.graves.bytes() + vectors,
            index_bytes,
            ..self.counters.clone()
        }
    }

    /// Returns the offsets of all blocks of this partition, for the allocator's audit.
    ///
    /// # Errors
    /// [`Error::Pool`] if the log is damaged.
    #[doc(hidden)]
    pub fn all_blocks(&self) -> Result<Vec<u64>, Error> {
        let mut all = vec![self.root.offset()];
        all.extend(self.table.blocks());
        all.extend(self.log.blocks()?);
        all.extend(self.large.values().flat_map(|large| large.pieces.iter().copied()));
        let is_data = |state| !matches!(state, State::Absent | State::Large);
        let data = self.blocks.list.iter().filter(|block| is_data(block.state));
        all.extend(data.map(|block| block.offset));
        Ok(all)
    }
}

/// Returns the hash of a key in words.
pub(crate) fn hash(seed: u64, key: &[u64], len: usize) -> u64 {
    let mut sum = pmindex_log::Checksum::new(seed, len as u32);
    sum.add(key);
    sum.finish()
}
