//! Creating and opening a partition.
//!
//! Opening reads the blocks up to their lengths, in any order. Of the records of a key the one with the
//! greatest LSN is valid, tombstones included; records with equal LSNs are copies of each other. The index is built of
//! the valid records ([`rebuild`](crate::rebuild)). Then opening reads the log: writes that the blocks lack are appended to blocks as if they were written now, with
//! their LSNs, and stay in the log until a length covers them. Records behind the length of a block are not
//! read: the log has them, or they were never committed, or another block has a copy. Then tombstones
//! without older versions are dropped, and large values without records are freed. All of this can be
//! interrupted and repeated.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use pmindex_core::{Medium, OpenIndex, PmError, PmPtr, PmU64, Pool};
use pmindex_log::Log;

use crate::append::{OF, Stream};
use crate::blocks::{Block, Blocks, Location, State};
use crate::commit::{PART, WRITES};
use crate::graves::Graves;
use crate::holes::Holes;
use crate::index::Index;
use crate::layout::{
    FORMAT, GENERATION, HEADER, HEADER_SUM, KIND, LENGTH, Root, WITHOUT_HOLES, header_checksum,
    length_word, root_checksum,
};
use crate::options::bad;
use crate::partition::{Partition, Pipeline};
use crate::record::{Head, LARGE, Parts, TOMBSTONE};
use crate::table::{Table, division};
use crate::write::RESERVE;
use crate::wrong::Faults;
use crate::{Error, Options, Recovery, Stats};

/// The possible sizes of a data block.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 256..=(2 << 20);
/// The minimum number of blocks of a partition.
const LEAST_BLOCKS: u64 = 8;
/// The LSNs of one opening of a pool, as a power of two, and the number of openings with LSNs of their own.
const LSN_BITS: u32 = 44;
const LSN_OPENINGS: u64 = (1 << 20) - 1;

/// What opening has found so far.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) recovery: Recovery,
    /// Tombstones that were the newest records of their keys when they were found.
    tombstones: Vec<Location>,
    /// Records with large values that were the newest of their keys when they were found.
    large: Vec<Location>,
    pub(crate) last_lsn: u64,
    /// Damage is no error.
    salvage: bool,
    /// The hashes of the keys of dead versions.
    pub(crate) dead: Vec<u64>,
}

impl Found {
    /// Notes a record that is the newest of its key so far.
    pub(crate) fn note(&mut self, at: Location, head: Head) {
        if head.has(TOMBSTONE) {
            self.tombstones.push(at);
        } else if head.has(LARGE) {
            self.large.push(at);
        }
    }
}

impl<M: Medium> Partition<M> {
    /// Creates a partition of this name.
    ///
    /// # Errors
    /// [`Error::Pool`]: the name is taken, the pool is full, or an option is invalid.
    ///
    /// # Cost
    /// 6 fences. Blocks are allocated when they are needed.
    pub fn create(pool: &Arc<Pool<M>>, name: &str, options: &Options) -> Result<Self, Error> {
        let bytes = options.block_bytes;
        if !BLOCK_BYTES.contains(&bytes) || !bytes.is_multiple_of(64) {
            return Err(bad("size of a block", bytes));
        }
        let largest = pool.largest_block();
        if bytes > largest {
            return Err(PmError::TooLarge { wanted: bytes, max: largest }.into());
        }
        let capacity = options.capacity.unwrap_or(pool.max_size() / 16 * 15);
        if capacity / bytes < LEAST_BLOCKS {
            return Err(bad("capacity of a partition", capacity));
        }
        // A large value also takes a place. So do blocks beyond the capacity, into which opening puts writes of the log
        // that were in holes.
        let places = capacity / bytes.min(2048);
        let (page_places, pages) = division(places + places / 8 + RESERVE, largest);
        let identity = RandomState::new().build_hasher().finish();
        let words = [identity, bytes, capacity, page_places, pages];
        let pm = pool.pm();
        let open = pool.create_index::<Root>(name, KIND, FORMAT, |root| {
            let cells =
                [&root.identity, &root.block_bytes, &root.capacity, &root.page_places, &root.pages];
            cells.iter().zip(words).for_each(|(cell, word)| pm.store(*cell, word));
            pm.store(&root.checksum, root_checksum(&words, FORMAT));
            pm.store(root.directory.as_word(), 0);
            pm.store(root.log.as_word(), 0);
            pm.store(&root.cleared, 0);
            pm.store(&root.covered, 0);
            root.reserved.iter().for_each(|word| pm.store(word, 0));
            pm.flush(root)
        })?;
        Ok(Self::start(pool, open, options)?.0)
    }

    /// Opens the partition of this name, and returns what recovery did.
    ///
    /// # Errors
    /// [`Error::Missing`]; [`Error::Pool`] if it is damaged or already open.
    ///
    /// # Cost
    /// Reads all data blocks (not the large values), and the log. No fence, unless something must be freed
    /// or replayed. Until it returns, it takes 16 bytes of DRAM for each version in the blocks, but at most 32 for each
    /// key where there are many, and 8 for each dead version.
    pub fn open(
        pool: &Arc<Pool<M>>,
        name: &str,
        options: &Options,
    ) -> Result<(Self, Recovery), Error> {
        match pool.open_index(name)? {
            Some(open) => Self::start(pool, open, options),
            None => Err(Error::Missing { name: name.into() }),
        }
    }

    /// Opens the partition of this name, or creates it.
    ///
    /// # Errors
    /// Those of [`open`](Self::open) and [`create`](Self::create).
    pub fn open_or_create(
        pool: &Arc<Pool<M>>,
        name: &str,
        options: &Options,
    ) -> Result<(Self, Recovery), Error> {
        match Self::open(pool, name, options) {
            Err(Error::Missing { .. }) => {
                Ok((Self::create(pool, name, options)?, Recovery::default()))
            }
            other => other,
        }
    }

    /// Removes the partition of this name and frees its blocks; returns `false` if it does not exist.
    /// It must not be open. It may be damaged: then the pool loses the blocks of which its checksums do not say that
    /// they are its own, as they might be another index's.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and of [`Pool::drop_index`].
    ///
    /// # Cost
    /// That of [`open`](Self::open). Also reads the large values that have several blocks.
    pub fn destroy(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, Error> {
        pool.drop_index(name, |name| match Self::open(pool, name, &Options::discarding()) {
            Ok((partition, _)) => {
                let (own, is_whole) = partition.own_blocks()?;
                if !is_whole {
                    return Ok(own); // recovery would write into pages that may be another index's
                }
                drop(partition);
                // It frees orphans, which a full pool may need for the list of the others.
                Ok(Self::open(pool, name, &Options::new().salvage(true))?.0.own_blocks()?.0)
            }
            Err(Error::Missing { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        })
    }

    /// Returns a partition with this root block.
    fn start(
        pool: &Arc<Pool<M>>,
        open: OpenIndex,
        options: &Options,
    ) -> Result<(Self, Recovery), Error> {
        let begun = Instant::now();
        pool.check_writable()?;
        let (pm, at) = (pool.pm(), open.root::<Root>());
        let corrupt = |what| Error::Pool(PmError::Corrupt { what, offset: at.offset() });
        if open.kind != KIND || !(WITHOUT_HOLES..=FORMAT).contains(&open.layout) {
            return Err(corrupt("an index that is no partition of this version"));
        }
        let root = pool.get(at)?;
        let cells =
            [&root.identity, &root.block_bytes, &root.capacity, &root.page_places, &root.pages];
        let words = cells.map(|word| pm.load(word));
        let [identity, bytes, capacity, page_places, pages] = words;
        let sound = pm.load(&root.checksum) == root_checksum(&words, open.layout)
            && BLOCK_BYTES.contains(&bytes)
            && page_places.saturating_mul(pages) <= 1 << 32;
        if !sound {
            return Err(corrupt("the root of a partition"));
        }
        if pm.load(root.directory.as_word()) == 0 {
            Table::make_directory(pool, root)?;
        }
        let log_cell: &PmPtr<_> = &root.log;
        let log = match pm.load(log_cell.as_word()) {
            0 => Log::create(pool, log_cell)?,
            _ => Log::open(pool, log_cell)?,
        };
        let logged = options.logged.min(log.max_payload());
        let capacity = capacity.max(options.raised);
        let records = options.records.unwrap_or(capacity / 64).max(1 << 10);
        let mut partition = Self {
            root: at,
            blocks: Blocks::new(pool, identity, (bytes / 8) as u32),
            table: Table::open(pool, root)?,
            log,
            index: Index::new(records)?,
            graves: Graves::default(),
            large: HashMap::new(),
            large_bytes: 0,
            capacity,
            unused: Vec::new(),
            free: Vec::new(),
            tails: Vec::new(),
            data_blocks: 0,
            exhausted: false,
            active: None,
            copies: None,
            staged: Vec::new(),
            ends: Vec::new(),
            logged,
            lsn: pm.load(&root.cleared),
            cleared: pm.load(&root.cleared),
            most_records: records,
            generation: pool.generation() << 32,
            pipeline: Pipeline::default(),
            segments: VecDeque::new(),
            victim: None,
            debt: 0,
            unpaid: 0,
            holes: Holes::new(open.layout > WITHOUT_HOLES, options.fill_below),
            turn_words: 0,
            peak_words: 0,
            turn_appended: 0,
            peak_appended: 0,
            expiries: BTreeSet::new(),
            running: Vec::new(),
            counters: Stats::default(),
            scratch: crate::partition::Scratch::default(),
            seed: RandomState::new().build_hasher().finish(),
            thread: Some(thread::current().id()),
            recovering: true,
            broken: false,
            faults: Faults::of(options.wrong),
            _open: open,
        };
        if options.discard {
            return Ok((partition, Recovery::default()));
        }
        let mut recovery = partition.recover(options)?;
        recovery.time = begun.elapsed();
        Ok((partition, recovery))
    }

    /// Reads the blocks and the log.
    fn recover(&mut self, options: &Options) -> Result<Recovery, Error> {
        let mut found = Found { last_lsn: self.cleared, ..Found::default() };
        found.salvage = options.salvage;
        let places = self.table.places();
        self.blocks.list.resize_with(places as usize, Block::absent);
        let mut with_records = Vec::new();
        for place in (0..places).rev() {
            let offset = self.pool().pm().load(self.table.word(place)?);
            if offset == 0 {
                self.unused.push(place); // the first ones last, to be taken first
                continue;
            }
            if self.find_block(place, offset, &mut found)? {
                with_records.push(place);
            }
        }
        self.rebuild(&with_records, &mut found)?;
        self.replay(&mut found)?;
        self.graves.all_died(std::mem::take(&mut found.dead));
        self.settle_tombstones(&mut found)?;
        self.free_orphans(&mut found)?;
        self.recovering = false;
        let opening = self.pool().generation().min(LSN_OPENINGS) << LSN_BITS;
        self.lsn = found.last_lsn.max(opening);
        found.recovery.records = self.index.len;
        Ok(found.recovery)
    }

    /// Reads the header of the block of a place; returns `true` if it has records.
    fn find_block(&mut self, place: u32, offset: u64, found: &mut Found) -> Result<bool, Error> {
        let identity = self.blocks.identity;
        if let Some((generation, large)) = self.find_large(offset) {
            self.generation = self.generation.max(generation);
            self.large_bytes += large.bytes;
            self.large.insert(place, large);
            *self.blocks.at_mut(place) = Block::large(offset, generation);
            return Ok(false);
        }
        let words = self.blocks.words;
        let cells: &[PmU64] = self.blocks.pool.words(offset, words as usize)?;
        let load = |at: usize| self.blocks.pool.pm().load(&cells[at]);
        let (generation, length) = (load(GENERATION), load(LENGTH));
        let used = length as u32;
        let sound = load(HEADER_SUM) == header_checksum(identity, offset, generation, OF);
        let is_length = length == length_word(identity, offset, generation, used);
        self.data_blocks += 1;
        *self.blocks.at_mut(place) = Block::free(offset, generation, words);
        if used == 0 && is_length {
            self.free.push(place);
            return Ok(false);
        }
        found.recovery.blocks += 1;
        if !sound || !is_length || !(HEADER as u32..=words).contains(&used) {
            self.note_damage(place, 1, found)?;
            return Ok(false);
        }
        self.generation = self.generation.max(generation);
        let block = self.blocks.at_mut(place);
        (block.used, block.durable, block.flushed) = (used, used, used / 8 * 8);
        block.state = State::Open;
        Ok(true)
    }

    /// Notes what is damaged in a block.
    fn note_damage(&mut self, place: u32, count: u64, found: &mut Found) -> Result<(), Error> {
        found.recovery.damaged += count;
        if !found.salvage {
            let offset = self.blocks.at(place).offset;
            return Err(PmError::Corrupt { what: "a block of a partition", offset }.into());
        }
        self.blocks.condemn(place);
        Ok(())
    }

    /// Decides what a block is for, whose records were read: `damaged` of them are lost.
    pub(crate) fn end_block(
        &mut self,
        place: u32,
        damaged: u64,
        found: &mut Found,
    ) -> Result<(), Error> {
        if damaged > 0 {
            // Neither for appending, as no opening finds what is behind a damaged length, nor for collection.
            return self.note_damage(place, damaged, found);
        }
        let (used, words) = (self.blocks.at(place).used, self.blocks.words);
        if used <= words - words / 8 {
            self.tails.push(place);
        } else {
            self.fill(place);
        }
        Ok(())
    }

    /// Notes that a record is the newest of its key so far.
    fn newest(
        &mut self,
        at: Location,
        parts: Parts<'_>,
        before: Option<Location>,
        found: &mut Found,
    ) -> Result<(), Error> {
        self.blocks.enliven(at, parts.words.len() as u32 + 1);
        if let Some(before) = before {
            let (head, cells) = self.blocks.record(before)?;
            let words = cells.len() as u32;
            self.blocks.kill(before, words);
            if !head.has(TOMBSTONE) {
                found.dead.push(self.hash_of(&parts));
            }
        }
        found.note(at, parts.head);
        if let Some(expiry) = parts.expiry() {
            self.note_expiry(at.place(), expiry);
        }
        Ok(())
    }

    pub(crate) fn hash_of(&self, parts: &Parts<'_>) -> u64 {
        let key = &parts.words[parts.head.key_at()..parts.head.value_at()];
        self.hash(key, parts.head.key_len)
    }

    /// Appends the writes of the log that the blocks lack.
    fn replay(&mut self, found: &mut Found) -> Result<(), Error> {
        let mut bodies: Vec<u64> = Vec::new();
        // Where the parts of a batch begin whose last record has not come yet, and their LSN.
        let mut parts_from: Option<(usize, u64)> = None;
        for entry in self.log.entries() {
            let entry = entry?;
            let begin = bodies.len();
            let cells = entry.entry.payload;
            found.recovery.log_bytes += 8 * cells.len() as u64;
            bodies.resize(begin + cells.len(), 0);
            self.blocks.pool.pm().read_words(cells, &mut bodies[begin..]);
            if !matches!(entry.entry.tag, WRITES | PART) {
                return Err(
                    PmError::Corrupt { what: "an entry of a partition's log", offset: 0 }.into()
                );
            }
            let (mut at, mut first, mut last) = (begin, 0, 0);
            // Zeros fill the last line.
            while let Some(parts) = Parts::split(&bodies[at..]).filter(|parts| parts.head.lsn != 0)
            {
                (at, last) = (at + parts.words.len(), parts.head.lsn);
                first = if first == 0 { last } else { first };
            }
            bodies.truncate(at);
            found.last_lsn = found.last_lsn.max(last);
            if let Some((from, _)) = parts_from.take_if(|(_, lsn)| *lsn != first) {
                bodies.drain(from..begin); // a crash came before the rest of this batch was there
            }
            if entry.entry.tag == PART {
                parts_from = parts_from.or(Some((bodies.len() - (at - begin), first)));
            } else {
                parts_from = None;
            }
            let sequence = entry.position.sequence();
            match self.segments.back_mut() {
                Some((known, lsn)) if *known == sequence => *lsn = last.max(*lsn),
                _ => self.segments.push_back((sequence, last)),
            }
        }
        if let Some((from, _)) = parts_from {
            bodies.truncate(from);
        }
        // The blocks may no longer have the tombstones of writes that the log of a closed partition still
        // has.
        let covered = self.pool().pm().load(&self.pool().get(self.root)?.covered);
        let mut at = 0;
        while let Some(parts) = Parts::split(&bodies[at..]) {
            at += parts.words.len();
            found.last_lsn = found.last_lsn.max(parts.head.lsn);
            if parts.head.lsn > covered.max(self.cleared) {
                self.replay_one(parts, found)?;
            }
        }
        Ok(())
    }

    fn replay_one(&mut self, parts: Parts<'_>, found: &mut Found) -> Result<(), Error> {
        let lsn = parts.head.lsn;
        let mut key = Vec::new();
        parts.push_key(&mut key);
        let before = self.index.get(&self.blocks, &key)?;
        let is_known = match before {
            Some(before) => self.blocks.record(before)?.0.lsn >= lsn,
            None => false,
        };
        if is_known {
            return Ok(());
        }
        let at = self.room_in(Stream::Writes, parts.words.len() as u32 + 1)?;
        self.index.set(&self.blocks, &key, at)?;
        self.append(at, parts.words)?;
        let block = self.blocks.at_mut(at.place());
        block.uncovered = block.uncovered.min(lsn);
        found.recovery.replayed += 1;
        self.newest(at, parts, before, found)
    }

    /// Removes tombstones from the index. Those with older versions stay in their blocks.
    fn settle_tombstones(&mut self, found: &mut Found) -> Result<(), Error> {
        let mut words = Vec::new();
        for at in std::mem::take(&mut found.tombstones) {
            let parts = self.blocks.read(at, &mut words)?;
            let mut key = Vec::new();
            parts.push_key(&mut key);
            let hash = self.hash_of(&parts);
            let length = parts.words.len() as u32 + 1;
            if self.index.get(&self.blocks, &key)? != Some(at) {
                continue;
            }
            self.index.remove(&self.blocks, &key, at)?;
            if self.graves.dead(hash) == 0 {
                self.blocks.kill(at, length);
            } else {
                self.graves.bury(hash, at);
            }
        }
        Ok(())
    }

    /// Frees large values that belong to no record.
    fn free_orphans(&mut self, found: &mut Found) -> Result<(), Error> {
        let (mut named, mut words) = (HashSet::new(), Vec::new());
        for at in std::mem::take(&mut found.large) {
            if !self.blocks.at(at.place()).is_live(at.word()) {
                continue;
            }
            let Some(large) = self.blocks.read(at, &mut words)?.large() else { continue };
            let there = self.blocks.list.get(large.place as usize);
            if there.is_none_or(|block| block.generation != large.generation) {
                found.recovery.damaged += 1;
            } else {
                named.insert(large.place);
            }
        }
        let orphans: Vec<u32> =
            self.large.keys().copied().filter(|place| !named.contains(place)).collect();
        found.recovery.orphans = orphans.len() as u64;
        orphans.into_iter().try_for_each(|place| self.free_large(place))
    }
}
