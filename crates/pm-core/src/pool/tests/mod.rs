//! Tests of pools that need more than the public interface.

mod activity;
mod bad_cases;
mod bad_files;
mod dropping;
mod files;
mod forked;
mod holes;
mod journal;
mod journal_again;
mod journal_crash;
mod memory;
mod modes;
mod roll_back;
mod sync;
mod twin;
mod twin_crash;
mod unfinished;

use std::path::{Path, PathBuf};

use crate::cell::PmU64;
use crate::error::PmError;
use crate::media::Medium;
use crate::trace::Space;

use super::{IndexEntry, Pool, PoolOptions};

type Block = [PmU64; 8];

/// Returns options for the smallest pool.
fn tiny() -> PoolOptions {
    PoolOptions::new().size(64 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(512)
}

/// Returns memory for a tiny pool that may grow.
fn space() -> Space {
    let len = tiny().created_size().unwrap() as usize;
    Space::new(len, 4 * len)
}

/// Adds an index whose root block holds `value`.
fn add<M: Medium>(pool: &Pool<M>, name: &str, value: u64) -> Result<IndexEntry, PmError> {
    let open = pool.create_index::<Block>(name, *b"blocks  ", 7, |block| {
        pool.pm().store(&block[0], value);
        pool.pm().flush(block)
    })?;
    Ok(open.clone())
}

/// Returns the value that [`add`] stored.
fn value_of<M: Medium>(pool: &Pool<M>, name: &str) -> Option<u64> {
    let entry = pool.open_index(name).unwrap()?;
    Some(pool.pm().load(&pool.get(entry.root::<Block>()).unwrap()[0]))
}

/// A directory that is removed when the test ends, and the name of a pool in it.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    /// Makes one on the medium of temporary files.
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// Makes one on tmpfs, if it is mounted at the usual place.
    fn tmpfs() -> Option<Self> {
        let shm = Path::new("/dev/shm");
        let is_tmpfs = rustix::fs::statfs(shm).is_ok_and(|stat| stat.f_type == 0x0102_1994);
        let directory = is_tmpfs.then(|| tempfile::tempdir_in(shm).ok()).flatten();
        if directory.is_none() {
            eprintln!("skipped: no tmpfs at {}", shm.display());
        }
        Some(Self { directory: directory? })
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("pool")
    }

    /// Creates and closes a tiny pool with index `a` = 1.
    fn with_pool(self) -> Self {
        let pool = Pool::create(self.path(), &tiny().uuid(7)).unwrap(); // the same bytes each time
        add(&pool, "a", 1).unwrap();
        pool.close().unwrap();
        self
    }
}
