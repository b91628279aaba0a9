//! Peers of modes `Journal` and `Msync` only: SQLite, and a loop of only the writes and syncs that a commit
//! needs.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pmindex_pibench::{Fault, Phase, Session, Store};
use rusqlite::{Connection, params};

/// SQLite with a write-ahead log; each commit is synchronised, and each session has a connection.
pub(crate) struct Sqlite(PathBuf);

/// A connection, or the reason why it could not be made.
pub(crate) struct Connected(Result<Connection, String>);

/// Maps a key to an integer that SQLite orders alike.
fn ordered(key: u64) -> i64 {
    (key ^ 1 << 63).cast_signed()
}

impl Sqlite {
    pub(crate) fn create(dir: &Path) -> Result<Self, Fault> {
        let sqlite = Self(dir.join("sqlite"));
        let connection = sqlite.connect()?;
        let table = "CREATE TABLE records (key INTEGER PRIMARY KEY, value INTEGER NOT NULL)";
        connection.execute_batch(table)?;
        Ok(sqlite)
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open(&self.0)?;
        connection.busy_timeout(Duration::from_secs(600))?;
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")?;
        Ok(connection)
    }
}

impl Store<u64, u64> for Sqlite {
    type Session<'s> = Connected;

    fn session(&self) -> Connected {
        Connected(self.connect().map_err(|error| error.to_string()))
    }
}

impl Connected {
    fn connection(&self) -> Result<&Connection, Fault> {
        self.0.as_ref().map_err(|error| error.clone().into())
    }

    fn execute(&self, sql: &str, key: u64, value: u64) -> Result<bool, Fault> {
        let mut statement = self.connection()?.prepare_cached(sql)?;
        let changed = match statement.parameter_count() {
            1 => statement.execute(params![ordered(key)]),
            _ => statement.execute(params![ordered(key), value.cast_signed()]),
        };
        Ok(changed? > 0)
    }
}

impl Session<u64, u64> for Connected {
    fn get(&mut self, key: &u64) -> Result<bool, Fault> {
        let mut statement =
            self.connection()?.prepare_cached("SELECT value FROM records WHERE key = ?1")?;
        let mut rows = statement.query(params![ordered(*key)])?;
        let found = rows.next()?.map(|row| row.get::<_, i64>(0)).transpose()?;
        Ok(found.map(black_box).is_some())
    }

    fn insert(&mut self, key: &u64, value: &u64) -> Result<bool, Fault> {
        self.execute("INSERT OR IGNORE INTO records VALUES (?1, ?2)", *key, *value)
    }

    fn update(&mut self, key: &u64, value: &u64) -> Result<bool, Fault> {
        self.execute("UPDATE records SET value = ?2 WHERE key = ?1", *key, *value)
    }

    fn upsert(&mut self, key: &u64, value: &u64) -> Result<(), Fault> {
        self.execute("INSERT OR REPLACE INTO records VALUES (?1, ?2)", *key, *value).map(drop)
    }

    fn remove(&mut self, key: &u64) -> Result<bool, Fault> {
        self.execute("DELETE FROM records WHERE key = ?1", *key, 0)
    }

    fn scan(&mut self, from: &u64, limit: usize) -> Result<usize, Fault> {
        let sql = "SELECT key, value FROM records WHERE key >= ?1 ORDER BY key LIMIT ?2";
        let mut statement = self.connection()?.prepare_cached(sql)?;
        let mut rows = statement.query(params![ordered(*from), limit as i64])?;
        let mut read = 0;
        while let Some(row) = rows.next()? {
            black_box((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
            read += 1;
        }
        Ok(read)
    }
}

/// Overwrites a block and calls `fdatasync` for each record. It cannot find records again.
pub(crate) struct Bare {
    file: File,
    next: AtomicU64,
}

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// The blocks are written one after another, then again from the first.
const BLOCKS: u64 = 4096;

impl Bare {
    pub(crate) fn create(dir: &Path) -> Result<Self, Fault> {
        let file = File::create(dir.join("bare"))?;
        for at in 0..BLOCKS {
            file.write_all_at(&[0; BLOCK as usize], at * BLOCK)?;
        }
        file.sync_all()?;
        Ok(Self { file, next: AtomicU64::new(0) })
    }
}

impl Store<u64, u64> for Bare {
    type Session<'s> = &'s Self;

    fn session(&self) -> &Self {
        self
    }

    fn can(&self, phase: Phase) -> bool {
        matches!(phase, Phase::Load | Phase::Insert | Phase::Update)
    }
}

impl Session<u64, u64> for &Bare {
    fn get(&mut self, _key: &u64) -> Result<bool, Fault> {
        Err("the bare loop reads nothing".into())
    }

    fn insert(&mut self, key: &u64, value: &u64) -> Result<bool, Fault> {
        let mut block = [0; BLOCK as usize];
        block[..8].copy_from_slice(&key.to_le_bytes());
        block[8..16].copy_from_slice(&value.to_le_bytes());
        let at = self.next.fetch_add(1, Ordering::Relaxed) % BLOCKS * BLOCK;
        self.file.write_all_at(&block, at)?;
        self.file.sync_data()?;
        Ok(true)
    }

    fn update(&mut self, key: &u64, value: &u64) -> Result<bool, Fault> {
        self.insert(key, value)
    }

    fn upsert(&mut self, key: &u64, value: &u64) -> Result<(), Fault> {
        self.insert(key, value).map(drop)
    }

    fn remove(&mut self, key: &u64) -> Result<bool, Fault> {
        self.insert(key, &0)
    }

    fn scan(&mut self, _from: &u64, _limit: usize) -> Result<usize, Fault> {
        Err("the bare loop reads nothing".into())
    }
}
