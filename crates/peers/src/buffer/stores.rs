//! The stores that are measured, each with the same memory as far as that can be set.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use heed::types::ByteSlice;
use pmindex_btree::PagedMap;
use pmindex_buffer::{Buffer, BufferOptions};
use pmindex_core::{Pool, PoolOptions};
use pmindex_pibench::KeySpace;
use pmindex_wal::{FileDisk, SyncMethod};
use redb::ReadableDatabase;
use rusqlite::{Connection, params};

use crate::common::{Fault, Folders, RECORD, VALUE, fill};

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    /// The pool in memory: as on persistent memory.
    Memory,
    /// The pool on the disk, in mode `Journal`.
    Journal,
    Redb,
    Lmdb,
    Sqlite,
}

impl System {
    pub(crate) const ALL: [Self; 5] =
        [Self::Memory, Self::Journal, Self::Redb, Self::Lmdb, Self::Sqlite];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "pmindex, pool in memory",
            Self::Journal => "pmindex, pool on the disk",
            Self::Redb => "redb",
            Self::Lmdb => "LMDB",
            Self::Sqlite => "SQLite",
        }
    }
}

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) memory: u64,
    pub(crate) records: u64,
    /// Commits survive power failure.
    pub(crate) synced: bool,
    /// LMDB's files are on tmpfs, where synchronising costs nothing: its only way not to be synced.
    pub(crate) on_tmpfs: bool,
}

/// A store of 8-byte keys and values of [`VALUE`] bytes.
pub(crate) trait Records {
    fn get(&mut self, key: u64) -> Result<bool, Fault>;
    fn put(&mut self, records: &[(u64, [u8; VALUE])]) -> Result<(), Fault>;
}

/// Creates a store, and loads it.
pub(crate) fn create(
    system: System,
    folders: &Folders,
    opening: &Opening,
) -> Result<Box<dyn Records>, Fault> {
    let unsynced = Opening { synced: false, on_tmpfs: true, ..*opening };
    let mut store = open(system, folders, &unsynced, true)?;
    let (mut random, mut batch) = (KeySpace::new(5), Vec::new());
    for key in 0..opening.records {
        let mut value = [0; VALUE];
        fill(&mut value, &mut random);
        batch.push((key, value));
        if batch.len() == 128 || key + 1 == opening.records {
            store.put(&batch)?;
            batch.clear();
        }
    }
    if opening.on_tmpfs && !opening.synced {
        return Ok(store);
    }
    drop(store);
    if system == System::Lmdb {
        std::fs::copy(folders.memory.join("data.mdb"), folders.disk.join("data.mdb"))?;
    }
    open(system, folders, opening, false)
}

/// Opens a store; with `new` an empty one.
pub(crate) fn open(
    system: System,
    folders: &Folders,
    opening: &Opening,
    new: bool,
) -> Result<Box<dyn Records>, Fault> {
    Ok(match system {
        System::Memory | System::Journal => Box::new(Ours::open(system, folders, opening, new)?),
        System::Redb => Box::new(Redb::open(&folders.disk, opening)?),
        System::Lmdb => {
            Box::new(Lmdb::open(if opening.on_tmpfs { &folders.memory } else { &folders.disk })?)
        }
        System::Sqlite => Box::new(Sqlite::open(&folders.disk, opening, new)?),
    })
}

/// A thread that repeats a step until its owner is dropped.
struct Repeated {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Repeated {
    fn start(pause: Duration, mut step: impl FnMut() -> bool + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            while !stop.load(Relaxed) && step() {
                std::thread::sleep(pause);
            }
        });
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A map in a buffer pool; another thread makes checkpoints.
pub(crate) struct Ours {
    _checkpoints: Repeated,
    pub(crate) map: PagedMap<u64, Vec<u8>>,
}

/// The part of the pool that its log may fill before a checkpoint begins.
const LOG_SHARE: u64 = 16;

impl Ours {
    pub(crate) fn open(
        system: System,
        folders: &Folders,
        opening: &Opening,
        new: bool,
    ) -> Result<Self, Fault> {
        let pages = folders.disk.join("pages");
        let pool = match system {
            System::Memory => folders.memory.join("pool"),
            _ => folders.disk.join("pool"),
        };
        let pools = PoolOptions::new().size(opening.memory).grow(false);
        let pools = match system {
            System::Memory => pools.emulate_pm(true),
            _ => pools.journal(true).journal_bytes(32 << 20),
        };
        let options =
            BufferOptions::new(opening.memory / 32 * 27 / 4096).staging(opening.memory / 64 / 4096);
        let buffer = if new {
            // Pages are at least half full.
            FileDisk::create(
                &File::create(&pages)?,
                (opening.records * RECORD / 4096 * 5 / 2 + 64) * 4096,
            )?;
            let disk = Arc::new(FileDisk::open(&pages, SyncMethod::Sync)?);
            if !disk.is_direct() {
                eprintln!("the disk has no O_DIRECT: pmindex's pages are in the page cache too");
            }
            Buffer::create(&Arc::new(Pool::create(&pool, &pools)?), "pages", disk, &options)?
        } else {
            let disk = Arc::new(FileDisk::open(&pages, SyncMethod::Sync)?);
            let pool = Arc::new(Pool::open(&pool, &pools)?);
            Buffer::open(&pool, "pages", disk, &options)?.ok_or("the buffer is gone")?
        };
        let buffer = Arc::new(buffer);
        let (shared, limit) = (Arc::clone(&buffer), opening.memory / LOG_SHARE);
        let checkpoints = Repeated::start(Duration::from_millis(2), move || {
            shared.log_bytes() < limit || shared.checkpoint().is_ok()
        });
        Ok(Self { _checkpoints: checkpoints, map: PagedMap::open(&buffer, "records")? })
    }
}

impl Records for Ours {
    fn get(&mut self, key: u64) -> Result<bool, Fault> {
        Ok(self.map.get(&key)?.is_some_and(|value| value.len() == VALUE))
    }

    fn put(&mut self, records: &[(u64, [u8; VALUE])]) -> Result<(), Fault> {
        self.map.transact(|tx| {
            for (key, value) in records {
                self.map.put_in(tx, key, value)?;
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Drops the kernel's pages of a store's files every few milliseconds, so that only the memory counts that the
/// store was given.
fn without_page_cache(files: Vec<PathBuf>) -> Repeated {
    Repeated::start(Duration::from_millis(5), move || {
        files.iter().for_each(|file| forget(file));
        true
    })
}

/// Drops the kernel's pages of a file, and begins to write those that are not on the disk.
pub(crate) fn forget(file: &Path) {
    if let Ok(file) = File::open(file) {
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

struct Redb {
    _cache: Repeated,
    db: redb::Database,
    synced: bool,
    commits: u64,
}

const TABLE: redb::TableDefinition<'_, u64, &[u8]> = redb::TableDefinition::new("records");
/// A commit is synchronised now and then, since pages become free only after one.
const SELDOM: u64 = 4096;

impl Redb {
    fn open(dir: &Path, opening: &Opening) -> Result<Self, Fault> {
        let file = dir.join("redb");
        let db = redb::Builder::new().set_cache_size(opening.memory as usize).create(&file)?;
        Ok(Self { _cache: without_page_cache(vec![file]), db, synced: opening.synced, commits: 0 })
    }
}

impl Records for Redb {
    fn get(&mut self, key: u64) -> Result<bool, Fault> {
        let table = self.db.begin_read()?.open_table(TABLE)?;
        Ok(table.get(key)?.is_some_and(|value| value.value().to_vec().len() == VALUE))
    }

    fn put(&mut self, records: &[(u64, [u8; VALUE])]) -> Result<(), Fault> {
        let mut txn = self.db.begin_write()?;
        self.commits += 1;
        if !self.synced && !self.commits.is_multiple_of(SELDOM) {
            txn.set_durability(redb::Durability::None)?;
        }
        {
            let mut table = txn.open_table(TABLE)?;
            for (key, value) in records {
                table.insert(key, &value[..])?;
            }
        }
        Ok(txn.commit()?)
    }
}

struct Lmdb {
    env: heed::Env,
    records: heed::Database<ByteSlice, ByteSlice>,
}

fn lmdb(error: heed::Error) -> Fault {
    error.to_string().into()
}

impl Lmdb {
    fn open(dir: &Path) -> Result<Self, Fault> {
        let env = heed::EnvOpenOptions::new().map_size(1 << 38).open(dir).map_err(lmdb)?;
        let records = env.create_database(None).map_err(lmdb)?;
        Ok(Self { env, records })
    }
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        // Otherwise opening the same path again returns this environment.
        drop(self.env.clone().prepare_for_closing());
    }
}

impl Records for Lmdb {
    fn get(&mut self, key: u64) -> Result<bool, Fault> {
        let txn = self.env.read_txn().map_err(lmdb)?;
        let found = self.records.get(&txn, &key.to_be_bytes()).map_err(lmdb)?;
        Ok(found.is_some_and(|value| value.to_vec().len() == VALUE))
    }

    fn put(&mut self, records: &[(u64, [u8; VALUE])]) -> Result<(), Fault> {
        let mut txn = self.env.write_txn().map_err(lmdb)?;
        for (key, value) in records {
            self.records.put(&mut txn, &key.to_be_bytes(), value).map_err(lmdb)?;
        }
        txn.commit().map_err(lmdb)
    }
}

struct Sqlite {
    _cache: Repeated,
    connection: Connection,
}

impl Sqlite {
    fn open(dir: &Path, opening: &Opening, new: bool) -> Result<Self, Fault> {
        let file = dir.join("sqlite");
        let connection = Connection::open(&file)?;
        connection.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {}; PRAGMA cache_size = -{}",
            if opening.synced { "FULL" } else { "OFF" },
            opening.memory >> 10
        ))?;
        if new {
            let table = "CREATE TABLE records (key INTEGER PRIMARY KEY, value BLOB NOT NULL)";
            connection.execute_batch(table)?;
        }
        let cache = without_page_cache(vec![file, dir.join("sqlite-wal")]);
        Ok(Self { _cache: cache, connection })
    }
}

impl Records for Sqlite {
    fn get(&mut self, key: u64) -> Result<bool, Fault> {
        let mut statement =
            self.connection.prepare_cached("SELECT value FROM records WHERE key = ?1")?;
        let mut rows = statement.query(params![key.cast_signed()])?;
        let value = rows.next()?.map(|row| row.get::<_, Vec<u8>>(0)).transpose()?;
        Ok(value.is_some_and(|value| value.len() == VALUE))
    }

    fn put(&mut self, records: &[(u64, [u8; VALUE])]) -> Result<(), Fault> {
        let txn = self.connection.unchecked_transaction()?;
        {
            let mut statement =
                txn.prepare_cached("INSERT OR REPLACE INTO records VALUES (?1, ?2)")?;
            for (key, value) in records {
                statement.execute(params![key.cast_signed(), value])?;
            }
        }
        Ok(txn.commit()?)
    }
}
