//! The index with buffers, and its operations.

use std::cell::Cell;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Flushed, Mapped, Medium, OpenIndex, PPtr, PmError, Pool};
use pmindex_index::{
    HashIndex, Index, IndexError, IndexFormat, InsertMany, Missing, Noted, Occupied, PmHashIndex,
    PmIndex, RangeIter, RecoveryReport, Stats,
};
use pmindex_log::Log;

use crate::base::{Base, ByHash, ByKey, SpotOn};
use crate::buffer::{Buffer, Buffers, Locked, capacity};
use crate::changes::Change;
use crate::journal::Journal;
use crate::layout::{KIND, LAYOUT, Root};
use crate::range::Range;

/// Returns the number of batches after which the log frees space: those of about 1024 writes; one where buffers are
/// small, as in tests, so that crashes around it are explored.
const fn batches(records: u64) -> u64 {
    match capacity(records) as u64 {
        0..8 => 1,
        most if most < WRITES => WRITES / most,
        _ => 1,
    }
}
/// The number of writes after which the log frees space.
const WRITES: u64 = 1024;
/// The maximum number of segments of the log.
const SEGMENTS: u64 = 1024;

/// An index with write buffers in DRAM. With `LOGGED`, each write is in a log before it returns; without it a
/// crash loses the contents of the buffers. `RECORDS` is the maximum number of records of a component of the index:
/// buffers are for ranges with about this many, and have room for half of it, but for 16 at least.
///
/// # Cost
/// A write: 1 line and 1 fence with a log, none without; a lookup in the index; and for every full buffer
/// a batch insert into the index. A lookup reads one buffer, then the index.
///
/// Opening reads the log and looks up each key in it; what only the log has goes to buffers again. It writes nothing,
/// besides what the index's own opening writes.
///
/// # Durability
/// `LOGGED`: when the write returns. Else **lost on crash**, until its buffer was full or the index
/// [closed](PmIndex::close).
///
/// # Names
/// A `LOGGED` index `NAME` keeps its records in the index `NAME.base`, which belongs to it as long as `NAME` exists.
/// `NAME` is not created while there is another index `NAME.base`.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use pmindex_boc::{Buffered, ByKey};
/// use pmindex_core::{Mapped, Pool};
/// use pmindex_fastfair::FastFair;
/// use pmindex_index::{Index, PmIndex};
///
/// type Lost = Buffered<ByKey<FastFair<u64, u64>>, Mapped, false>;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// assert!(Lost::LOST_ON_CRASH);
/// let pool = Arc::new(Pool::emulated(1 << 20)?);
/// let index = Lost::create(&pool, "study")?;
/// index.insert(&1815, &10)?;
/// assert_eq!(index.get(&1815)?, Some(10));
/// drop(index); // not closed: as after a crash
/// assert_eq!(Lost::open(&pool, "study")?.get(&1815)?, None);
/// # Ok(())
/// # }
/// ```
pub struct Buffered<B, M: Medium = Mapped, const LOGGED: bool = true, const RECORDS: u64 = 24> {
    pub(crate) base: B,
    pub(crate) buffers: Buffers,
    pub(crate) pool: Arc<Pool<M>>,
    batches: AtomicU64,
    report: RecoveryReport,
    replayed: u64,
    pub(crate) journal: Option<Journal<M>>,
}

impl<B, M: Medium, const LOGGED: bool, const RECORDS: u64> std::fmt::Debug
    for Buffered<B, M, LOGGED, RECORDS>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffered").field("logged", &LOGGED).finish_non_exhaustive()
    }
}

/// The outcome of a write: the old value, and whether the write was wanted.
pub(crate) struct Done {
    before: Option<u64>,
    wanted: bool,
}

fn index_format() -> IndexFormat<fn() -> String> {
    IndexFormat {
        kind: KIND,
        layout: LAYOUT,
        layout_of: |_, _| LAYOUT,
        wanted: || "buffered<u64, u64>".into(),
    }
}

/// Returns the name of the index under the buffers of a logged one.
fn base_name(name: &str) -> String {
    format!("{name}.base")
}

impl<B: Base<M>, M: Medium, const LOGGED: bool, const RECORDS: u64>
    Buffered<B, M, LOGGED, RECORDS>
{
    /// `true` if a crash loses writes that returned.
    pub const LOST_ON_CRASH: bool = !LOGGED;

    /// Returns the number of changes that opening put into buffers, because only the log had them.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    pub(crate) fn create_new(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        if !LOGGED {
            return Self::with_base(pool, B::create(pool, name)?, None);
        }
        Self::finish_removal(pool, name)?;
        // Told by its own name: it is another index.
        for name in [name, &base_name(name)] {
            if pool.find_index(name)?.is_some() {
                return Err(IndexError::IndexExists { name: name.into() });
            }
        }
        let clear = |root: &Root| -> Flushed {
            pool.pm().store(&root.log, PPtr::NULL);
            root.reserved.iter().for_each(|word| pool.pm().store(word, 0));
            pool.pm().flush(root)
        };
        // Durable before: the base, so that no base is without the index to which it belongs.
        let entry = index_format().create(pool, name, clear)?;
        let created = B::create(pool, &base_name(name))
            .and_then(|base| Self::with_journal(pool, base, entry));
        if created.is_err() {
            Self::undo_creation(pool, name)?;
        }
        created
    }

    /// Removes an index whose creation failed, unless it is complete.
    fn undo_creation(pool: &Arc<Pool<M>>, name: &str) -> Result<(), IndexError> {
        let own = match pool.open_index(name) {
            Ok(Some(own)) => own,
            Ok(None) | Err(PmError::AlreadyOpen { .. }) => return Ok(()), // or another thread has opened it
            Err(error) => return Err(error.into()),
        };
        let vacant = |root: &Root| pool.pm().load(&root.log).is_null();
        if vacant(pool.get(own.root())?) {
            B::destroy(pool, &base_name(name))?; // durable before: nothing leads to it
            drop(own);
            pool.undo_create_index(name, |index| Ok(vacant(pool.get(index.root())?)))?;
        }
        Ok(())
    }

    /// Finishes a removal that a crash interrupted: the index has a log and no base.
    fn finish_removal(pool: &Arc<Pool<M>>, name: &str) -> Result<(), IndexError> {
        if pool.find_index(&base_name(name))?.is_some() {
            return Ok(());
        }
        match index_format().open(pool, name) {
            Ok(own) => {
                let root: &Root = pool.get(own.root())?;
                if pool.pm().load(&root.log).is_null() {
                    return Ok(()); // or its creation was interrupted, and the next opening finishes it
                }
            }
            // Of another kind, or in use.
            Err(_) => return Ok(()),
        }
        Self::destroy_top(pool, name).map(drop)
    }

    pub(crate) fn open_old(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        if !LOGGED {
            return Self::with_base(pool, B::open(pool, name)?, None);
        }
        let entry = index_format().open(pool, name)?;
        let base = match B::open(pool, &base_name(name)) {
            Err(IndexError::NoSuchIndex { .. }) => {
                let root: &Root = pool.get(entry.root())?;
                if !pool.pm().load(&root.log).is_null() {
                    // Its removal was interrupted.
                    return Err(IndexError::NoSuchIndex { name: name.into() });
                }
                B::create(pool, &base_name(name))? // or its creation was
            }
            base => base?,
        };
        Self::with_journal(pool, base, entry)
    }

    fn with_journal(pool: &Arc<Pool<M>>, base: B, entry: OpenIndex) -> Result<Self, IndexError> {
        let root: &Root = pool.get(entry.root())?;
        let log = if pool.pm().load(&root.log).is_null() {
            Log::create_for(pool, &root.log, SEGMENTS)?
        } else {
            Log::open(pool, &root.log)?
        };
        Self::with_base(pool, base, Some(Journal::new(log, entry)?))
    }

    fn with_base(
        pool: &Arc<Pool<M>>,
        base: B,
        journal: Option<Journal<M>>,
    ) -> Result<Self, IndexError> {
        let mut report = base.report();
        let mut lacking = Vec::new();
        if let Some(journal) = &journal {
            let _recovery = pool.recovery();
            lacking = Self::lacking(&base, journal)?;
        }
        let (records, replayed) = (base.records()?, lacking.len() as u64);
        // A record has 16 bytes at least, and a range is halved when it has more than `RECORDS`.
        let limit = pool.max_size() / 16 / (RECORDS / 2).max(1);
        let buffers = Buffers::new(pool.pm(), limit, records, capacity(RECORDS), lacking)?;
        if LOGGED {
            report.records = records.saturating_add_signed(buffers.surplus(pool.pm()));
        }
        Ok(Self {
            buffers,
            base,
            pool: Arc::clone(pool),
            batches: AtomicU64::new(0),
            report,
            replayed,
            journal,
        })
    }

    /// Returns the changes that only the log has, with their ranks and in the order of these.
    fn lacking(base: &B, journal: &Journal<M>) -> Result<Vec<(u64, Change)>, IndexError> {
        let mut lacking = Vec::new();
        for (key, (value, kept)) in journal.last_writes()? {
            let found = base.get(key)?;
            if found != value {
                journal.keep(key, kept);
                let change = Change { key, value, present: found.is_some(), kept: Some(kept) };
                lacking.push((B::rank(key), change));
            }
        }
        lacking.sort_by_key(|(rank, _)| *rank);
        Ok(lacking)
    }

    /// Writes all buffers to the index, notes that no entry of the log is needed, and closes the index.
    pub(crate) fn close_base(self) -> Result<(), IndexError> {
        if self.pool.is_read_only() {
            return self.base.close();
        }
        self.pool.check_writable()?;
        self.drain()?;
        if let Some(journal) = &self.journal {
            journal.clear()?;
        }
        self.base.close()
    }

    /// Writes all buffers to the index.
    pub(crate) fn drain(&self) -> Result<(), IndexError> {
        self.buffers.each(self.pool.pm(), |buffer| self.flush(buffer))
    }

    /// Writes a buffer to the index in one batch, and halves its range if that has many records.
    pub(crate) fn flush(&self, buffer: &mut Locked<'_>) -> Result<(), IndexError> {
        if buffer.changes.is_empty() {
            return Ok(());
        }
        buffer.note_change(); // for those that count
        let mut changes = buffer.changes.all().to_vec();
        changes.sort_unstable_by_key(|change| B::rank(change.key));
        if let Err(error) = self.write_batch(&changes) {
            // A part may have been written.
            buffer.changes.update(|change| {
                change.present = self.base.get(change.key)?.is_some();
                Ok::<(), IndexError>(())
            })?;
            return Err(error);
        }
        let middle = B::rank(changes[changes.len() / 2].key);
        if let Some(journal) = &self.journal {
            for change in &changes {
                change.kept.inspect(|&kept| journal.over(change.key, kept));
            }
        }
        buffer.records = buffer.records.saturating_add_signed(buffer.changes.surplus());
        buffer.changes.clear();
        if buffer.records > RECORDS && buffer.has_inside(middle) {
            self.buffers.halve(self.pool.pm(), buffer, middle);
        }
        // Last: if it fails, the batch is in the index all the same.
        if let Some(journal) = &self.journal
            && self.batches.fetch_add(1, Relaxed).is_multiple_of(batches(RECORDS))
        {
            journal.release()?;
        }
        Ok(())
    }

    /// Writes changes to the index; new records in one batch.
    fn write_batch(&self, changes: &[Change]) -> Result<(), IndexError> {
        let new: Vec<(u64, u64)> = changes
            .iter()
            .filter(|change| !change.present)
            .filter_map(|change| Some((change.key, change.value?)))
            .collect();
        if let Some(error) = self.base.add(&new).stopped {
            return Err(error);
        }
        for change in changes.iter().filter(|change| change.present) {
            match change.value {
                Some(value) => self.base.put(change.key, value)?,
                None => self.base.remove(change.key)?,
            }
        }
        Ok(())
    }

    /// Returns a value.
    pub(crate) fn look_up(&self, key: u64) -> Result<Option<u64>, IndexError> {
        self.buffers.with(self.pool.pm(), B::rank(key), |buffer| match buffer.changes.get(key) {
            Some(change) => Ok(change.value),
            None => self.base.get(key),
        })
    }

    /// Writes the result of `decide` for the old value; writes nothing if it returns `None`.
    pub(crate) fn write(
        &self,
        key: u64,
        decide: impl Fn(Option<u64>) -> Option<Option<u64>>,
    ) -> Result<Done, IndexError> {
        self.pool.check_writable()?;
        let mut tried = false;
        loop {
            let pm = self.pool.pm();
            let done =
                self.buffers.with(pm, B::rank(key), |buffer| self.write_held(buffer, key, &decide));
            match done {
                // The log is full: writing the buffers to the index frees segments.
                Err(IndexError::Pool(error)) if error.is_full() && LOGGED && !tried => {
                    tried = true;
                    self.drain()?;
                    if let Some(journal) = &self.journal {
                        journal.release()?;
                    }
                }
                done => {
                    if let Some(done) = done.noted(&self.pool)? {
                        return Ok(done);
                    }
                }
            }
        }
    }

    /// Returns `None`, having written nothing, if the buffer is no longer the key's.
    fn write_held(
        &self,
        buffer: &mut Locked<'_>,
        key: u64,
        decide: &impl Fn(Option<u64>) -> Option<Option<u64>>,
    ) -> Result<Option<Done>, IndexError> {
        let found = buffer.changes.get(key).copied();
        let before = match found {
            Some(change) => change.value,
            None => self.base.get(key)?,
        };
        let Some(value) = decide(before) else { return Ok(Some(Done { before, wanted: false })) };
        let present = found.map_or(before.is_some(), |change| change.present);
        if found.is_none() && buffer.changes.len() >= capacity(RECORDS) {
            self.flush(buffer)?;
            if !buffer.has(B::rank(key)) {
                return Ok(None); // its range was halved: the key belongs to the other half
            }
        }
        let kept = match &self.journal {
            Some(journal) => Some(journal.append(key, value)?), // DUR
            None => None,
        };
        let change = Change { key, value, present, kept };
        buffer.note_change();
        let old = buffer.changes.set(change); // LIN
        if let (Some(journal), Some(kept)) = (&self.journal, old.and_then(|old| old.kept)) {
            journal.over(key, kept);
        }
        Ok(Some(Done { before, wanted: true }))
    }

    /// Returns the number of records.
    fn count(&self, base: u64) -> u64 {
        base.saturating_add_signed(self.buffers.surplus(self.pool.pm()))
    }

    fn sizes(&self) -> Result<Stats, IndexError> {
        let mut stats = self.base.stats()?;
        stats.records = self.count(stats.records);
        stats.dram_bytes += self.buffers.bytes(RECORDS) as u64;
        if let Some(journal) = &self.journal {
            stats.pm_bytes += journal.bytes() + size_of::<Root>() as u64;
        }
        Ok(stats)
    }

    fn all_blocks(&self) -> Result<Vec<u64>, IndexError> {
        let mut blocks = self.base.blocks()?;
        if let Some(journal) = &self.journal {
            blocks.push(journal.entry.root::<Root>().offset());
            blocks.extend(journal.blocks()?);
        }
        Ok(blocks)
    }

    /// Removes the index; the base of a logged one first, so that it is never without the index to which it belongs. A
    /// crash between the two leaves an index that does not open, and that the next removal or creation removes.
    fn destroy_all(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, IndexError> {
        if !LOGGED {
            return B::destroy(pool, name);
        }
        let own = match index_format().open(pool, name) {
            Err(IndexError::NoSuchIndex { .. }) => return Ok(false),
            own => own?, // in use meanwhile
        };
        B::destroy(pool, &base_name(name))?; // LIN(destroy), durable before: the index does not lead to it
        drop(own);
        Self::destroy_top(pool, name)?;
        Ok(true)
    }

    /// Removes a logged index without its base.
    fn destroy_top(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, IndexError> {
        let own = |name: &str| -> Result<Vec<u64>, IndexError> {
            let entry = index_format().open(pool, name)?;
            let root: &Root = pool.get(entry.root())?;
            let mut blocks = vec![entry.root::<Root>().offset()];
            if !pool.pm().load(&root.log).is_null() {
                blocks.extend(Log::open(pool, &root.log)?.blocks()?);
            }
            Ok(blocks)
        };
        pool.drop_index(name, own)
    }
}

/// Implements the methods that [`Index`] and [`HashIndex`] have under the same names.
macro_rules! map_methods {
    () => {
        fn get(&self, key: &u64) -> Result<Option<u64>, IndexError> {
            self.look_up(*key).noted(&self.pool)
        }
        fn insert(&self, key: &u64, value: &u64) -> Result<Option<u64>, IndexError> {
            Ok(self.write(*key, |_| Some(Some(*value)))?.before)
        }
        fn try_insert(&self, key: &u64, value: &u64) -> Result<Result<(), Occupied>, IndexError> {
            let new = |before: Option<u64>| before.is_none().then_some(Some(*value));
            Ok(Occupied::unless(self.write(*key, new)?.wanted))
        }
        fn update(&self, key: &u64, value: &u64) -> Result<Result<(), Missing>, IndexError> {
            let old = |before: Option<u64>| before.map(|_| Some(*value));
            Ok(Missing::unless(self.write(*key, old)?.wanted))
        }
        fn put(&self, key: &u64, value: &u64) -> Result<bool, IndexError> {
            Ok(self.write(*key, |_| Some(Some(*value)))?.before.is_none())
        }
        fn remove(&self, key: &u64) -> Result<Option<u64>, IndexError> {
            Ok(self.write(*key, |before| before.map(|_| None))?.before)
        }
        fn remove_exact(&self, key: &u64, value: &u64) -> Result<Option<u64>, IndexError> {
            let exact = |before: Option<u64>| (before == Some(*value)).then_some(None);
            let done = self.write(*key, exact)?;
            Ok(done.before.filter(|_| done.wanted))
        }
        fn len(&self) -> Result<u64, IndexError> {
            self.base.records().map(|base| self.count(base)).noted(&self.pool)
        }
        fn get_many(&self, keys: &[u64], out: &mut [Option<u64>]) -> Result<(), IndexError> {
            assert_eq!(keys.len(), out.len(), "one place per key");
            for (key, out) in keys.iter().zip(out) {
                *out = self.look_up(*key).noted(&self.pool)?;
            }
            Ok(())
        }
        fn try_insert_many(&self, records: &[(u64, u64)]) -> InsertMany {
            InsertMany::one_by_one(records, |(key, value)| {
                self.try_insert(key, value).map(|new| new.is_ok())
            })
        }
        fn stats(&self) -> Result<Stats, IndexError> {
            self.sizes().noted(&self.pool)
        }
        fn check(&self) -> Result<u64, IndexError> {
            self.base.check().map(|base| self.count(base)).noted(&self.pool)
        }
        fn recovery_report(&self) -> RecoveryReport {
            self.report.clone()
        }
    };
}

/// Implements the methods that [`PmIndex`] and [`PmHashIndex`] have under the same names.
macro_rules! pool_methods {
    () => {
        const NAME: &'static str = I::NAME;

        fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
            Self::create_new(pool, name)
        }
        fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
            Self::open_old(pool, name).noted(pool)
        }
        fn close(self) -> Result<(), IndexError> {
            self.close_base()
        }
        fn blocks(&self) -> Result<Vec<u64>, IndexError> {
            self.all_blocks()
        }
        fn destroy(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, IndexError> {
            Self::destroy_all(pool, name)
        }
    };
}

impl<I, M, const ANEW: bool, const CACHED: bool, const LOGGED: bool, const RECORDS: u64>
    Index<u64, u64> for Buffered<ByKey<I, ANEW, CACHED>, M, LOGGED, RECORDS>
where
    I: PmIndex<u64, u64, M> + SpotOn + 'static,
    M: Medium,
{
    map_methods!();

    fn range_bounds(&self, lower: Bound<&u64>, upper: Bound<&u64>) -> RangeIter<'_, u64, u64> {
        Box::new(Range::new(self, lower.cloned(), upper.cloned()))
    }

    fn first_key_value(&self) -> Result<Option<(u64, u64)>, IndexError> {
        self.buffers
            .at_an_end(self.pool.pm(), true, |buffer| self.end_of(buffer, true))
            .noted(&self.pool)
    }

    fn last_key_value(&self) -> Result<Option<(u64, u64)>, IndexError> {
        self.buffers
            .at_an_end(self.pool.pm(), false, |buffer| self.end_of(buffer, false))
            .noted(&self.pool)
    }

    /// Inserts one by one: after a crash a part may be present.
    fn bulk_load(&self, records: &mut dyn Iterator<Item = (u64, u64)>) -> Result<u64, IndexError> {
        let records: Vec<(u64, u64)> = records.collect();
        if let Some(at) = records.windows(2).position(|pair| pair[0].0 >= pair[1].0) {
            return Err(IndexError::NotSorted { at: at as u64 + 1 });
        }
        if !Index::is_empty(self)? {
            return Err(IndexError::NotEmpty);
        }
        match Index::try_insert_many(self, &records).stopped {
            None => Ok(records.len() as u64),
            Some(error) => {
                Index::clear(self)?;
                Err(error)
            }
        }
    }
}

impl<I, M, const ANEW: bool, const CACHED: bool, const LOGGED: bool, const RECORDS: u64>
    PmIndex<u64, u64, M> for Buffered<ByKey<I, ANEW, CACHED>, M, LOGGED, RECORDS>
where
    I: PmIndex<u64, u64, M> + SpotOn + 'static,
    M: Medium,
{
    const LOADS_AT_ONCE: bool = false;
    pool_methods!();
}

impl<I, M, const ANEW: bool, const CACHED: bool, const LOGGED: bool, const RECORDS: u64>
    HashIndex<u64, u64> for Buffered<ByHash<I, ANEW, CACHED>, M, LOGGED, RECORDS>
where
    I: PmHashIndex<u64, u64, M> + SpotOn + 'static,
    M: Medium,
{
    map_methods!();

    /// As for the ends of an index with ranges: all buffers of one moment.
    fn is_empty(&self) -> Result<bool, IndexError> {
        let (surplus, records) = (Cell::new(0), Cell::new(0));
        let look = |buffer: &Buffer| {
            let (first, last) = buffer.ends();
            let before = if first == 0 { 0 } else { surplus.get() };
            surplus.set(before + buffer.changes.surplus());
            if last == u64::MAX {
                // No buffer is written to the index since it was looked at, or all are looked at again.
                records.set(self.base.records()?.saturating_add_signed(surplus.get()));
            }
            Ok::<Option<()>, IndexError>(None)
        };
        self.buffers.at_an_end(self.pool.pm(), true, look).noted(&self.pool)?;
        Ok(records.get() == 0)
    }

    fn for_each(&self, visit: &mut dyn FnMut(u64, u64) -> bool) -> Result<(), IndexError> {
        self.drain().noted(&self.pool)?;
        self.base.0.for_each(visit)
    }
}

impl<I, M, const ANEW: bool, const CACHED: bool, const LOGGED: bool, const RECORDS: u64>
    PmHashIndex<u64, u64, M> for Buffered<ByHash<I, ANEW, CACHED>, M, LOGGED, RECORDS>
where
    I: PmHashIndex<u64, u64, M> + SpotOn + 'static,
    M: Medium,
{
    pool_methods!();
}
