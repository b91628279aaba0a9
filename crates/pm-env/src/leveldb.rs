//! The environment of `rusty-leveldb`, a log-structured merge tree: its log, tables and catalog are files of
//! a pool (feature `leveldb`).

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use pmindex_core::{Mapped, Medium};
use rusty_leveldb::env::{FileLock as LockId, Logger, RandomAccess};
use rusty_leveldb::{Result, Status, StatusCode};

use crate::{Env, EnvError, File, FileLock};

/// [`Env`] as `rusty_leveldb::env::Env`, for `Options::env`.
///
/// ```
/// use std::rc::Rc;
/// use std::sync::Arc;
///
/// use pmindex_core::Pool;
/// use pmindex_env::{Env, LevelEnv};
/// use rusty_leveldb::{DB, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Arc::new(Pool::emulated(64 << 20)?); // or Pool::create(path, &PoolOptions::new())?
/// let files = LevelEnv::new(Env::open_or_create(&pool, "db")?);
/// let options = Options { env: Rc::new(Box::new(files)), ..Options::default() };
/// let mut db = DB::open("db", options)?;
/// db.put(b"apple", b"red")?;
/// assert_eq!(db.get(b"apple").as_deref(), Some(&b"red"[..]));
/// # Ok(())
/// # }
/// ```
///
/// # Durability
/// The database keeps the last KiB of its log to itself, until it is flushed (`DB::flush`, or a write with
/// `sync`). What it has written before survives the death of the process, what it has flushed what the pool
/// survives.
#[derive(Debug)]
pub struct LevelEnv<M: Medium = Mapped> {
    env: Env<M>,
    locks: Mutex<HashMap<String, FileLock<M>>>,
}

impl<M: Medium> LevelEnv<M> {
    /// Makes one over the files of `env`.
    #[must_use]
    pub fn new(env: Env<M>) -> Self {
        Self { env, locks: Mutex::default() }
    }
}

impl From<EnvError> for Status {
    fn from(error: EnvError) -> Self {
        let code = match &error {
            EnvError::NoSuchFile { .. } => StatusCode::NotFound,
            EnvError::BadName { .. } => StatusCode::InvalidArgument,
            EnvError::Locked { .. } => StatusCode::LockError,
            EnvError::Pool(pmindex_core::PmError::Corrupt { .. }) => StatusCode::Corruption,
            EnvError::Pool(_) => StatusCode::IOError,
        };
        Self::new(code, &error.to_string())
    }
}

/// Returns the name of a file: its path without the separators at its ends.
fn name_of(path: &Path) -> Result<&str> {
    let name = path.to_str();
    let name =
        name.ok_or_else(|| Status::new(StatusCode::InvalidArgument, "a path that is no UTF-8"));
    Ok(name?.trim_matches('/'))
}

/// A table or log, which is read at any offset.
struct Anywhere<M: Medium>(File<M>);

impl<M: Medium> RandomAccess for Anywhere<M> {
    fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<usize> {
        Ok(self.0.read_at(offset as u64, into)?)
    }
}

/// The database's log of its own events, which may be lost in a power failure.
struct Unsynced<M: Medium>(File<M>);

impl<M: Medium> Write for Unsynced<M> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<M: Medium> rusty_leveldb::env::Env for LevelEnv<M> {
    fn open_sequential_file(&self, path: &Path) -> Result<Box<dyn Read>> {
        Ok(Box::new(self.env.open_file(name_of(path)?)?.reader()))
    }

    fn open_random_access_file(&self, path: &Path) -> Result<Box<dyn RandomAccess>> {
        Ok(Box::new(Anywhere(self.env.open_file(name_of(path)?)?)))
    }

    fn open_writable_file(&self, path: &Path) -> Result<Box<dyn Write>> {
        Ok(Box::new(self.env.create_file(name_of(path)?)?))
    }

    fn open_appendable_file(&self, path: &Path) -> Result<Box<dyn Write>> {
        Ok(Box::new(self.env.open_or_create_file(name_of(path)?)?))
    }

    /// A folder exists if it has a file.
    fn exists(&self, path: &Path) -> Result<bool> {
        let name = name_of(path)?;
        Ok(self.env.exists(name) || !self.env.list(&format!("{name}/")).is_empty())
    }

    fn children(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let folder = format!("{}/", name_of(path)?);
        let names = self.env.list(&folder).into_iter();
        Ok(names.map(|name| PathBuf::from(&name[folder.len()..])).collect())
    }

    fn size_of(&self, path: &Path) -> Result<usize> {
        Ok(self.env.open_file(name_of(path)?)?.len() as usize)
    }

    fn delete(&self, path: &Path) -> Result<()> {
        Ok(self.env.delete(name_of(path)?)?)
    }

    fn mkdir(&self, _: &Path) -> Result<()> {
        Ok(()) // a name may contain slashes
    }

    fn rmdir(&self, _: &Path) -> Result<()> {
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        Ok(self.env.rename(name_of(from)?, name_of(to)?)?)
    }

    fn lock(&self, path: &Path) -> Result<LockId> {
        let name = name_of(path)?;
        let lock = self.env.lock(name)?;
        self.env.open_or_create_file(name)?;
        self.locks.lock().insert(name.into(), lock);
        Ok(LockId { id: name.into() })
    }

    fn unlock(&self, lock: LockId) -> Result<()> {
        let held = self.locks.lock().remove(&lock.id);
        held.map(drop).ok_or_else(|| Status::new(StatusCode::LockError, "it is not locked"))
    }

    fn new_logger(&self, path: &Path) -> Result<Logger> {
        let file = self.env.open_or_create_file(name_of(path)?)?;
        Ok(Logger::new(Box::new(Unsynced(file))))
    }

    fn micros(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
    }

    fn sleep_for(&self, micros: u32) {
        std::thread::sleep(Duration::from_micros(micros.into()));
    }
}
