//! A store: named typed maps in one pool.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use pmindex_core::{IndexEntry, Mapped, Medium, PmError, Pool, PoolOptions};
use pmindex_index::{ErasedIndex, IndexError, Key, Reserved, Value};

use crate::backup::{self, StoreBackup};
use crate::catalog::Catalog;
use crate::changes::Late;
use crate::core::{AnyShared, Core, Leave};
use crate::error::StoreError;
use crate::expiring::ExpiringMap;
use crate::handles::Handles;
use crate::layout::NAME;
use crate::map::{Map, Shared};
use crate::observe;
use crate::redo::Redo;
use crate::report::{MapReport, StoreReport};
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use crate::wait::lock;
use crate::watch::{Watch, WatchPosition};
use crate::wrong::Wrong;

/// Options for opening a [`Store`].
#[derive(Clone, Debug)]
pub struct StoreOptions {
    pool: PoolOptions,
    past_bytes: u64,
    tries: u32,
    commits: Commits,
}

/// The commits that are kept in the log for watches.
#[derive(Clone, Copy, Debug)]
enum Commits {
    /// Those that come while a watch exists: about this many bytes.
    Watched(u64),
    /// All: about this many bytes of the newest.
    All(u64),
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            pool: PoolOptions::new(),
            past_bytes: 256 << 20,
            tries: 100,
            commits: Commits::Watched(16 << 20),
        }
    }
}

impl StoreOptions {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how the pool is opened or created: its size, its mode of durability.
    #[must_use]
    pub fn pool(mut self, options: PoolOptions) -> Self {
        self.pool = options;
        self
    }

    /// Sets the approximate bytes of memory for old values that snapshots and transactions need (default 256
    /// MiB). Beyond it the oldest of them ends.
    #[must_use]
    pub fn past_bytes(mut self, bytes: u64) -> Self {
        self.past_bytes = bytes;
        self
    }

    /// Makes every commit write a record to the log, and keeps about this many bytes of the newest records,
    /// so that a [`Watch`] can continue where another one ended, in another process or before a crash. Each
    /// single write takes two more fences. Takes effect at this opening, and ends when the store is opened
    /// without this option; then later watches cannot continue where earlier ones ended.
    ///
    /// At most an eighth of the pool's maximum size. Without this option, records are written only while a
    /// watch exists, and about 16 MiB of them are kept.
    #[must_use]
    pub fn keep_commits(mut self, bytes: u64) -> Self {
        self.commits = Commits::All(bytes);
        self
    }

    /// Sets how often [`Store::transaction`] runs a transaction that conflicts with others (default 100
    /// times).
    #[must_use]
    pub fn tries(mut self, tries: u32) -> Self {
        self.tries = tries.max(1);
        self
    }
}

/// An open map of any type.
pub(crate) trait AnyMap<C: Catalog, M: Medium>: Any + Send + Sync {
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
    fn blocks(&self) -> Result<Vec<u64>, IndexError>;
    fn check(&self) -> Result<u64, IndexError>;
    /// Closes its index; returns it if other handles exist.
    fn close(self: Arc<Self>) -> Closed<C, M>;
    /// Copies its state at a moment to another pool; returns the number of records.
    fn copy(
        self: Arc<Self>,
        entry: &IndexEntry,
        view: &Snapshot<M>,
        target: &Arc<Pool>,
    ) -> Result<u64, StoreError>;
}

impl<C: Catalog, K: Key, V: Value, M: Medium> AnyMap<C, M> for Shared<K, V, M> {
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.index.blocks()
    }
    fn check(&self) -> Result<u64, IndexError> {
        self.index.check()
    }
    fn close(self: Arc<Self>) -> Closed<C, M> {
        Ok(Arc::try_unwrap(self).map_err(|shared| shared as Arc<dyn AnyMap<C, M>>)?.close())
    }
    fn copy(
        self: Arc<Self>,
        entry: &IndexEntry,
        view: &Snapshot<M>,
        target: &Arc<Pool>,
    ) -> Result<u64, StoreError> {
        backup::copy::<C, K, V, M>(&self, entry, view, target)
    }
}

/// The result of closing a map: the map itself if other handles exist.
type Closed<C, M> = Result<Result<(), IndexError>, Arc<dyn AnyMap<C, M>>>;
/// The open maps of a store, by name.
type Maps<C, M> = HashMap<String, Arc<dyn AnyMap<C, M>>>;

/// A map that is being created. If this is not done when it is dropped, and the index exists, it may have records of which
/// earlier readers and watches know nothing.
struct Creating<'c, M: Medium> {
    core: &'c Core<M>,
    name: &'c str,
    is_done: bool,
}

impl<M: Medium> Drop for Creating<'_, M> {
    fn drop(&mut self) {
        if !self.is_done && matches!(self.core.pool.find_index(self.name), Ok(Some(_))) {
            let _ = self.core.begin_drop(self.name); // after an error the pool takes no more writes
        }
    }
}

/// Named typed maps in one pool, with transactions and snapshots over all of them.
///
/// The maps are indexes of the pool, of any kind. While no store is open, each may also be opened as an
/// index, but after a crash first open the maps through the store, which finishes interrupted transactions.
pub struct Store<C: Catalog, M: Medium = Mapped> {
    core: Handles<Core<M>>,
    maps: Mutex<Maps<C, M>>,
    numbers: std::sync::atomic::AtomicU64,
    /// The bytes of the log that are kept for watches.
    watched: u64,
    catalog: PhantomData<C>,
}

impl<C: Catalog, M: Medium> fmt::Debug for Store<C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("core", &self.core).finish_non_exhaustive()
    }
}

impl<C: Catalog> Store<C, Mapped> {
    /// Opens the store in the pool file at `path`, or creates it, with the default options.
    ///
    /// # Errors
    /// [`StoreError::Open`]; those of the pool.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, &StoreOptions::new())
    }

    /// Opens the store in the pool file at `path`, or creates it.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, options: &StoreOptions) -> Result<Self, StoreError> {
        let pool = Arc::new(Pool::open_or_create(path, &options.pool)?);
        Self::in_pool(&pool, options)
    }
}

impl<C: Catalog, M: Medium> Store<C, M> {
    /// Opens the store in an open pool. Durable transactions that a crash interrupted are finished map by
    /// map, when each is opened.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn in_pool(pool: &Arc<Pool<M>>, options: &StoreOptions) -> Result<Self, StoreError> {
        let _span = observe::open(pool.path());
        let redo = Redo::open(pool)?;
        let mut core = Core::new(Arc::clone(pool), redo, options.past_bytes, options.tries);
        let most = (pool.max_size() / 8).max(1);
        let watched = match options.commits {
            Commits::All(bytes) | Commits::Watched(bytes) => bytes.clamp(1, most),
        };
        {
            let _recovery = pool.recovery();
            if !pool.is_read_only() {
                match options.commits {
                    Commits::All(_) => core.log_all(watched)?,
                    Commits::Watched(_) => drop(core.redo.set_all(false)?),
                }
                core.redo.forget_dropped(pool)?;
            }
        }
        Ok(Self {
            core: Handles::new(Arc::new(core)),
            maps: Mutex::default(),
            numbers: std::sync::atomic::AtomicU64::new(0),
            watched,
            catalog: PhantomData,
        })
    }

    /// Opens the map `name`, of any kind, or creates one of the default kind.
    ///
    /// # Errors
    /// [`StoreError::OpenWithOtherTypes`], [`IndexError::WrongLayout`] if it has other types; those of the
    /// pool.
    pub fn map<K: Key, V: Value>(&self, name: &str) -> Result<Map<K, V, M>, StoreError> {
        self.map_of_kind(name, C::DEFAULT)
    }

    /// Opens the map `name`, of any kind, or creates one of this kind.
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    pub fn map_of_kind<K: Key, V: Value>(
        &self,
        name: &str,
        kind: C::Kind,
    ) -> Result<Map<K, V, M>, StoreError> {
        self.map_with(name, |pool, name| C::create(pool, name, kind))
    }

    /// Opens the map `name`, of any kind, or makes it with `create`, which creates an index of this name in the
    /// pool, of a kind that the store knows: for kinds with options.
    ///
    /// `create` may also fill the index. Earlier moments find the map empty, and watches find that it was
    /// [loaded](crate::Committed::is_loaded); a crash before this returns may leave a map of which a later watch
    /// is not told. If this fails when the index exists, the map stays, and earlier moments and watches take it for
    /// one that got the name of a [dropped](Self::drop_map) one.
    ///
    /// # Errors
    /// Those of [`map`](Self::map) and of `create`.
    pub fn map_with<K: Key, V: Value>(
        &self,
        name: &str,
        create: impl FnOnce(&Arc<Pool<M>>, &str) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError>,
    ) -> Result<Map<K, V, M>, StoreError> {
        let mut maps = self.maps()?;
        match self.open_map(&mut maps, name) {
            Err(StoreError::Index(IndexError::NoSuchIndex { .. })) => {}
            opened => return opened,
        }
        self.core.forget_stuck(name)?;
        self.core.redo.settle(name)?; // durable before: a map has the name of one that was dropped
        let mut creating = Creating { core: self.core.whole(), name, is_done: false };
        let index = create(&self.core.pool, name)?;
        let is_filled = !index.is_empty()?;
        let map = self.share(name, index);
        if is_filled {
            map.note_filled()?;
        }
        creating.is_done = true;
        Ok(Self::enter(&mut maps, map))
    }

    /// Opens the map `name` of records that expire, each at its own time, of any kind, or creates one of the
    /// default kind. Its types are those of `map::<K, Expiring<V>>`.
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    pub fn expiring_map<K: Key, V: Value>(
        &self,
        name: &str,
    ) -> Result<ExpiringMap<K, V, M>, StoreError> {
        self.map(name).map(ExpiringMap::new)
    }

    /// Opens the map `name`, if it exists.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`]; those of [`map`](Self::map).
    pub fn existing_map<K: Key, V: Value>(&self, name: &str) -> Result<Map<K, V, M>, StoreError> {
        self.open_map(&mut *self.maps()?, name)
    }

    fn maps(&self) -> Result<parking_lot::MutexGuard<'_, Maps<C, M>>, StoreError> {
        self.core.check_process()?;
        Ok(lock(self.core.pm(), &self.maps))
    }

    fn share<K: Key, V: Value>(
        &self,
        name: &str,
        index: Box<dyn ErasedIndex<K, V>>,
    ) -> Map<K, V, M> {
        let number = self.numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Map::new(Arc::new(Shared::new(Arc::clone(self.core.whole()), name, number, index)))
    }

    /// Adds an open map. The last step of opening it: after an error or a panic before, the next call opens it anew.
    fn enter<K: Key, V: Value>(maps: &mut Maps<C, M>, map: Map<K, V, M>) -> Map<K, V, M> {
        maps.insert(map.name().into(), Arc::clone(&map.shared) as Arc<dyn AnyMap<C, M>>);
        map
    }

    fn open_map<K: Key, V: Value>(
        &self,
        maps: &mut Maps<C, M>,
        name: &str,
    ) -> Result<Map<K, V, M>, StoreError> {
        self.open_map_by(maps, name, C::open)
    }

    fn open_map_by<K: Key, V: Value>(
        &self,
        maps: &mut Maps<C, M>,
        name: &str,
        open: impl FnOnce(&Arc<Pool<M>>, &str) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError>,
    ) -> Result<Map<K, V, M>, StoreError> {
        if let Some(open) = maps.get(name) {
            let other = || StoreError::OpenWithOtherTypes { name: name.into() };
            let shared = Arc::clone(open).as_any().downcast().map_err(|_| other())?;
            return Ok(Map::new(shared));
        }
        if name == NAME {
            return Err(PmError::NameTaken { name: name.into() }.into());
        }
        let index = open(&self.core.pool, name)?;
        let writes = self.core.redo.interrupted::<K, V>(name)?;
        let map = self.share(name, index);
        match self.core.bind_stuck(name, &(Arc::clone(&map.shared) as AnyShared)) {
            None if self.core.redo.is_interrupted(name)
                && !self.core.goes_wrong(Wrong::NotFinished) =>
            {
                self.finish(&map, writes)?;
            }
            // Those of interrupted commits are among the stuck ones.
            None | Some(true) => {}
            Some(false) => return Err(StoreError::OpenWithOtherTypes { name: name.into() }),
        }
        Ok(Self::enter(maps, map))
    }

    /// Makes the changes of interrupted commits to a map before it is handed out. If they, or what the log says of them,
    /// find no room, they wait until there is some.
    fn finish<K: Key, V: Value>(
        &self,
        map: &Map<K, V, M>,
        writes: BTreeMap<K, Option<V>>,
    ) -> Result<(), IndexError> {
        let _span = observe::finish(map.name());
        let _recovery = self.core.pool.recovery();
        // Before others have the map: they can keep no room.
        let late = Late::boxed(&map.shared, writes, Reserved::default());
        // Durable before: the map is handed out.
        match late.make().and_then(|()| self.core.redo.settle(map.name())) {
            Err(IndexError::Pool(error)) if error.is_full() => {
                // All of them: after a crash they are made again, over other writes of the same keys.
                self.core.set_stuck(vec![late], Leave::Map(map.name().into()));
                // Earlier moments must have these changes, and no later one can be read before they are made.
                map.shared.begin_now();
                Ok(())
            }
            done => done,
        }
    }

    /// Returns the maps of the store, open or not, with their kinds and names.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]: the directory of the pool is damaged.
    pub fn maps_in_pool(&self) -> Result<Vec<IndexEntry>, StoreError> {
        let mut maps = backup::maps_of(&self.core.pool)?;
        maps.retain(|entry| C::kind(entry).is_some()); // a batch's log and files are no maps of a store
        Ok(maps)
    }

    /// Removes the map `name` and frees all its blocks; returns `true` if it existed. It must have no
    /// handles, and no transaction may have read or changed it. A kill may leave a file of its pages, to which
    /// nothing refers.
    ///
    /// Snapshots taken before no longer have it: through them, a map that gets its name reads as
    /// [`StoreError::Dropped`]. Watches end with [`StoreError::WatchEnded`]. Both also if it is closed and then cannot
    /// be dropped.
    ///
    /// Changes of durable transactions to it that found no room ([`StoreError::Unfinished`]) are forgotten, so that
    /// other maps can be written again.
    ///
    /// # Errors
    /// [`StoreError::InUse`]; those of [`map`](Self::map); the map stays. [`StoreError::File`] if the map is
    /// removed, and a file of its pages is not; the others are.
    pub fn drop_map<K: Key, V: Value>(&self, name: &str) -> Result<bool, StoreError> {
        let mut maps = self.maps()?;
        // Opened first, so that no interrupted transaction waits for a map of this name.
        match self.open_map_by::<K, V>(&mut maps, name, C::open_to_remove) {
            Err(StoreError::Index(IndexError::NoSuchIndex { .. })) => return Ok(false),
            opened => drop(opened?),
        }
        let (pool, mut files) = (&self.core.pool, Vec::new());
        let blocks = |name: &str| {
            let index = C::open_to_remove::<K, V, M>(pool, name)?;
            files = index.files();
            index.blocks()
        };
        let dropped = self.core.drop_stuck(|| -> Result<bool, StoreError> {
            let closed = Self::close_map(&mut maps, name)?;
            self.core.begin_drop(name)?; // durable before: the drop
            closed?;
            Ok(pool.drop_index::<IndexError>(name, blocks)?)
        });
        if dropped.is_err() && !maps.contains_key(name) {
            // The map stays, and changes of stuck commits may wait for it. If it does not open now, they wait on.
            let _ = self.open_map::<K, V>(&mut maps, name);
        }
        let dropped = dropped?;
        remove_files(files)?; // durable before: nothing refers to them
        Ok(dropped)
    }

    /// Closes a map, unless it has handles.
    fn close_map(maps: &mut Maps<C, M>, name: &str) -> Result<Result<(), IndexError>, StoreError> {
        let Some(map) = maps.remove(name) else { return Ok(Ok(())) };
        match map.close() {
            Ok(closed) => Ok(closed),
            Err(map) => {
                maps.insert(name.into(), map);
                Err(StoreError::InUse { what: format!("map {name:?}") })
            }
        }
    }

    /// Takes a snapshot: the present moment of all maps. Waits for commits in progress.
    ///
    /// # Errors
    /// Those of the pool, if a durable transaction cannot be finished.
    pub fn snapshot(&self) -> Result<Snapshot<M>, StoreError> {
        let reader = self.core.read()?;
        Ok(Snapshot { core: self.core.handle(), reader })
    }

    /// Writes the present moment of all maps to a new pool at `target`, while writers continue. The result
    /// can be opened like any store. The file gets its name when it is complete and durable.
    ///
    /// The old values of records that writers replace meanwhile are kept in memory, up to
    /// [`StoreOptions::past_bytes`]. (`Backup` copies a pool with any contents, and pauses its writers.)
    ///
    /// # Errors
    /// [`StoreError::SnapshotEnded`] if writers replaced more than that; [`StoreError::NotOpen`] if a map was
    /// not opened with its types; [`StoreError::HasFile`] if a map has a file of its own; [`StoreError::Open`],
    /// [`StoreError::File`] for the new file; those of the pool. Then there is no new file.
    ///
    /// # Cost
    /// Reads all records, and writes them as a bulk load does.
    pub fn backup(&self, target: impl AsRef<Path>) -> Result<StoreBackup, StoreError> {
        let _span = observe::backup(target.as_ref());
        let open = self.maps()?;
        let view = self.snapshot()?;
        let mut maps = Vec::new();
        for entry in self.maps_in_pool()? {
            let map = open.get(&entry.name);
            let map = map.ok_or_else(|| StoreError::NotOpen { name: entry.name.clone() })?;
            maps.push((entry, Arc::clone(map)));
        }
        drop(open);
        backup::write(&view, &maps, target.as_ref())
    }

    /// Watches the commits of all maps from now on, in their order: transactions and single writes. Dropping
    /// a map is not a commit: it ends all watches.
    ///
    /// # Durability
    /// A returned commit is durable according to the mode of the pool. In mode `Periodic` a watch may return
    /// commits that a power failure takes back.
    ///
    /// # Errors
    /// [`PmError::ReadOnly`](pmindex_core::PmError::ReadOnly); those of the pool.
    pub fn watch(&self) -> Result<Watch<M>, StoreError> {
        Watch::new(&self.core, None, self.watched)
    }

    /// Watches the commits after a position that a watch of this store had.
    ///
    /// # Errors
    /// [`StoreError::WatchEnded`] if the log does not have all of them: too many came since, or no watch
    /// existed, so they have no records (see [`StoreOptions::keep_commits`]), or a map was dropped since. Those
    /// of [`watch`](Self::watch).
    pub fn watch_from(&self, position: WatchPosition) -> Result<Watch<M>, StoreError> {
        Watch::new(&self.core, Some(position), self.watched)
    }

    /// Begins a transaction, which the caller commits or drops.
    ///
    /// # Errors
    /// Those of [`snapshot`](Self::snapshot).
    pub fn begin(&self) -> Result<Transaction<M>, StoreError> {
        self.core.finish_stuck()?;
        Ok(Transaction::new(self.core.handle()))
    }

    /// Runs a transaction and commits it: all or nothing, serializable, durable when it returns. If another
    /// commit changed what it has read, it is run again, so `body` may run several times. If `body` fails or
    /// panics, nothing is changed.
    ///
    /// `body` may fail with an error type of the caller's that has `From<StoreError>`: the caller's own
    /// errors are returned unchanged, and nothing is run again.
    ///
    /// # Errors
    /// Those of `body`; [`StoreError::Conflict`] if it conflicted each time; those of
    /// [`Transaction::commit`].
    pub fn transaction<R, E: From<StoreError>>(
        &self,
        body: impl FnMut(&mut Transaction<M>) -> Result<R, E>,
    ) -> Result<R, E> {
        Transaction::run(&self.core.handle(), body)
    }

    /// Returns the pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool<M>> {
        &self.core.pool
    }

    /// Makes a step go wrong from now on.
    #[cfg(test)]
    pub(crate) fn go_wrong(&self, wrong: Wrong) {
        self.core.moments.faults.set(wrong);
        self.core.redo.faults.set(wrong);
    }

    /// Returns the number of dropped maps that are remembered.
    #[cfg(test)]
    pub(crate) fn dropped(&self) -> usize {
        self.core.dropped()
    }

    /// Splits the records of commits into parts.
    #[cfg(test)]
    pub(crate) fn cut_records(&self) {
        self.core.redo.cut_records();
    }

    /// Returns the state of the store, for an operator or for monitoring.
    ///
    /// # Cost
    /// Reads the directory and the page tables of the pool; blocks no thread for longer than a commit does.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]: the directory of the pool is damaged.
    pub fn report(&self) -> Result<StoreReport, StoreError> {
        let entries = self.maps_in_pool()?;
        let open = self.maps()?;
        let maps = entries.into_iter().map(|entry| MapReport {
            is_open: open.contains_key(&entry.name),
            kind: String::from_utf8_lossy(&entry.kind).trim_end_matches(['\0', ' ']).into(),
            name: entry.name,
        });
        Ok(StoreReport::new(&self.core, maps.collect()))
    }

    /// Returns the approximate bytes of memory of old values for snapshots and transactions.
    #[must_use]
    pub fn past_bytes(&self) -> u64 {
        self.core.moments.kept()
    }

    /// Returns the offsets of the blocks of the log and of the open maps, for the allocator's audit.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn blocks(&self) -> Result<Vec<u64>, StoreError> {
        let mut blocks = self.core.redo.blocks()?;
        for map in self.maps()?.values() {
            blocks.extend(map.blocks()?);
        }
        Ok(blocks)
    }

    /// Verifies the log and the open maps; returns the number of records.
    ///
    /// # Errors
    /// The first fault that is found.
    pub fn check(&self) -> Result<u64, StoreError> {
        self.core.redo.check()?;
        let maps = self.maps()?;
        maps.values().try_fold(0, |records, map| Ok(records + map.check()?))
    }

    /// Returns the number of durable commits whose changes are not all made: those in progress, and those
    /// that a crash interrupted and that wait for their maps to be opened.
    #[must_use]
    pub fn unfinished_commits(&self) -> u64 {
        self.core.redo.len()
    }

    /// Returns the changes of durable commits to the map `name` that are not made before it is opened, of each
    /// key the last one: for tools that save what is in a pool.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]: a change is not of these types.
    pub fn interrupted<K: Key, V: Value>(
        &self,
        name: &str,
    ) -> Result<BTreeMap<K, Option<V>>, StoreError> {
        Ok(self.core.redo.interrupted(name)?)
    }

    /// Closes the maps and the log, so that the next opening is quick; the pool is closed when its last
    /// handle is dropped. First drop everything that came from the store: maps (an [`ExpiringMap`] and its
    /// [`Sweeper`](crate::Sweeper) hold one), snapshots, transactions, watches.
    ///
    /// # Errors
    /// [`StoreError::InUse`] if one of these exists: nothing is lost, the next opening recovers. Those of the
    /// pool.
    pub fn close(self) -> Result<(), StoreError> {
        let mut maps = self.maps.into_inner();
        for (name, map) in maps.drain() {
            match map.close() {
                Ok(closed) => closed?,
                Err(_) => return Err(StoreError::InUse { what: format!("map {name:?}") }),
            }
        }
        let core = self.core.into_inner().ok_or_else(|| StoreError::InUse {
            what: "a snapshot, a transaction or a watch".into(),
        })?;
        drop(core);
        Ok(())
    }
}

/// Removes files, also those after one that cannot be removed; returns the first error.
fn remove_files(files: Vec<PathBuf>) -> Result<(), StoreError> {
    let remove = |path: PathBuf| {
        std::fs::remove_file(&path).map_err(|error| StoreError::File { path, error })
    };
    files.into_iter().map(remove).fold(Ok(()), Result::and)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_removed_leaves_no_other_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let [first, missing, last] =
            ["first", "missing", "last"].map(|name| folder.path().join(name));
        std::fs::write(&first, "1").expect("room");
        std::fs::write(&last, "2").expect("room");
        let removed = remove_files(vec![first.clone(), missing.clone(), last.clone()]);
        assert!(matches!(removed, Err(StoreError::File { path, .. }) if path == missing));
        assert!(!first.exists() && !last.exists());
    }
}
