//! Lookups.
//!
//! A reader finds an entry under the lock of its shard, and copies it without a lock. A segment is reused
//! only after its entries have left the index and its generation has changed, so if the generation is the
//! same after the copy, the copy is intact. The checksum is computed from the copy, at the first hit after an
//! entry was written or the cache was opened.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use pmindex_core::Medium;

use super::entry::{LINE_WORDS, Stored, payload_sum};
use super::index::{Location, Slot};
use super::key::Key;
use super::metrics::count;
use super::pack;
use super::summary::Record;
use super::{Block, BlockCache};

/// An entry in the index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) slot: Slot,
    pub(super) stored: Stored,
    generation: u64,
}

impl Found {
    pub(super) fn at(&self) -> Location {
        self.slot.location()
    }

    pub(super) fn record(&self) -> Record {
        let header = self.stored.header();
        Record { key: header.key, line: self.at().line(), len: header.len }
    }
}

/// The result of copying an entry.
enum Copied {
    /// A block of this kind.
    Block(u8),
    /// The entry is damaged.
    Damaged,
    /// The entry is compressed, and this build cannot decompress it.
    Unreadable,
}

impl<M: Medium> BlockCache<M> {
    /// Returns the block with this name.
    ///
    /// # Cost
    /// A line of the index, and the lines of the entry; no fence, unless the entry is damaged and must be
    /// killed. The first hit of an entry computes its checksum.
    pub fn get(&self, key: &Key) -> Option<Block> {
        let mut bytes = Vec::new();
        let kind = self.get_into(key, &mut bytes)?;
        Some(Block { kind, bytes })
    }

    /// Copies the block with this name into `bytes`, replacing its contents, and returns the kind of the
    /// block.
    ///
    /// # Cost
    /// That of [`get`](Self::get), and no allocation if there is capacity and the block is not compressed.
    pub fn get_into(&self, key: &Key, bytes: &mut Vec<u8>) -> Option<u8> {
        let kind = self.read(key, bytes);
        count(if kind.is_some() { &self.counters.hits } else { &self.counters.misses });
        kind
    }

    /// Does the same as [`get_into`](Self::get_into), without counting.
    pub(super) fn read(&self, key: &Key, bytes: &mut Vec<u8>) -> Option<u8> {
        let hash = key.hash();
        loop {
            let found = self.find(key, hash)?;
            match self.copy_out(&found, hash, bytes) {
                Some(Copied::Block(kind)) => return Some(kind),
                Some(Copied::Damaged | Copied::Unreadable) => return None,
                None => self.pool.pm().spin(), // the segment was reused meanwhile
            }
        }
    }

    /// Copies an entry; returns `None` if the segment was reused.
    fn copy_out(&self, found: &Found, hash: u64, bytes: &mut Vec<u8>) -> Option<Copied> {
        let (pm, at, header) = (self.pool.pm(), found.at(), found.stored.header());
        let cells = self.cells(at, usize::MAX).get(LINE_WORDS..).unwrap_or_default();
        let len = (header.len as usize).min(size_of_val(cells));
        bytes.clear();
        bytes.resize(len, 0);
        pm.read_bytes(cells, bytes);
        if self.generation_of(at.place()) != found.generation {
            return None;
        }
        if !found.slot.is_verified() {
            let seed = self.seed(found.generation);
            let whole = len == header.len as usize
                && found.stored.holds(seed, at.line(), payload_sum(bytes));
            if !whole {
                self.give_up(found);
                return Some(Copied::Damaged);
            }
            count(&self.counters.verified);
            let mut shard = self.index.shard(pm, hash);
            if let Some(slot) = shard.find(hash, |other| other == at)
                && self.generation_of(at.place()) == found.generation
            {
                shard.set_verified(slot);
            }
        }
        if header.packed {
            match pack::unpack(bytes) {
                Some(block) => *bytes = block,
                None => return Some(Copied::Unreadable),
            }
        }
        Some(Copied::Block(header.kind))
    }

    /// Counts a use of a block without reading it. A cache in front of this one, in DRAM, calls it at its
    /// hits, at each or at some of them: otherwise the most used blocks are the first to be evicted here, and
    /// are missing after a crash. Returns `true` if the block is in the cache.
    ///
    /// # Cost
    /// A line of the index, and the first line of the entry.
    pub fn touch(&self, key: &Key) -> bool {
        self.find(key, key.hash()).is_some()
    }

    /// Returns the entry with this name in the index, which counts as a use.
    pub(super) fn find(&self, key: &Key, hash: u64) -> Option<Found> {
        let pm = self.pool.pm();
        let mut shard = self.index.shard(pm, hash);
        let read = |at: Location| {
            let cells = self.cells(at, LINE_WORDS);
            (cells.len() == LINE_WORDS).then(|| Stored::read(pm, cells))
        };
        let at = shard.find(hash, |at| read(at).is_some_and(|stored| stored.key() == *key))?;
        let slot = shard.slot(at);
        if !slot.is_referenced() {
            shard.set_referenced(at);
        }
        let stored = read(slot.location())?;
        let generation = self.place(slot.location().place()).generation.load(Acquire);
        Some(Found { slot, stored, generation })
    }

    pub(super) fn is_listed(&self, record: &Record, at: Location) -> bool {
        let hash = record.key.hash();
        self.index.shard(self.pool.pm(), hash).find(hash, |other| other == at).is_some()
    }

    /// Kills an entry that is not intact. It must not return, since the cause of the damage may pass.
    #[cold]
    fn give_up(&self, found: &Found) {
        let mut log = self.pool.pm().lock(&self.log);
        let (at, record) = (found.at(), found.record());
        if self.generation_of(at.place()) != found.generation || !self.is_listed(&record, at) {
            return;
        }
        if found.stored.is_live() {
            count(&self.counters.corrupt);
        }
        if self.pool.check_writable().is_err() {
            self.unlist(&mut log, &record, at);
        } else if let Err(error) = self.kill(&mut log, [(at.place(), record)]) {
            self.pool.note_damage(&error);
        }
    }

    /// Pins the block with this name, if it is in the cache: its segment is not reused until the result is
    /// dropped.
    ///
    /// An invalidation removes a pinned block for all other readers.
    pub fn pin(&self, key: &Key) -> Option<Pinned<'_, M>> {
        let mut bytes = Vec::new();
        self.read(key, &mut bytes)?; // verifies it
        let hash = key.hash();
        // Under this lock no segment is reused.
        let _log = self.pool.pm().lock(&self.log);
        let found = self.find(key, hash)?;
        if !found.slot.is_verified() {
            return None; // another block, inserted meanwhile
        }
        self.place(found.at().place()).pins.fetch_add(1, Relaxed);
        Some(Pinned { cache: self, found })
    }
}

/// A pinned block.
#[derive(Debug)]
#[must_use = "the block is pinned while this lives"]
pub struct Pinned<'c, M: Medium> {
    cache: &'c BlockCache<M>,
    found: Found,
}

impl<M: Medium> Pinned<'_, M> {
    /// Returns the kind of the block.
    #[must_use]
    pub fn kind(&self) -> u8 {
        self.found.stored.header().kind
    }

    /// Returns the length of the block.
    #[must_use]
    pub fn len(&self) -> usize {
        let header = self.found.stored.header();
        if header.packed { pack::len(&self.stored(pack::HEAD)) } else { header.len as usize }
    }

    /// Returns at most this many bytes of the entry.
    fn stored(&self, most: usize) -> Vec<u8> {
        let cells = self.cache.cells(self.found.at(), usize::MAX);
        let len = (self.found.stored.header().len as usize).min(most);
        self.cache.pool.pm().read_vec(cells.get(LINE_WORDS..).unwrap_or_default(), len)
    }

    /// Returns `true` if the block is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let bytes = self.stored(usize::MAX);
        if !self.found.stored.header().packed {
            return bytes;
        }
        pack::unpack(&bytes).unwrap_or_default() // as it was when it was pinned
    }
}

impl<M: Medium> Drop for Pinned<'_, M> {
    fn drop(&mut self) {
        self.cache.place(self.found.at().place()).pins.fetch_sub(1, Relaxed);
    }
}
