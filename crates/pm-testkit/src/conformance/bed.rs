//! Beds: the pools of a suite, and how they are opened again.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pmindex_core::trace::Space;
use pmindex_core::{Counts, Mapped, Medium, Pool, PoolOptions, Traced};

use super::verdict::{Failure, Verdict, Within};

/// Makes pools of some medium, and opens them again.
pub trait Bed: Sized + Sync + 'static {
    /// The medium of its pools.
    type Medium: Medium;

    /// Makes a bed with a fresh pool of `bytes`.
    fn new(bytes: u64) -> Verdict<Self>;

    /// As [`new`](Self::new), with room for this many operations of the allocator at once, if the bed
    /// supports that.
    fn with_slots(bytes: u64, slots: u64) -> Verdict<Self> {
        let _ = slots;
        Self::new(bytes)
    }

    /// Returns the pool.
    fn pool(&self) -> &Arc<Pool<Self::Medium>>;

    /// Ends the pool, by a clean shutdown or as if the process were killed, and opens it again, if the bed
    /// keeps its contents. No index of the pool may be open.
    fn cycle(&mut self, clean: bool) -> Verdict;

    /// Returns the counts of the medium so far, if the bed counts.
    fn counts(&self) -> Option<Counts> {
        None
    }
}

/// Pools in anonymous memory with every flush and fence executed. They live as long as the bed, so
/// [`Bed::cycle`] does nothing and only indexes are opened again.
#[derive(Debug)]
pub struct Emulated(Arc<Pool>);

impl Bed for Emulated {
    type Medium = Mapped;

    fn new(bytes: u64) -> Verdict<Self> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(Self(Arc::new(Pool::emulated(bytes)?)))
    }

    fn with_slots(bytes: u64, slots: u64) -> Verdict<Self> {
        let options = PoolOptions::new().size(bytes).slots(slots).grow(false).emulate_pm(true);
        Ok(Self(Arc::new(Pool::create_in_memory(&options, |mapped| mapped)?)))
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.0
    }

    fn cycle(&mut self, _clean: bool) -> Verdict {
        Ok(())
    }
}

/// As [`Emulated`], on the counting medium: the figures of an index are those of one that works.
#[derive(Debug)]
pub struct Counted(Arc<Pool>);

impl Bed for Counted {
    type Medium = Mapped;

    fn new(bytes: u64) -> Verdict<Self> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(Self(Arc::new(Pool::counting(bytes)?)))
    }

    fn counts(&self) -> Option<Counts> {
        Some(self.0.pm().counter().expect("it counts").counts())
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.0
    }

    fn cycle(&mut self, _clean: bool) -> Verdict {
        Ok(())
    }
}

/// The pool of a bed, which is gone only while [`Bed::cycle`] runs.
#[derive(Debug)]
struct Held<M: Medium>(Option<Arc<Pool<M>>>);

impl<M: Medium> Held<M> {
    fn new(pool: Pool<M>) -> Self {
        Self(Some(Arc::new(pool)))
    }

    fn get(&self) -> &Arc<Pool<M>> {
        self.0.as_ref().expect("a bed has a pool between its methods")
    }

    /// Ends the pool; every index of it was dropped, so no other handle may exist.
    fn end(&mut self, clean: bool) -> Verdict {
        let Some(pool) = self.0.take() else { return Ok(()) };
        let held = || Failure::new("something keeps the pool alive after its index was dropped");
        let pool = Arc::into_inner(pool).ok_or_else(held)?;
        if clean {
            pool.close().within("closing the pool")?;
        } else {
            pool.kill();
        }
        Ok(())
    }
}

/// Pools in files on tmpfs, which grow; they are closed or killed, and opened from the file.
#[derive(Debug)]
pub struct InFiles {
    pool: Held<Mapped>,
    directory: tempfile::TempDir,
}

/// A pool in a file starts small and grows.
const FILE_BYTES: u64 = 1 << 20;

impl InFiles {
    fn options(bytes: u64) -> PoolOptions {
        PoolOptions::new().size(bytes.min(FILE_BYTES)).write_back(false)
    }

    fn file(directory: &tempfile::TempDir) -> std::path::PathBuf {
        directory.path().join("pool")
    }
}

impl Bed for InFiles {
    type Medium = Mapped;

    fn new(bytes: u64) -> Verdict<Self> {
        let memory = Path::new("/dev/shm");
        let place = if fs::metadata(memory).is_ok() { memory.into() } else { std::env::temp_dir() };
        let directory = tempfile::tempdir_in(place)
            .map_err(|error| Failure::new(format!("no directory for pools: {error}")))?;
        let pool = Pool::create(Self::file(&directory), &Self::options(bytes))
            .map_err(|error| Failure::new(format!("creating a pool: {error}")))?;
        Ok(Self { pool: Held::new(pool), directory })
    }

    fn pool(&self) -> &Arc<Pool> {
        self.pool.get()
    }

    fn cycle(&mut self, clean: bool) -> Verdict {
        self.pool.end(clean)?;
        let opened = Pool::open(Self::file(&self.directory), &Self::options(FILE_BYTES));
        self.pool =
            Held::new(opened.map_err(|error| Failure::new(format!("opening the pool: {error}")))?);
        Ok(())
    }
}

/// Pools in files on a disk that fails on command of a test. (The files are in memory, where a write-back
/// costs nothing.)
#[derive(Debug)]
pub struct OnDisk {
    pool: Held<Mapped>,
    directory: tempfile::TempDir,
}

impl OnDisk {
    fn options() -> PoolOptions {
        PoolOptions::new().size(FILE_BYTES).zone_bytes(FILE_BYTES / 2).as_on_disk(true)
    }

    fn file(&self) -> std::path::PathBuf {
        self.directory.path().join("pool")
    }

    /// Lets `succeed` more write-backs succeed and the next one fail.
    pub(crate) fn fail_after(&self, succeed: u64) {
        self.pool().pm().fail_write_back_after(succeed);
    }

    /// Ends the pool and opens what a failed disk may hold: for each page the last version written back or
    /// the last one stored, as `mix` says.
    pub(crate) fn open_left(&mut self, mix: impl FnMut() -> bool) -> Verdict {
        let written = self.pool().pm().disk_image();
        self.pool.end(false)?;
        let left = Self::mixed(&self.file(), &written.unwrap_or_default(), mix);
        left.map_err(|error| Failure::new(format!("the file that is left: {error}")))?;
        self.open()
    }

    fn mixed(file: &Path, written: &[u64], mut mix: impl FnMut() -> bool) -> std::io::Result<()> {
        let mut bytes = fs::read(file)?;
        for (page, written) in bytes.chunks_mut(4096).zip(written.chunks(512)) {
            if mix() {
                let written = written.iter().flat_map(|word| word.to_le_bytes());
                page.iter_mut().zip(written).for_each(|(byte, written)| *byte = written);
            }
        }
        fs::write(file, bytes)
    }

    fn open(&mut self) -> Verdict {
        let opened = Pool::open(self.file(), &Self::options());
        let opened = opened.map_err(|error| Failure::new(format!("opening the pool: {error}")))?;
        self.pool = Held::new(opened);
        Ok(())
    }
}

impl Bed for OnDisk {
    type Medium = Mapped;

    fn new(_: u64) -> Verdict<Self> {
        let memory = Path::new("/dev/shm");
        let place = if fs::metadata(memory).is_ok() { memory.into() } else { std::env::temp_dir() };
        let directory = tempfile::tempdir_in(place)
            .map_err(|error| Failure::new(format!("no directory for pools: {error}")))?;
        let pool = Pool::create(directory.path().join("pool"), &Self::options())
            .map_err(|error| Failure::new(format!("creating a pool: {error}")))?;
        Ok(Self { pool: Held::new(pool), directory })
    }

    fn pool(&self) -> &Arc<Pool> {
        self.pool.get()
    }

    fn cycle(&mut self, clean: bool) -> Verdict {
        self.pool.end(clean)?;
        self.open()
    }
}

/// Pools in the crash simulator's memory, under its scheduler if a test asks for it.
#[derive(Debug)]
pub struct Simulated {
    // Dropped first: the pool uses the space.
    pool: Held<Traced>,
    space: Space,
    options: PoolOptions,
}

impl Simulated {
    /// Returns the simulated memory.
    #[must_use]
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Returns the options of a simulated pool that fills a space of `bytes`.
    pub(crate) fn options(bytes: u64) -> PoolOptions {
        PoolOptions::new().size(bytes).grow(false)
    }

    /// Returns the bytes of a space for [`options`](Self::options).
    pub(crate) fn space_bytes(bytes: u64) -> usize {
        let size = Self::options(bytes).created_size().unwrap_or(bytes);
        usize::try_from(size).unwrap_or(usize::MAX)
    }
}

impl Bed for Simulated {
    type Medium = Traced;

    fn new(bytes: u64) -> Verdict<Self> {
        let options = Self::options(bytes);
        let len = Self::space_bytes(bytes);
        let space = Space::new(len, len);
        let pool = Pool::create_traced(&space, &options)
            .map_err(|error| Failure::new(format!("creating a pool: {error}")))?;
        Ok(Self { pool: Held::new(pool), space, options })
    }

    fn pool(&self) -> &Arc<Pool<Traced>> {
        self.pool.get()
    }

    fn cycle(&mut self, clean: bool) -> Verdict {
        self.pool.end(clean)?;
        let opened = Pool::open_traced(&self.space, &self.options);
        self.pool =
            Held::new(opened.map_err(|error| Failure::new(format!("opening the pool: {error}")))?);
        Ok(())
    }
}
