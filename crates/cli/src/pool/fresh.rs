//! A pool that is being filled, and gets its name only when it is complete.

use std::io;
use std::path::{Path, PathBuf};

use pmindex::IndexError;
use pmindex::core::{self, OpenError};
use pmindex_named::{Raw, Records, Sort, Types};

use crate::error::CliError;
use crate::interrupt::{Fate, Registered};

/// The number of records that are added in one call.
const BATCH: usize = 1024;
/// The bytes of keys and values that are added in one call.
const BATCH_BYTES: usize = 1 << 20;

/// A pool under a temporary name, which is removed when the program is interrupted.
pub(crate) struct FreshPool {
    pool: core::FreshPool,
    target: PathBuf,
    _registered: Registered,
}

impl FreshPool {
    /// Starts a pool that will be named `target`.
    pub(crate) fn create(target: &Path) -> Result<Self, CliError> {
        if target.is_dir() {
            return Err(CliError::IsFolder { path: target.into() });
        }
        if target.exists() {
            return Err(CliError::PoolExists { path: target.into() });
        }
        // An existing file of the temporary name is an error: another process may be filling it.
        let (pool, registered) = registered(|| core::FreshPool::create(target))
            .map_err(|error| unnamed(error, target))?;
        Ok(Self { pool, target: target.into(), _registered: registered })
    }

    /// Creates an index to be filled.
    pub(crate) fn index(&self, name: &str, sort: Sort, types: Types) -> Result<Filling, CliError> {
        let index = pmindex_named::create_sort(self.pool.pool(), name, sort, types)?;
        Ok(Filling { index, batch: Vec::new(), bytes: 0 })
    }

    /// Makes the pool durable, and gives it its name.
    pub(crate) fn finish(self) -> Result<(), CliError> {
        let path = self.target;
        self.pool.finish().map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => CliError::PoolExists { path },
            _ => CliError::File { path, error },
        })
    }
}

/// Starts a pool, which is removed from then on if the program is interrupted; the other files of such a name are not.
pub(crate) fn registered(
    start: impl FnOnce() -> Result<core::FreshPool, OpenError>,
) -> Result<(core::FreshPool, Registered), OpenError> {
    Registered::created(Fate::RemoveFile, || {
        let pool = start()?;
        let partial = pool.partial().to_path_buf();
        Ok((pool, partial))
    })
}

/// Returns the error of a pool under its temporary name, as the user knows the pool.
pub(crate) fn unnamed(error: OpenError, target: &Path) -> CliError {
    match error {
        OpenError::AlreadyExists { path } => CliError::Partial { path },
        OpenError::NoDirectory { directory, .. } => {
            OpenError::NoDirectory { path: target.into(), directory }.into()
        }
        error => error.into(),
    }
}

/// An index that is being filled.
pub(crate) struct Filling {
    index: Box<dyn Records>,
    batch: Vec<(Raw, Raw)>,
    bytes: usize,
}

impl Filling {
    /// Adds a record; if the key is already there, the first record stays.
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

    /// Adds the remaining records, verifies and closes the index, and returns the number of its records.
    pub(crate) fn finish(mut self) -> Result<u64, CliError> {
        self.flush()?;
        let records = self.index.check()?;
        self.index.close()?;
        Ok(records)
    }
}
