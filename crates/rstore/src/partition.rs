//! The partition: what belongs to it, and what it is asked most often.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::thread::ThreadId;

use pmindex_core::{Mapped, Medium, OpenIndex, PPtr, Pool};
use pmindex_log::Log;

use crate::backup::Running;
use crate::blocks::{Blocks, State};
use crate::collect::Victim;
use crate::graves::Graves;
use crate::index::Index;
use crate::large::Large;
use crate::layout::Root;
use crate::table::Table;
use crate::wrong::Faults;
use crate::{Error, Millis, Stats};

/// A partition of keys and values in a pool, owned by one thread. See the [crate's](crate) documentation.
///
/// It may be moved to another thread between two calls.
#[derive(Debug)]
pub struct Partition<M: Medium = Mapped> {
    pub(crate) root: PPtr<Root>,
    pub(crate) blocks: Blocks<M>,
    pub(crate) table: Table<M>,
    pub(crate) log: Log<M>,
    pub(crate) index: Index,
    pub(crate) graves: Graves,
    pub(crate) large: HashMap<u32, Large>,
    /// Bytes of their blocks.
    pub(crate) large_bytes: u64,
    /// Bytes that data blocks and large values may take.
    pub(crate) capacity: u64,
    /// Places without a block.
    pub(crate) unused: Vec<u32>,
    /// Free blocks.
    pub(crate) free: Vec<u32>,
    /// Blocks that opening found with room behind their records.
    pub(crate) tails: Vec<u32>,
    /// How many data blocks there are.
    pub(crate) data_blocks: u64,
    /// Words of full blocks that no record takes.
    pub(crate) wasted: u64,
    /// The pool refused another block: no more are asked for until one was given back.
    pub(crate) exhausted: bool,
    /// Where writes append, and collection.
    pub(crate) active: Option<u32>,
    pub(crate) copies: Option<u32>,
    /// Bodies that are not in the log yet, and where each record of the log ends in them.
    pub(crate) staged: Vec<u64>,
    pub(crate) ends: Vec<usize>,
    /// The last LSN.
    pub(crate) lsn: u64,
    /// Records up to this LSN were removed by a clearing.
    pub(crate) cleared: u64,
    /// How many records the index has addresses for.
    pub(crate) most_records: u64,
    /// The last generation.
    pub(crate) generation: u64,
    pub(crate) pipeline: Pipeline,
    /// The last LSN of each segment of the log, by its sequence.
    pub(crate) segments: VecDeque<(u64, u64)>,
    pub(crate) victim: Option<Victim>,
    /// Bytes that writes owe to collection.
    pub(crate) debt: u64,
    /// Blocks with records that expire, by the earliest.
    pub(crate) expiries: BTreeSet<(Millis, u32)>,
    pub(crate) running: Vec<Running>,
    pub(crate) counters: Stats,
    pub(crate) scratch: Scratch,
    /// Of the hashes of keys.
    pub(crate) seed: u64,
    /// Who has flushed what was written since the last fence.
    pub(crate) thread: ThreadId,
    /// Blocks may be had beyond the capacity: what is read from the log had room before.
    pub(crate) recovering: bool,
    pub(crate) broken: bool,
    pub(crate) faults: Faults,
    /// Last, so that the rest is gone when somebody else may open it.
    pub(crate) _open: OpenIndex,
}

/// Words for a copy of a record, for whoever takes them: a visitor may read while another read is under
/// way.
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
    /// Blocks whose lengths are to be stored after the next fence.
    pub(crate) grown: Vec<u32>,
    /// Lengths that were stored: place, words, and the LSN up to which they cover.
    pub(crate) lengths: Vec<(u32, u32, u64)>,
    /// Victims without live records.
    pub(crate) emptied: Vec<Victim>,
    /// Those of them whose copies are durable behind the next fence.
    pub(crate) settled: Vec<Victim>,
    /// Those that are void behind the next fence.
    pub(crate) void: Vec<Victim>,
    /// Large values that are not needed when what is staged is durable.
    pub(crate) replaced: Vec<u32>,
    /// Those that only a backup needs.
    pub(crate) kept: Vec<u32>,
}

impl Pipeline {
    pub(crate) fn is_empty(&self) -> bool {
        self.grown.is_empty()
            && self.lengths.is_empty()
            && self.emptied.is_empty()
            && self.settled.is_empty()
            && self.void.is_empty()
            && self.replaced.is_empty()
    }
}

impl<M: Medium> Partition<M> {
    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool<M>> {
        &self.blocks.pool
    }

    /// How many records there are, expired ones that were not swept yet included.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.index.len
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.len == 0
    }

    /// The number of the last write: it grows with each, and is never used again, crashes included.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Bytes of the longest key.
    #[must_use]
    pub fn max_key(&self) -> usize {
        crate::MAX_KEY.min(8 * self.blocks.payload() as usize / 4)
    }

    /// Bytes of the longest value that is kept in its record.
    pub(crate) fn max_inline(&self) -> usize {
        (2 << 10).min(self.blocks.words as usize)
    }

    /// Bytes of a data block.
    pub(crate) fn block_bytes(&self) -> u64 {
        8 * u64::from(self.blocks.words)
    }

    /// Bytes that live records and large values take.
    pub(crate) fn live_bytes(&self) -> u64 {
        8 * self.blocks.live + self.large_bytes
    }

    /// Blocks that can be had without collection: free ones and those that the pool has room for.
    pub(crate) fn available(&self) -> u64 {
        (self.free.len() + self.tails.len()) as u64 + self.allocatable()
    }

    /// Blocks that the capacity has room for.
    pub(crate) fn allocatable(&self) -> u64 {
        let taken = self.data_blocks * self.block_bytes() + self.large_bytes;
        let room = self.capacity.saturating_sub(taken) / self.block_bytes();
        if self.exhausted { 0 } else { room }
    }

    pub(crate) fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    /// A place without a block.
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

    /// The hash of a key in words.
    pub(crate) fn hash(&self, key: &[u64], len: usize) -> u64 {
        let mut sum = pmindex_log::Checksum::new(self.seed, len as u32);
        sum.add(key);
        sum.finish()
    }

    /// Figures. Cheap, but for the DRAM of the bits, which takes a look at each block.
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

    /// The offsets of all blocks of this partition, for the allocator's audit.
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
