//! The folder of a server: a pool for each partition, and a file with the number of partitions.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex_core::{Durability, OpenError, Pool, PoolOptions, Writer};
use pmindex_rstore::{Batch, Options, Partition, Recovery};

use crate::Error;
use crate::config::{DurabilityArg, Storage};
use crate::folders::{self, NewFolders};
use crate::keyspace::{Place, Reaper};

use super::{Shard, Store};
use crate::group::{Group, Identity};

/// The name of the partition in its pool.
const NAME: &str = "rstore";
/// The file with the number of partitions.
const MANIFEST: &str = "partitions";

/// A server's folder.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) partitions: usize,
}

/// A folder without pools so far. If it has none when this is dropped, because they could not be created, all that
/// is new is removed.
#[derive(Debug)]
pub(crate) struct NewFolder<'f> {
    folder: &'f Folder,
    /// The file with the number of partitions is new.
    is_new: bool,
    /// Removed after the file.
    _folders: NewFolders,
}

impl Drop for NewFolder<'_> {
    fn drop(&mut self) {
        let has_pools = (0..self.folder.partitions).any(|number| self.folder.pool(number).exists());
        if self.is_new && !has_pools {
            let _ = fs::remove_file(self.folder.path.join(MANIFEST));
        }
    }
}

/// A partition that was opened, and the figures of opening.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) shard: Shard,
    pub(crate) recovery: Recovery,
    pub(crate) was_clean: bool,
    pub(crate) durability: String,
    pub(crate) took: Duration,
}

impl Folder {
    /// Looks at a folder, which may be missing, and creates nothing.
    pub(crate) fn find(storage: &Storage) -> Result<Self, Error> {
        let path = storage.dir.clone();
        folders::check(&path)?;
        let manifest = path.join(MANIFEST);
        let wanted = storage.partitions;
        let partitions = match fs::read_to_string(&manifest) {
            Ok(text) => {
                let number = text.trim().parse().ok().filter(|number| (1..=1024).contains(number));
                number.ok_or_else(|| Error::Folder {
                    path: path.clone(),
                    what: format!(
                        "the file {MANIFEST:?} must hold the number of partitions, 1 to 1024; restore it"
                    ),
                })?
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let folder = Self { path: path.clone(), partitions: wanted.unwrap_or(1) };
                if folder.pool(0).exists() {
                    let what = format!(
                        "it has pools, but no file {MANIFEST:?}, as if a backup was interrupted; name \
                         another folder, or write the number of partitions to that file"
                    );
                    return Err(Error::Folder { path, what });
                }
                folder.partitions
            }
            Err(error) => return Err(Error::io(manifest.display())(error)),
        };
        if let Some(wanted) = wanted.filter(|wanted| *wanted != partitions) {
            let what = format!(
                "its number of partitions is {partitions}, and cannot be changed to {wanted}: omit --partitions, \
                 or name another folder"
            );
            return Err(Error::Folder { path, what });
        }
        storage.check_capacity(partitions)?;
        Ok(Self { path, partitions })
    }

    /// Creates the folder if it is missing, and writes the number of partitions if it is new.
    pub(crate) fn create(&self) -> Result<NewFolder<'_>, Error> {
        let folders = NewFolders::create(&self.path)?;
        let is_new = !self.path.join(MANIFEST).exists();
        let new = NewFolder { folder: self, is_new, _folders: folders };
        if is_new {
            self.write_manifest()?;
        }
        Ok(new)
    }

    /// Finds a folder, and creates it if it is missing.
    #[cfg(test)]
    pub(crate) fn open(storage: &Storage) -> Result<Self, Error> {
        let folder = Self::find(storage)?;
        std::mem::forget(folder.create()?);
        Ok(folder)
    }

    /// Writes the number of partitions durably.
    pub(crate) fn write_manifest(&self) -> Result<(), Error> {
        let path = self.path.join(MANIFEST);
        let write = || {
            fs::write(&path, format!("{}\n", self.partitions))?;
            fs::File::open(&path)?.sync_all()?;
            fs::File::open(&self.path)?.sync_all()
        };
        write().map_err(Error::io(path.display()))
    }

    /// Returns the pool of a partition.
    pub(crate) fn pool(&self, number: usize) -> PathBuf {
        self.path.join(format!("partition-{number:04}.pool"))
    }

    /// Opens a partition, and creates it if it does not exist.
    pub(crate) fn partition(
        &self,
        storage: &Storage,
        number: usize,
        identity: Option<&Identity>,
    ) -> Result<Opened, Error> {
        let started = Instant::now();
        let path = self.pool(number);
        let options = pool_options(storage, number);
        let pool =
            Pool::open_or_create(&path, &options).map_err(|error| not_opened(&path, error))?;
        let (was_clean, emulated) = (pool.was_clean(), pool.is_emulated());
        let emulated = if emulated { " (emulated)" } else { "" };
        let durability = format!("{}{emulated}", pool.durability());
        let engine_error = |source| Error::Engine { path: path.clone(), source };
        let mut engine_options = Options::new().salvage(storage.salvage);
        let capacity = storage.capacity.unwrap_or(pool.max_size() * self.partitions as u64);
        let each = for_records(capacity, identity.is_some()) / self.partitions as u64;
        engine_options = engine_options.capacity(each);
        if storage.capacity.is_some() {
            engine_options = engine_options.raise_capacity(each);
        }
        let pool = Arc::new(pool);
        if let Some(identity) = identity {
            let partition = (number, self.partitions);
            let group = Group::open(&pool, NAME, &engine_options, partition, identity);
            let group = group.map_err(|source| Error::Group { path: path.clone(), source })?;
            drop(pool);
            let mut recovery = Recovery::default();
            recovery.records = group.stats().records;
            let store = Store::Group(Box::new(group));
            let shard = Shard::new(store, number, self.partitions, storage.cluster)?;
            return Ok(Opened { shard, recovery, was_clean, durability, took: started.elapsed() });
        }
        let (engine, recovery) =
            Partition::open_or_create(&pool, NAME, &engine_options).map_err(engine_error)?;
        drop(pool);
        let shard =
            Shard::new(Store::Alone(Box::new(engine)), number, self.partitions, storage.cluster)?;
        Ok(Opened { shard, recovery, was_clean, durability, took: started.elapsed() })
    }

    /// Creates a partition for a backup: fast, and durable when it is closed and synchronised.
    pub(super) fn copy(&self, number: usize) -> Result<Partition, String> {
        let options = PoolOptions::new().write_back(false);
        let pool = Pool::create(self.pool(number), &options).map_err(|error| error.to_string())?;
        let engine = Partition::create(&Arc::new(pool), NAME, &Options::new());
        engine.map_err(|error| error.to_string())
    }
}

impl Shard {
    fn new(store: Store, number: usize, partitions: usize, cluster: bool) -> Result<Self, Error> {
        let failed = |failure| Error::Place { number, what: format!("{failure:?}") };
        let seed = std::collections::hash_map::RandomState::new();
        let seed = std::hash::BuildHasher::hash_one(&seed, number);
        let mut place = Place::open(store.records(), seed).map_err(failed)?;
        place.number = number;
        // In a cluster each node scans its own keys.
        place.next = Some(number + 1).filter(|next| *next < partitions && !cluster);
        Ok(Self {
            store,
            place,
            reaper: Reaper::default(),
            next_walk: 0,
            staged: false,
            batch: Batch::new(),
            broken: None,
            is_full: false,
            lost: false,
            writes: 0,
        })
    }
}

/// Returns the part of the capacity that is for records, `maxmemory`. The rest is for logs and tables: a full engine
/// must be able to remove, and a group has a log of its own.
fn for_records(capacity: u64, grouped: bool) -> u64 {
    let spare = (capacity / 8).max((capacity / 4).min(64 << 20));
    capacity - if grouped { 2 * spare } else { spare }
}

/// Returns the error of a pool that cannot be opened, which names the process that has it open.
fn not_opened(path: &Path, error: OpenError) -> Error {
    // It may also be the pool's journal, or its twin.
    let who = match &error {
        OpenError::Locked { path } => Writer::of(path).map(|who| (path, who)),
        _ => None,
    };
    match who {
        Some((path, who)) => {
            let what = format!("in use by {who}: end that first, or name another folder");
            Error::Folder { path: path.clone(), what }
        }
        None => Error::Pool { path: path.into(), source: Box::new(error) },
    }
}

fn pool_options(storage: &Storage, number: usize) -> PoolOptions {
    let options = PoolOptions::new().size(storage.size);
    let options = match storage.capacity {
        Some(capacity) => options.max_size(capacity.max(storage.size)),
        None => options,
    };
    match storage.durability {
        DurabilityArg::Auto => options,
        DurabilityArg::Process => options.write_back(false),
        DurabilityArg::Msync => options.require(Durability::Msync),
        DurabilityArg::Journal => options.journal(true).require(Durability::Journal),
        DurabilityArg::Flush => options.emulate_pm(true),
        DurabilityArg::Periodic(every) => {
            let twin = storage.twin.as_deref().unwrap_or(Path::new("."));
            let twin = twin.join(format!("partition-{number:04}.twin"));
            options.require(Durability::Periodic).twin(twin).twin_every(every)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_of_the_capacity_is_for_logs() {
        let parts = [(16 << 10, 14 << 10), (512, 448), (400, 336), (256, 192), (8, 6)];
        for (capacity, records) in parts.map(|(all, part): (u64, u64)| (all << 20, part << 20)) {
            assert_eq!(for_records(capacity, false), records);
            assert_eq!(capacity - for_records(capacity, true), 2 * (capacity - records));
        }
    }
}
