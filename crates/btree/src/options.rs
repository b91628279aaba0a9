//! Options for creating an index of pages, and the file of its pages.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmindex_buffer::{BufferError, BufferOptions};
use pmindex_core::{Durability, Medium, Pool};
use pmindex_index::IndexError;
use pmindex_wal::{Disk, FileDisk, SyncMethod};

/// The default bytes of the file for each byte of memory.
const FILE_PER_MEMORY: u64 = 16;
/// The minimum number of frames.
const LEAST_FRAMES: u64 = 32;

/// The sizes of a [`Paged`](crate::Paged) index, which are chosen when it is created.
#[derive(Clone, Debug, Default)]
pub struct PagedOptions {
    memory: Option<u64>,
    file_bytes: Option<u64>,
    page_bytes: Option<u64>,
    archive: Option<u64>,
}

impl PagedOptions {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the bytes of the pool for pages (default: a quarter of the pool's present size). The log takes up to
    /// a quarter of this in addition.
    #[must_use]
    pub fn memory(self, bytes: u64) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// Sets the greatest size of the file of pages in bytes (default: 16 times [`memory`](Self::memory)). The file
    /// is sparse: it takes room on the disk as it fills. For each page of this size the index takes 16 bytes of
    /// DRAM.
    #[must_use]
    pub fn file_bytes(self, bytes: u64) -> Self {
        Self { file_bytes: Some(bytes), ..self }
    }

    /// Sets the bytes of a page: 4, 8, 16, 32 or 64 KiB (default 4). A record takes at most a quarter of a page.
    #[must_use]
    pub fn page_bytes(self, bytes: u64) -> Self {
        Self { page_bytes: Some(bytes), ..self }
    }

    /// Keeps an archive of the map's log in a second file beside the file of pages, of at most this many bytes.
    /// From it, a page that rots in the file of pages is built again, when it is used next and by
    /// [`check`](pmindex_index::Index::check). The file is sparse; four times the bytes of the pages in use are
    /// enough. If it is full or fails, the map goes on without it.
    #[must_use]
    pub fn archive_bytes(self, bytes: u64) -> Self {
        Self { archive: Some(bytes), ..self }
    }

    /// Returns the bytes of the archive, if there is to be one: two blocks and a chunk at least.
    pub(crate) fn archive_size(&self) -> Option<u64> {
        let least = 8192 + 8 * self.page_bytes.unwrap_or(4096).max(4096);
        self.archive.map(|bytes| bytes.max(least))
    }

    /// Returns the options of the buffer in a pool, and the bytes of the file.
    pub(crate) fn sizes<M: Medium>(&self, pool: &Pool<M>) -> (BufferOptions, u64) {
        let page = self.page_bytes.unwrap_or(4096);
        let frames = self.memory.unwrap_or(pool.len() / 4) / page.max(1);
        let frames = frames.max(LEAST_FRAMES);
        let least = frames.saturating_mul(page);
        let bytes = self.file_bytes.unwrap_or(least.saturating_mul(FILE_PER_MEMORY));
        // Between two synchronisations of the disk, so many pages: in modes that wait for a disk at each fence, a
        // load waits for these most.
        let staging = (frames / 16).clamp(16, 256);
        let buffer = BufferOptions::new(frames).page_bytes(page).staging(staging);
        (buffer, bytes.max(4 * page) / page.max(1) * page)
    }
}

/// A file of pages, or an archive, locked while it is open.
#[derive(Debug)]
pub(crate) struct PagesFile {
    pub(crate) path: PathBuf,
    locked: File,
    /// The process that locked it.
    locked_by: u32,
}

impl Drop for PagesFile {
    fn drop(&mut self) {
        // Not in a forked child, whose parent still uses the file.
        if self.locked_by == std::process::id() {
            // A process that another thread is starting still has the descriptor for a moment: unlock now, not
            // when the last descriptor is closed. A failure leaves it to that.
            let _ = self.locked.unlock();
        }
    }
}

/// A file, and the disk that it is.
type Opened = (PagesFile, Arc<dyn Disk>);

/// Returns a new random identity.
pub(crate) fn new_identity() -> u64 {
    RandomState::new().build_hasher().finish() | 1
}

/// The ending of the name of a file of pages, and of an archive.
pub(crate) const PAGES: &str = "pages";
pub(crate) const ARCHIVE: &str = "archive";

/// Returns the name of the file with this identity and ending: in the folder of the pool, so that the pool can be
/// renamed. In mode `Periodic` it must not exist: after a power failure the twin restores the pool, to an earlier
/// moment than that of its pages, whose file was in memory too.
fn path_of<M: Medium>(pool: &Pool<M>, identity: u64, ending: &str) -> Result<PathBuf, IndexError> {
    if pool.durability() == Durability::Periodic {
        let what = "in mode periodic a power failure loses the pages of a paged map; use another mode, or another kind";
        return Err(IndexError::Pages { what: what.into() });
    }
    let pool = pool.path();
    let folder = pool.parent().filter(|_| pool.is_file());
    let what = || {
        format!("a paged map needs a pool in a regular file, and this one is {}", pool.display())
    };
    let folder = folder.ok_or_else(|| IndexError::Pages { what: what() })?;
    Ok(folder.join(format!("{identity:016x}.{ending}")))
}

fn failed<'p>(path: &'p Path, doing: &'static str) -> impl Fn(io::Error) -> IndexError + 'p {
    move |error| IndexError::Pages { what: format!("{}: {doing}: {error}", path.display()) }
}

/// Creates a file, which is sparse.
pub(crate) fn create_file<M: Medium>(
    pool: &Pool<M>,
    identity: u64,
    ending: &str,
    bytes: u64,
) -> Result<Opened, IndexError> {
    let path = path_of(pool, identity, ending)?;
    let make = || {
        let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        new.set_len(bytes)?;
        new.sync_all()?;
        // Durable before: the pool refers to it.
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    make().map_err(failed(&path, "creating the file"))?;
    open_path(path)
}

/// Opens the file of pages.
pub(crate) fn open_file<M: Medium>(pool: &Pool<M>, identity: u64) -> Result<Opened, IndexError> {
    open_path(path_of(pool, identity, PAGES)?)
}

/// Opens the archive, if there is one.
pub(crate) fn open_archive<M: Medium>(
    pool: &Pool<M>,
    identity: u64,
) -> Result<Option<Opened>, IndexError> {
    let path = path_of(pool, identity, ARCHIVE)?;
    if path.exists() { open_path(path).map(Some) } else { Ok(None) }
}

fn open_path(path: PathBuf) -> Result<Opened, IndexError> {
    let opened = File::open(&path).map_err(failed(&path, "opening the file"))?;
    opened.try_lock().map_err(|error| failed(&path, "locking the file")(error.into()))?;
    let disk = FileDisk::open(&path, SyncMethod::Sync);
    let disk = disk.map_err(failed(&path, "opening the file"))?;
    Ok((PagesFile { path, locked: opened, locked_by: std::process::id() }, Arc::new(disk)))
}

/// Returns an error of a buffer as one of an index.
pub(crate) fn from_buffer(error: BufferError) -> IndexError {
    match error {
        BufferError::Pool(error) => error.into(),
        other => IndexError::Pages { what: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that another thread is starting has the descriptors of its parent until it executes its program.
    #[test]
    fn a_file_is_unlocked_though_another_process_has_its_descriptor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.pages");
        std::fs::write(&path, [0; 4096]).unwrap();
        let first = open_path(path.clone()).unwrap();
        let Err(IndexError::Pages { what }) = open_path(path.clone()).map(drop) else { panic!() };
        assert!(what.contains("locking"), "{what}");
        let _same_description = first.0.locked.try_clone().unwrap();
        drop(first);
        drop(open_path(path).unwrap());
    }
}
