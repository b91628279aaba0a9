//! A pool that is filled from somewhere and has its name only when it is complete.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmindex::core::{Pool, PoolOptions};
use pmindex::{IndexError, Kind};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::error::CliError;

use super::handle::{self, Handle, Types};
use super::types::Raw;

/// Records that are added together.
const BATCH: usize = 1024;
/// The same in bytes of keys and values.
const BATCH_BYTES: usize = 1 << 20;

/// A pool under another name.
pub(crate) struct FreshPool {
    pool: Option<Arc<Pool>>,
    /// The name it has until it is finished.
    partial: Option<PathBuf>,
    target: PathBuf,
}

impl FreshPool {
    /// Starts a pool that will be `target`. Nothing is written back while it is filled: it has no
    /// name that anybody would open, and is made durable before it gets one.
    pub(crate) fn create(target: &Path) -> Result<Self, CliError> {
        if target.exists() {
            return Err(CliError::Exists { path: target.into() });
        }
        let mut partial = target.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        // A zone of twice the default, so that the largest values find room.
        let options = PoolOptions::new().zone_bytes(8 << 20).write_back(false);
        // A file of that name is somebody's, or what an interrupted attempt left: an error says so.
        let pool = Some(Arc::new(Pool::create(&partial, &options)?));
        Ok(Self { pool, partial: Some(partial), target: target.into() })
    }

    /// Creates an index to be filled.
    pub(crate) fn index(&self, name: &str, kind: Kind, types: Types) -> Result<Filling, CliError> {
        let Some(pool) = &self.pool else { return Err(IndexError::NotEmpty.into()) };
        let index = handle::create_typed(pool, name, kind, types)?;
        Ok(Filling { index, batch: Vec::new(), bytes: 0 })
    }

    /// Makes it durable and gives it its name.
    pub(crate) fn finish(mut self) -> Result<(), CliError> {
        let target = self.target.clone();
        let file = |error: io::Error| CliError::File { path: target.clone(), error };
        let Some(partial) = &self.partial else { return Ok(()) };
        match self.pool.take().map(Arc::into_inner) {
            Some(Some(pool)) => pool.close()?,
            _ => return Err(CliError::StillOpen { path: partial.clone() }),
        }
        // durable before: the name
        File::open(partial).and_then(|pool| pool.sync_all()).map_err(file)?;
        renameat_with(CWD, partial, CWD, &target, RenameFlags::NOREPLACE).map_err(|error| {
            match error {
                rustix::io::Errno::EXIST => CliError::Exists { path: target.clone() },
                error => file(error.into()),
            }
        })?;
        self.partial = None;
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(file)
    }
}

impl Drop for FreshPool {
    fn drop(&mut self) {
        drop(self.pool.take());
        if let Some(partial) = &self.partial {
            let _ = std::fs::remove_file(partial); // never finished; nothing more can be done
        }
    }
}

/// An index that is being filled.
pub(crate) struct Filling {
    index: Box<dyn Handle>,
    batch: Vec<(Raw, Raw)>,
    bytes: usize,
}

impl Filling {
    /// Adds a record; if its key is there already, that one stays.
    pub(crate) fn add(&mut self, key: Raw, value: Raw) -> Result<(), IndexError> {
        let size = |raw: &Raw| match raw {
            Raw::Word(_) => 8,
            Raw::Bytes(bytes) => bytes.len(),
        };
        self.bytes += size(&key) + size(&value);
        self.batch.push((key, value));
        if self.batch.len() == BATCH || self.bytes > BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), IndexError> {
        self.bytes = 0;
        self.index.add(std::mem::take(&mut self.batch))
    }

    /// Adds what is left, verifies the index and closes it; how many records it has.
    pub(crate) fn finish(mut self) -> Result<u64, CliError> {
        self.flush()?;
        let records = self.index.check()?;
        self.index.close()?;
        Ok(records)
    }
}
