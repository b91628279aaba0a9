//! The folder of a server: a pool for each partition, and a file with the number of partitions.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex_core::{Durability, Pool, PoolOptions};
use pmindex_rstore::{Batch, Options, Partition, Recovery};

use crate::Error;
use crate::config::{DurabilityArg, Storage};
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
    /// Opens a folder, and creates it if it is missing.
    pub(crate) fn open(storage: &Storage) -> Result<Self, Error> {
        let path = storage.dir.clone();
        fs::create_dir_all(&path).map_err(Error::io(path.display()))?;
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
                folder.write_manifest()?;
                folder.partitions
            }
            Err(error) => return Err(Error::io(manifest.display())(error)),
        };
        if wanted.is_some_and(|wanted| wanted != partitions) {
            let what = format!(
                "it has {partitions} partitions, which cannot be changed; --partitions is {}: omit it",
                wanted.unwrap_or_default()
            );
            return Err(Error::Folder { path, what });
        }
        Ok(Self { path, partitions })
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
        let pool = Pool::open_or_create(&path, &options)
            .map_err(|error| Error::Pool { path: path.clone(), source: Box::new(error) })?;
        let (was_clean, emulated) = (pool.was_clean(), pool.is_emulated());
        let emulated = if emulated { " (emulated)" } else { "" };
        let durability = format!("{}{emulated}", pool.durability());
        let engine_error = |source| Error::Engine { path: path.clone(), source };
        let mut engine_options = Options::new().salvage(storage.salvage);
        let capacity = storage.capacity.unwrap_or(pool.max_size() * self.partitions as u64);
        let spare = if identity.is_some() { 2 } else { 1 } * spare(capacity);
        let each = (capacity - spare) / self.partitions as u64;
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

/// Returns the bytes of a pool that the engine leaves to its log and tables: a full engine must be able to
/// remove.
fn spare(capacity: u64) -> u64 {
    (capacity / 8).max((capacity / 4).min(64 << 20))
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
