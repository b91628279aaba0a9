//! A copy of a pool that is in use.

use std::fmt;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pmindex_core::{Medium, NewFile, PmError, Pool};
use pmindex_error::error_enum;

use crate::any::Kind;

/// Bytes that are read in one piece.
const CHUNK: usize = 1 << 20;
/// Bytes that are compared, and written if they differ.
const PAGE: usize = 4096;

/// A backup in progress: a consistent copy of a pool, mostly made while writers continue.
///
/// [`begin`](Self::begin) copies the whole pool while writers continue. [`catch_up`](Self::catch_up) copies
/// what has changed since; call it as often as it reduces the rest. [`finish`](Self::finish) copies the
/// rest; call it when no write to any index of the pool is in progress. The copy is the pool at that
/// moment. It opens as after a crash of its process, and every index recovers from that.
///
/// A pool does not know when its writers are between two operations, so the caller stops them. Pass a guard
/// that keeps the writers stopped to `finish`, such as the write guard of a lock that every write holds for
/// reading. Before `finish` drops the guard, it compares pool and copy once more; if a thread wrote
/// nevertheless, it fails with [`BackupError::Changed`], and there is no backup.
///
/// # Cost
/// Writers pause while the pool is compared twice with its copy, both in memory, and while the changes
/// since the last round are written. If the page cache holds the copy, this takes about as long as reading
/// four times the size of the pool from DRAM, whatever the speed of the copy's device. Readers never pause.
/// The file is made durable after the pause.
///
/// # Durability
/// The copy gets its name when it is complete and durable ([`NewFile`]). A crash leaves the earlier file of
/// that name, or none, never a partial one, and no other file is changed. The copy has the identity
/// ([`Pool::uuid`]) of the pool.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::{Arc, PoisonError, RwLock};
/// use pmindex::{Backup, FpTree, Pool, PoolOptions};
///
/// # let folder = tempfile::tempdir()?;
/// # let (path, copy) = (folder.path().join("pool"), folder.path().join("copy"));
/// let options = PoolOptions::new().size(1 << 20);
/// let pool = Arc::new(Pool::create(&path, &options)?);
/// let index = FpTree::<u64, u64>::create(&pool, "numbers")?;
/// let gate = RwLock::new(());
/// let insert = |key| {
///     let _writing = gate.read().unwrap_or_else(PoisonError::into_inner);
///     index.insert(key, &0)
/// };
/// insert(&1)?;
/// let mut backup = Backup::begin(&pool, &copy)?;
/// insert(&2)?; // other threads may continue
/// backup.catch_up()?;
/// backup.finish(gate.write().unwrap_or_else(PoisonError::into_inner))?;
/// insert(&3)?;
///
/// let pool = Arc::new(Pool::open(&copy, &options)?);
/// let index = FpTree::<u64, u64>::open(&pool, "numbers")?;
/// assert_eq!((index.get(&2)?, index.get(&3)?), (Some(0), None));
/// # Ok(())
/// # }
/// ```
pub struct Backup<'p, M: Medium> {
    pool: &'p Pool<M>,
    file: NewFile,
    target: PathBuf,
    replace: bool,
    /// The length of the part that has been copied at least once.
    covered: u64,
    live: Vec<u8>,
    copy: Vec<u8>,
}

impl<M: Medium> fmt::Debug for Backup<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut backup = f.debug_struct("Backup");
        backup.field("target", &self.target).field("covered", &self.covered);
        backup.finish_non_exhaustive()
    }
}

/// The figures of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// The size of the copy in bytes.
    pub bytes: u64,
    /// Bytes that were copied while writers paused.
    pub delta: u64,
    /// How long writers paused.
    pub pause: Duration,
}

error_enum! {
    /// The reason why a backup failed. An existing file of its name is unchanged.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum BackupError {
        /// An error of the pool.
        #[error(transparent)]
        Pool(#[from] PmError),
        /// A thread wrote to the pool during [`Backup::finish`].
        #[error("the pool changed at offset {offset:#x} while its backup was being finished; stop the writers, and \
             back it up again")]
        Changed {
            /// The offset of the change.
            offset: u64,
        },
        /// An index has a file of its own beside the pool, which this does not copy.
        #[error("index {name:?} has a file of its own beside the pool; close the pool, and copy both together")]
        HasFile {
            /// Its name.
            name: String,
        },
        /// The target is the pool's own file.
        #[error("{path}: this is the pool itself; name another file")]
        Itself {
            /// The file.
            path: PathBuf,
        },
        /// An error of the file system.
        #[error("{path}: {what}: {source}")]
        Io {
            /// The file.
            path: PathBuf,
            /// The operation that failed.
            what: &'static str,
            /// The system's error.
            source: io::Error,
        },
    }
}

impl<'p, M: Medium> Backup<'p, M> {
    /// Copies the pool to a new file in the folder of `target`, while writers continue.
    ///
    /// # Errors
    /// [`BackupError::HasFile`] if an index has a file of its own; [`BackupError::Itself`] if `target` is or links
    /// to the pool's file; errors of the file system and of the pool.
    pub fn begin(pool: &'p Pool<M>, target: impl AsRef<Path>) -> Result<Self, BackupError> {
        let target = target.as_ref().to_path_buf();
        if pool.is_at(&target) {
            return Err(BackupError::Itself { path: target });
        }
        if let Some(entry) = pool.indexes()?.into_iter().find(Kind::has_file) {
            return Err(BackupError::HasFile { name: entry.name });
        }
        let file = NewFile::create(&target, 0o600).map_err(|source| BackupError::Io {
            path: target.clone(),
            what: "creating",
            source,
        })?;
        let (live, copy) = (vec![0; CHUNK], vec![0; CHUNK]);
        let mut backup = Self { pool, file, target, replace: true, covered: 0, live, copy };
        backup.catch_up()?;
        Ok(backup)
    }

    /// Sets whether [`finish`](Self::finish) replaces a file of the target's name (default `true`). Otherwise it
    /// fails with [`BackupError::Io`] of the kind `AlreadyExists`, also if the file appeared meanwhile.
    #[must_use]
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// Copies what has changed since the last round, and the part by which the pool has grown, while
    /// writers continue. Returns the number of bytes copied; when it no longer falls, call
    /// [`finish`](Self::finish).
    pub fn catch_up(&mut self) -> Result<u64, BackupError> {
        let (mut offset, mut copied) = (0, 0);
        while let Some(bytes) = self.read_live(offset)? {
            let known = self.read_copy(offset, bytes)?;
            for at in (0..bytes).step_by(PAGE) {
                let page = at..(at + PAGE).min(bytes);
                if page.end <= known && self.live[page.clone()] == self.copy[page.clone()] {
                    continue;
                }
                let written =
                    self.file.file().write_all_at(&self.live[page.clone()], offset + at as u64);
                written.map_err(self.io("writing"))?;
                copied += page.len() as u64;
            }
            offset += bytes as u64;
            self.covered = self.covered.max(offset);
        }
        Ok(copied)
    }

    /// Copies the rest while no write to the pool is in progress, drops `stopped`, makes the copy durable,
    /// and gives it its name, replacing a file of that name unless [`replace`](Self::replace) says otherwise. `stopped` keeps the writers stopped: a lock
    /// guard, an exclusive reference, or `()` if there are no writers.
    ///
    /// # Errors
    /// [`BackupError::Changed`]; errors of the file system and of the pool.
    pub fn finish<G>(self, stopped: G) -> Result<BackupReport, BackupError> {
        self.finish_with(stopped, || ())
    }

    /// Does the same, and calls `between` before the last comparison.
    fn finish_with<G>(
        mut self,
        stopped: G,
        between: impl FnOnce(),
    ) -> Result<BackupReport, BackupError> {
        let started = Instant::now();
        let delta = self.catch_up()?;
        between();
        self.compare()?;
        drop(stopped);
        let pause = started.elapsed();
        let path = self.target.clone();
        let finished = self.file.finish(self.replace);
        finished.map_err(|source| BackupError::Io { path, what: "finishing", source })?;
        Ok(BackupReport { bytes: self.covered, delta, pause })
    }

    /// Returns an error unless the copy equals the pool, byte by byte.
    fn compare(&mut self) -> Result<(), BackupError> {
        let mut offset = 0;
        while let Some(bytes) = self.read_live(offset)? {
            let known = self.read_copy(offset, bytes)?;
            if known < bytes || self.live[..bytes] != self.copy[..bytes] {
                return Err(BackupError::Changed { offset });
            }
            offset += bytes as u64;
        }
        Ok(())
    }

    /// Reads the next bytes of the pool; returns their number, or `None` at the end.
    fn read_live(&mut self, offset: u64) -> Result<Option<usize>, BackupError> {
        let left = self.pool.len().saturating_sub(offset);
        let bytes = left.min(CHUNK as u64) as usize;
        if bytes == 0 {
            // A pool without bytes belongs to another process.
            return if offset == 0 { Err(PmError::Forked.into()) } else { Ok(None) };
        }
        self.pool.read_image(offset, &mut self.live[..bytes])?;
        Ok(Some(bytes))
    }

    /// Reads the bytes that the copy has; returns their number.
    fn read_copy(&mut self, offset: u64, bytes: usize) -> Result<usize, BackupError> {
        let known = self.covered.saturating_sub(offset).min(bytes as u64) as usize;
        let read = self.file.file().read_exact_at(&mut self.copy[..known], offset);
        read.map_err(self.io("reading"))?;
        Ok(known)
    }

    fn io(&self, what: &'static str) -> impl FnOnce(io::Error) -> BackupError {
        let path = self.target.clone();
        move |source| BackupError::Io { path, what, source }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use crate::{FpTree, PoolOptions};

    #[test]
    fn a_write_while_finishing_is_found_out() {
        let folder = tempfile::tempdir().unwrap();
        let options = PoolOptions::new().size(1 << 20).write_back(false);
        let pool = Arc::new(Pool::create(folder.path().join("pool"), &options).unwrap());
        let index = FpTree::<u64, u64>::create(&pool, "numbers").unwrap();
        index.try_insert(&1, &1).unwrap().unwrap();
        let target = folder.path().join("copy");
        fs::write(&target, "the backup of before").unwrap();
        let backup = Backup::begin(&pool, &target).unwrap();
        let outcome = backup.finish_with((), || {
            index.try_insert(&2, &2).unwrap().unwrap();
        });
        assert!(matches!(outcome, Err(BackupError::Changed { .. })), "{outcome:?}");
        assert_eq!(fs::read(&target).unwrap(), b"the backup of before");
        assert!(!folder.path().join("copy.partial").exists());

        let report = Backup::begin(&pool, &target).unwrap().finish(()).unwrap();
        assert_eq!((report.bytes, report.delta), (pool.len(), 0));
        // A file that appears meanwhile stays.
        let other = folder.path().join("other");
        let backup = Backup::begin(&pool, &other).unwrap().replace(false);
        fs::write(&other, "of another process").unwrap();
        let outcome = backup.finish(());
        assert!(
            matches!(&outcome, Err(BackupError::Io { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists),
            "{outcome:?}"
        );
        assert_eq!(fs::read(&other).unwrap(), b"of another process");
        fs::remove_file(&other).unwrap();
        Backup::begin(&pool, &other).unwrap().replace(false).finish(()).unwrap();

        let whole = Backup::begin(&pool, pool.path());
        assert!(matches!(whole, Err(BackupError::Itself { .. })));
    }
}
