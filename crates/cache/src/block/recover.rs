//! Creating, opening, destroying.
//!
//! Opening reads the table, then the summary of each place, in the order of the generations, or its entries
//! if there is no summary. Of several entries with one name the last one counts: the earlier ones were
//! killed. Nothing is written, except to places that are damaged or half made, so opening may be interrupted and repeated. No entries are appended to a
//! segment that a crash left without a summary, since behind its last intact entry there may be others of the
//! same generation; it is sealed before the next segment begins.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use parking_lot::Mutex;
use pmindex_core::{Flushed, LINE, Medium, OpenIndex, Owner, PPtr, PmError, PmU64, Pool};

use super::entry::{LINE_BYTES, LINE_WORDS, Stored};
use super::index::{Index, Location, Slot};
use super::key::Filter;
use super::layout::{FORMAT, KIND, Root, Table, checksum};
use super::log::{Log, Segment};
use super::metrics::count;
use super::places::{Place, block_checksum, generation_checksum};
use super::summary::{self, Record};
use super::{BlockCache, CacheOptions, SEGMENT_BYTES};

/// The bits of a generation's counter within one opening of a pool.
const COUNTER_BITS: u32 = 32;
/// This many generations are skipped for each place with a damaged generation, which may have been the last
/// one.
const PASSED: u64 = 1 << 20;

fn root_checksum(identity: u64, segment_bytes: u64, places: u64) -> u64 {
    checksum(*b"root", &[identity, segment_bytes, places, FORMAT])
}

fn table_checksum(identity: u64, table: u64) -> u64 {
    checksum(*b"tabl", &[identity, table])
}

impl<M: Medium> BlockCache<M> {
    /// Creates a cache with this name.
    ///
    /// # Errors
    /// [`PmError::NameTaken`], [`PmError::Full`], [`PmError::BadOption`] and those of
    /// [`Pool::create_index`].
    ///
    /// # Cost
    /// 4 fences. Segments are allocated when they are needed.
    pub fn create(
        pool: &Arc<Pool<M>>,
        name: &str,
        options: &CacheOptions,
    ) -> Result<Self, PmError> {
        let bytes = options.segment_bytes;
        if !SEGMENT_BYTES.contains(&bytes) || !bytes.is_multiple_of(LINE as u64) {
            return Err(PmError::BadOption { what: "size of a segment", value: bytes });
        }
        if bytes > pool.largest_block() {
            return Err(PmError::TooLarge { wanted: bytes, max: pool.largest_block() });
        }
        let most = (pool.largest_block() - size_of::<Table>() as u64)
            / size_of::<super::layout::Place>() as u64;
        let places = (options.capacity / bytes).clamp(2, most.min(u64::from(u16::MAX) - 1));
        let identity =
            options.identity.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let pm = pool.pm();
        let open = pool.create_index::<Root>(name, KIND, FORMAT, |root| {
            pm.store(&root.identity, identity);
            pm.store(&root.segment_bytes, bytes);
            pm.store(&root.places, places);
            pm.store(&root.checksum, root_checksum(identity, bytes, places));
            pm.store(&root.table, PPtr::NULL);
            root.reserved.iter().for_each(|word| pm.store(word, 0));
            pm.flush(root)
        })?;
        Self::start(pool, open, options)
    }

    /// Opens the cache with this name, if it exists, with all its entries except those that a crash took. Of
    /// the options only the number of shards counts; the others are those of its creation.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if its root is damaged, [`PmError::AlreadyOpen`].
    ///
    /// # Cost
    /// No flush, no fence (if its creation was complete and no place is damaged or half made). Time: reading the summaries, about
    /// 40 bytes an entry.
    pub fn open(
        pool: &Arc<Pool<M>>,
        name: &str,
        options: &CacheOptions,
    ) -> Result<Option<Self>, PmError> {
        let Some(open) = pool.open_index(name)? else { return Ok(None) };
        Self::start(pool, open, options).map(Some)
    }

    /// Frees everything that the cache with this name has in the pool; returns `false` if it does not exist.
    /// It must not be open.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and of [`Pool::drop_index`].
    ///
    /// # Cost
    /// That of [`Pool::drop_index`].
    pub fn destroy(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, PmError> {
        let options = CacheOptions::new(0).shards(1);
        pool.drop_index(name, |name| match Self::open(pool, name, &options)? {
            Some(cache) => cache.blocks(),
            None => Ok(Vec::new()),
        })
    }

    /// Opens the cache of this root block.
    fn start(
        pool: &Arc<Pool<M>>,
        open: OpenIndex,
        options: &CacheOptions,
    ) -> Result<Self, PmError> {
        let (pm, at) = (pool.pm(), open.root::<Root>());
        let corrupt = |what| Err(PmError::Corrupt { what, offset: at.offset() });
        if (open.kind, open.layout) != (KIND, FORMAT) {
            return corrupt("an index that is no block cache of this version");
        }
        let root = pool.get(at)?;
        let [identity, bytes, places] =
            [&root.identity, &root.segment_bytes, &root.places].map(|word| pm.load(word));
        let sound = pm.load(&root.checksum) == root_checksum(identity, bytes, places);
        if !sound || !SEGMENT_BYTES.contains(&bytes) || !(2..u16::MAX.into()).contains(&places) {
            return corrupt("the root of a block cache");
        }
        let mut table = pm.load(&root.table).offset();
        if table == 0 {
            table = make_table(pool, root, identity, places)?;
        }
        let stored = pm.load(&pool.get(PPtr::<Table>::new(table))?.checksum);
        if stored != table_checksum(identity, table) {
            return corrupt("the table of a block cache");
        }
        let Ok(opened) = u32::try_from(pool.generation()) else {
            return Err(PmError::BadOption { what: "generation of a pool", value: u64::MAX });
        };
        let first = u64::from(opened) << COUNTER_BITS;
        let log = Log {
            open: None,
            leftovers: Vec::new(),
            sealed: VecDeque::new(),
            free: Vec::new(),
            unused: Vec::new(),
            filters: vec![Filter::default(); places as usize],
            accounts: std::collections::HashMap::new(),
            sequence: u64::from(opened) << 32,
            generation: first + 1,
        };
        let cache = Self {
            pool: Arc::clone(pool),
            root: at,
            table,
            identity,
            lines: (bytes / LINE_BYTES as u64) as u32,
            places: (0..places).map(|_| Place::default()).collect(),
            index: Index::new(options.shards),
            log: Mutex::new(log),
            flights: super::flight::Flights::default(),
            compress: options.compress,
            counters: super::metrics::Counters::default(),
            _open: open,
        };
        cache.recover(&mut cache.log.lock())?;
        Ok(cache)
    }

    fn recover(&self, log: &mut Log) -> Result<(), PmError> {
        let pm = self.pool.pm();
        let (mut found, mut misread): (Vec<(u64, u16)>, Vec<u16>) = Default::default();
        for place in (0..self.places.len() as u16).rev() {
            let cell = self.cell(place)?;
            let block = pm.load(&cell.block);
            let [block_sum, generation, generation_sum] =
                [&cell.block_checksum, &cell.generation, &cell.generation_checksum]
                    .map(|word| pm.load(word));
            // Any word may be misread as 0. A place without a generation has 0 in both words of it.
            let has_generation = generation != 0 || generation_sum != 0;
            if block == 0 {
                if has_generation {
                    count(&self.counters.corrupt); // a new segment has its block before any generation
                }
                if has_generation || block_sum != 0 {
                    misread.push(place); // a crash too may leave the checksum of a block without it
                }
                log.unused.push(place); // in reverse order, so that the first ones are taken first
                continue;
            }
            let sound = block_sum == block_checksum(self.identity, place, block)
                && self.pool.words(block, self.lines as usize * LINE_WORDS).is_ok();
            if !sound {
                count(&self.counters.corrupt); // it is not used
                misread.push(place);
                continue;
            }
            self.place(place).offset.store(block, Release);
            let sum = generation_checksum(self.identity, place, block, generation);
            if generation_sum == sum {
                self.place(place).generation.store(generation, Release);
                found.push((generation, place));
                log.generation = log.generation.max(generation + 1);
            } else {
                if has_generation {
                    log.generation += PASSED;
                    misread.push(place);
                }
                log.free.push(place);
            }
        }
        self.void_misread(log, &misread)?;
        found.sort_unstable();
        for (generation, place) in found {
            let seed = self.seed(generation);
            let records = match summary::read(pm, self.segment(place)?, seed) {
                Some(records) => {
                    log.sealed.push_back(place);
                    records
                }
                None => self.recover_unsealed(log, place, seed)?,
            };
            for record in &records {
                self.list(log, place, record);
            }
        }
        Ok(())
    }

    /// Voids places that cannot be read now, durably before anything is invalidated or replaced. Their entries are not
    /// found, so they are not killed one by one, and must not return if the cause of the damage passes. Whatever a crash
    /// leaves of this, the generation does not match its checksum.
    fn void_misread(&self, log: &mut Log, places: &[u16]) -> Result<(), PmError> {
        if places.is_empty() || self.pool.check_writable().is_err() {
            return Ok(()); // or nothing can be invalidated either
        }
        let (pm, mut voided) = (self.pool.pm(), Flushed::nothing());
        for &place in places {
            let cell = self.cell(place)?;
            pm.store(&cell.generation, log.generation);
            pm.store(&cell.generation_checksum, 0);
            log.generation += 1;
            voided = voided.and(pm.flush(cell));
        }
        pm.fence(voided)?; // DUR: before any invalidation
        Ok(())
    }

    fn recover_unsealed(
        &self,
        log: &mut Log,
        place: u16,
        seed: u64,
    ) -> Result<Vec<Record>, PmError> {
        let (records, line) = summary::scan(self.pool.pm(), self.segment(place)?, seed);
        if line == 0 {
            log.free.push(place);
            return Ok(records);
        }
        count(&self.counters.unsealed);
        log.sealed.push_back(place);
        let runs = vec![(None, 0..line)];
        log.leftovers.push(Segment { place, seed, line, records: records.clone(), runs });
        Ok(records)
    }

    /// Puts an entry into the index, replacing an earlier one with the same name.
    fn list(&self, log: &mut Log, place: u16, record: &Record) {
        let (pm, hash) = (self.pool.pm(), record.key.hash());
        let is_same = |at: Location| {
            let cells = self.cells(at, LINE_WORDS);
            cells.len() == LINE_WORDS && Stored::read(pm, cells).key() == record.key
        };
        let mut shard = self.index.shard(pm, hash);
        let before = shard.find(hash, is_same).map(|at| shard.remove(at).location());
        shard.insert(Slot::new(hash, Location::new(place, record.line)));
        drop(shard);
        if let Some(at) = before {
            let len = Stored::read(pm, self.cells(at, LINE_WORDS)).header().len;
            log.give_back(&Record { key: record.key, line: at.line(), len });
        }
        log.filters[usize::from(place)].add(&record.key);
        log.take(record);
    }
}

/// Creates the table of a root without one.
///
/// ```text
/// P1    the table; its ticket           P2
/// P2    the pointer to it (LIN)         return (DUR)
/// ```
fn make_table<M: Medium>(
    pool: &Pool<M>,
    root: &Root,
    identity: u64,
    places: u64,
) -> Result<u64, PmError> {
    let pm = pool.pm();
    let bytes = size_of::<Table>() + places as usize * size_of::<super::layout::Place>();
    let mut op = pool.op()?;
    let block = op.reserve_bytes(bytes as u64, LINE as u64)?;
    let offset = block.ptr().offset();
    let mut words = vec![0; bytes / 8];
    words[0] = table_checksum(identity, offset);
    let filled = pm.stream_words(pool.words(offset, words.len())?, &words);
    let cell: &PmU64 = root.table.as_word();
    op.allocate(&block, Owner { word: cell, mask: u64::MAX, expect: offset })?;
    op.prepare(filled)?; // P1, durable before: P2
    pm.store(cell, offset); // P2, LIN
    let flushed = op.seal().and(pm.flush(cell));
    let durable = pm.fence(flushed)?; // DUR
    op.finish(durable);
    Ok(offset)
}
