//! Pools in files: create, open, grow.

use std::path::Path;
use std::sync::Arc;

#[cfg(test)]
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use crate::arch;
use crate::error::{DurabilityLost, OpenError, OpenFault, PmError};
use crate::media::{Cutter, Flushed, Journal, Mapped, Medium, Permit, Traced, Twin};
use crate::mode::{Durability, FlushInstruction};
use crate::region::{MapKind, Region};
use crate::trace::Space;

use super::Pool;
use super::create::PoolParts;
use super::describe::Origin;
use super::detect;
use super::file::{FileKind, PoolFile, is_full};
use super::journal;
use super::layout::SUPERBLOCKS;
use super::options::PoolOptions;
use super::superblock::{Found, Superblock, WORDS};
use super::sync::Synced;
use super::twin;

/// The address space reserved for a pool that may grow, unless the caller chooses.
const RESERVE: u64 = 64 << 30;

/// The file of a pool and how it is mapped.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) file: PoolFile,
    kind: MapKind,
    huge: bool,
    journal: Option<Arc<Journal>>,
    /// The twin that follows the pool.
    twin: Option<Arc<Twin>>,
    /// The locks of the journal, or of the old twin and the one in the making.
    locks: Vec<journal::Lock>,
    pub(super) synced: Synced,
}

impl Backing {
    /// Returns the descriptor of the file.
    #[cfg(test)]
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.fd()
    }

    /// Returns the journal that serves the fences.
    pub(super) fn journal(&self) -> Option<&Arc<Journal>> {
        self.journal.as_ref()
    }

    /// Returns the twin that follows the pool.
    pub(super) fn twin(&self) -> Option<&Arc<Twin>> {
        self.twin.as_ref()
    }

    /// Returns `true` if `path` leads to the pool's file, by any name.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        self.file.is_at(path)
    }

    /// Ends the locks; the mapping ends next.
    pub(super) fn ends(&mut self) {
        self.locks.iter().for_each(journal::Lock::end); // their threads have ended
    }

    /// Synchronises the whole file. No system call reaches a device's caches.
    #[track_caller]
    pub(super) fn sync_whole(&self) -> Result<(), Errno> {
        match self.file.kind {
            FileKind::Regular => self.file.sync(),
            FileKind::Device => Ok(()),
        }
    }

    /// Asks the kernel to read ahead what recovery reads from a disk.
    pub(super) fn read_ahead(&self, region: &Region) {
        self.file.read_ahead(region.len() as u64);
    }

    /// S0: makes durable what was left in the caches of a file that says that its pool was closed. The caches stay: if
    /// nothing was left there, this costs the synchronisation of the file and of its directory.
    pub(super) fn write_back_closed(&self, region: &Region) -> Result<(), PmError> {
        if self.file.kind == FileKind::Device {
            return Ok(()); // no other program can write to it
        }
        self.file.write_back().map_err(|e| {
            self.forget_cached(region);
            os("making what was left durable", e)
        })
    }

    /// Has later reads come from the medium: after a failed write-back the kernel takes pages for written that are
    /// not.
    fn forget_cached(&self, region: &Region) {
        region.let_go(self.kind);
        if self.kind == MapKind::Shared {
            self.file.forget_cached();
        }
    }

    /// S0: makes durable what a dead process stored and left in the caches.
    pub(super) fn write_back<M: Medium>(&self, pm: &M, region: &Region) -> Result<(), PmError> {
        match self.file.kind {
            FileKind::Regular => {
                self.file.write_back().map_err(|e| os("making what was left durable", e))?;
                self.forget_cached(region); // an earlier failure may not be reported to this process
            }
            FileKind::Device => {
                // No system call reaches these caches: flush line by line.
                let words = region.words(0, region.len() / 8).unwrap_or_default();
                pm.fence(pm.flush_words(words))?;
            }
        }
        Ok(())
    }
}

impl Pool<Mapped> {
    /// Creates a pool in a new file. When this returns, the pool is durable in its directory, if the medium
    /// is durable. A crash meanwhile leaves no file of that name.
    ///
    /// On a device-DAX device the pool takes the whole device, which is cleared first.
    ///
    /// # Errors
    /// [`OpenError`]: `AlreadyExists`, `NoDirectory`, `PermissionDenied`, `NoSpace`,
    /// `TooWeak`, `BadOption`, `Io`. No file is left behind.
    pub fn create(path: impl AsRef<Path>, opts: &PoolOptions) -> Result<Self, OpenError> {
        Self::create_with(path, opts, |mapped| mapped)
    }

    /// Opens the pool in an existing file, recovery included.
    ///
    /// If the last user died without closing it, but the system kept running, its unflushed stores are still
    /// in the caches, and would be read here as if they were durable. So the kernel is first asked to write
    /// them back (`fdatasync`: its work depends on the pages changed since the file was last synchronised;
    /// none after a restart), and the file's name, if its creation was interrupted. Then it is asked to drop
    /// the file's cached pages, since after a failed write-back it takes pages for written that are not, and
    /// only the medium is reliable. A device-DAX device has no such call: there every line of the pool is
    /// flushed.
    ///
    /// # Errors
    /// [`OpenError`]: a distinct one for each fault. The file stays as it was, or as a crash during the opening
    /// leaves it: the next opening recovers.
    pub fn open(path: impl AsRef<Path>, opts: &PoolOptions) -> Result<Self, OpenError> {
        Self::open_with(path, opts, |mapped| mapped)
    }

    /// Restores a pool in memory that is gone from its twin, as [`open`](Self::open) does, without opening it.
    /// Returns whether there is a twin. For tests.
    #[doc(hidden)]
    pub fn restore(path: impl AsRef<Path>, opts: &PoolOptions) -> Result<bool, OpenError> {
        Ok(twin::restore(path.as_ref(), opts)?.is_some())
    }

    /// Opens the pool, or creates it if there is no such file.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`create`](Self::create).
    pub fn open_or_create(path: impl AsRef<Path>, opts: &PoolOptions) -> Result<Self, OpenError> {
        let path = path.as_ref();
        match Self::open(path, opts) {
            Err(OpenError::NotFound { .. }) if !opts.read_only => match Self::create(path, opts) {
                // Another process has created it first.
                Err(OpenError::AlreadyExists { .. }) => Self::open(path, opts),
                other => other,
            },
            other => other,
        }
    }
}

impl<M: Medium> Pool<M> {
    /// As [`Pool::create`], on the medium that `wrap` makes of the mapping.
    pub fn create_with(
        path: impl AsRef<Path>,
        opts: &PoolOptions,
        wrap: impl FnOnce(Mapped) -> M,
    ) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let fault = |fault: OpenFault| fault.at(path);
        if opts.read_only {
            let (what, value) = ("mode to create a pool in", "read-only".into());
            return Err(fault(OpenFault::BadOption { what, value }));
        }
        let mut opts = opts.clone();
        opts.uuid.get_or_insert_with(detect::random_u128);
        let file = if PoolFile::is_device(path) {
            PoolFile::open(path, false)?
        } else {
            opts.created_size().map_err(|e| fault(e.into()))?; // before there is a file
            twin::check_absent(&opts)?;
            PoolFile::create(path, opts.mode)?
        };
        let (parts, mapped) = match file.kind {
            FileKind::Regular => new_file(file, &opts)?,
            FileKind::Device => whole_device(file, &mut opts)?,
        };
        Self::create_named(parts, wrap(mapped), &opts)
    }

    /// Makes a pool in a new file and then gives the file its name.
    fn create_named(parts: PoolParts, medium: M, opts: &PoolOptions) -> Result<Self, OpenError> {
        let path = parts.path.clone();
        let mut pool = Self::create_on(parts, medium, opts).map_err(|fault| fault.at(&path))?;
        let named = pool.backing.as_mut().map_or(Ok(()), |backing| backing.file.finish());
        let begun = named.and_then(|()| pool.begin_journal().map_err(|fault| fault.at(&path)));
        if let (Err(_), Some(backing)) = (&begun, &pool.backing) {
            backing.file.remove_name();
        }
        begun.map(|()| pool.complete_opening())
    }

    /// As [`Pool::open`], on the medium that `wrap` makes of the mapping.
    pub fn open_with(
        path: impl AsRef<Path>,
        opts: &PoolOptions,
        wrap: impl FnOnce(Mapped) -> M,
    ) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let (file, standing) = match PoolFile::open(path, opts.read_only) {
            Err(missing @ OpenError::NotFound { .. }) if !opts.read_only => {
                let Some(standing) = twin::restore(path, opts)? else { return Err(missing) };
                (PoolFile::open(path, false)?, Some(standing))
            }
            file => (file?, None),
        };
        let len = file.len().map_err(|e| file.error("asking for the file's length", e))?;
        let (size, found) = match file.kind {
            FileKind::Regular => {
                let mut found = check_head(&file, len)?;
                if !opts.read_only {
                    journal::heal(&file, &mut found, opts)?;
                }
                (found.superblock.size, Some(found))
            }
            FileKind::Device => (len, None),
        };
        let (parts, mapped) = prepare(file, size, found, standing, opts)?;
        Self::open_on(parts, wrap(mapped), opts).map_err(|fault| fault.at(path))
    }

    /// Starts the threads of the journal or of the twin, if the pool has one.
    pub(super) fn begin_journal(&self) -> Result<(), OpenFault> {
        match self.backing.as_ref().and_then(Backing::journal) {
            None => Ok(()),
            Some(journal) => journal.begin().map_err(|e| {
                let what = "starting the journal's thread";
                OpenFault::from(PmError::Os { what, source_text: e.to_string() })
            }),
        }?;
        let Some(twin) = self.backing.as_ref().and_then(Backing::twin) else { return Ok(()) };
        twin.begin().map_err(|e| {
            let what = "starting the threads of the twin";
            PmError::Os { what, source_text: e.to_string() }.into()
        })
    }

    /// G1: makes the first `len` bytes of the region usable.
    pub(super) fn extend_region(&self, len: u64) -> Result<(), PmError> {
        let Some(backing) = &self.backing else { return self.region.grow_memory(len as usize) };
        let old = self.len();
        backing.file.allocate(old, len).map_err(|e| match e {
            e if is_full(e) => PmError::NoSpace { wanted: len - old },
            e => os("allocating more of the file", e),
        })?;
        // A failure here may be that of writing back the old part.
        let synced =
            self.pm().sync_apart(&mut || Ok(backing.synced.note(|| backing.file.sync())?));
        synced.map_err(|e| match Errno::from_io_error(&e) {
            _ if self.pm().is_poisoned() => DurabilityLost.into(),
            Some(e) if is_full(e) => PmError::NoSpace { wanted: len - old },
            _ => PmError::Os { what: "synchronising the file", source_text: e.to_string() },
        })?;
        if let Some(twin) = &backing.twin {
            // Durable before: G2, and any record that names the new part.
            twin.grow(len).map_err(|e| match Errno::from_io_error(&e) {
                Some(e) if is_full(e) => PmError::NoSpace { wanted: len - old },
                _ => PmError::Os { what: "growing the twin", source_text: e.to_string() },
            })?;
        }
        let mapped = backing.file.map(&self.region, len as usize, backing.kind, backing.huge);
        mapped.map_err(|e| match e {
            // Another thread's fence has failed meanwhile, and the mapping is cut off.
            Errno::IO => DurabilityLost.into(),
            e => os("mapping more of the file", e),
        })
    }
}

impl Pool<Traced> {
    /// Creates a pool in the simulated file of a space: allocated, filled, synchronised and named like a real
    /// file. The space's last page is the file system's.
    #[inline] // compiled where it is called: programs neither simulate nor count
    pub fn create_traced_file(space: &Space, opts: &PoolOptions) -> Result<Self, OpenError> {
        let (file, opts) = (space.file(), space.options(opts));
        let file = PoolFile::create_simulated(file, Path::new(SIMULATED))?;
        let size = allocate_new(&file, &opts)?;
        Self::create_named(simulated(file, space, size), space.medium(), &opts)
    }

    /// Opens the pool in the simulated file of a space.
    #[inline] // compiled where it is called: programs neither simulate nor count
    pub fn open_traced_file(space: &Space, opts: &PoolOptions) -> Result<Self, OpenError> {
        let path = Path::new(SIMULATED);
        let file = PoolFile::open_simulated(space.file(), path)?;
        let size = check_head(&file, space.file().len())?.superblock.size;
        let parts = simulated(file, space, size);
        Self::open_on(parts, space.medium(), opts).map_err(|fault| fault.at(path))
    }
}

/// The name of a simulated file.
const SIMULATED: &str = "(simulated)";

fn simulated(file: PoolFile, space: &Space, size: u64) -> PoolParts {
    let region = space.file().region();
    region.shorten(to_usize(size));
    let parts = PoolParts::memory(region, true);
    let backing = Some(Backing {
        file,
        kind: MapKind::Shared,
        huge: false,
        journal: None,
        twin: None,
        locks: Vec::new(),
        synced: Synced::default(),
    });
    PoolParts { path: SIMULATED.into(), backing, ..parts }
}

/// Allocates a new file and maps it.
fn new_file(file: PoolFile, opts: &PoolOptions) -> Result<(PoolParts, Mapped), OpenError> {
    let size = allocate_new(&file, opts)?;
    prepare(file, size, None, None, opts)
}

/// Allocates a new file; returns its size.
fn allocate_new(file: &PoolFile, opts: &PoolOptions) -> Result<u64, OpenError> {
    let size = opts.created_size().map_err(|e| OpenFault::from(e).at(&file.path))?;
    file.allocate(0, size).map_err(|e| match e {
        e if is_full(e) => OpenError::NoSpace { path: file.path.clone(), wanted: size },
        e => file.error("allocating the file", e),
    })?;
    Ok(size)
}

/// Maps a device that holds no pool, clears it, and makes the pool as large as fits.
fn whole_device(file: PoolFile, opts: &mut PoolOptions) -> Result<(PoolParts, Mapped), OpenError> {
    let path = file.path.clone();
    let fault = |fault: OpenFault| fault.at(&path);
    let len = file.len().map_err(|e| file.error("asking for the device's size", e))?;
    opts.size = len;
    let shape = opts.shape();
    shape.check().map_err(|bad| fault(PmError::from(bad).into()))?;
    (opts.size, opts.zone_bytes) = (shape.fit(len), Some(shape.zone_bytes));
    (opts.slots, opts.slot_bytes) = (Some(shape.slots), Some(shape.slot_bytes));
    let (parts, mapped) = prepare(file, len, None, None, opts)?;
    match Superblock::read(&mapped, &parts.region) {
        Err(OpenFault::NotAPool) => {}
        _ => return Err(OpenError::AlreadyExists { path }),
    }
    // Durable before: anything of the new pool. A crash meanwhile leaves no pool, as before.
    let zeros = vec![0; 1 << 16];
    let words = parts.region.words(0, parts.region.len() / 8).unwrap_or_default();
    let mut cleared = Flushed::nothing();
    for part in words.chunks(zeros.len()) {
        cleared = cleared.and(mapped.stream_words(part, &zeros[..part.len()]));
    }
    mapped.fence(cleared).map_err(|lost| fault(lost.into()))?;
    Ok((parts, mapped))
}

/// Reads the superblock of the pool in a regular file of `len` bytes, and checks it against the file.
fn check_head(file: &PoolFile, len: u64) -> Result<Found, OpenError> {
    let mut head = [0u8; 8192];
    file.read_head(&mut head).map_err(|e| file.error("reading the superblock", e))?;
    choose(&head, len).map_err(|fault| fault.at(&file.path))
}

/// Chooses the superblock in the first bytes of a file of `len` bytes, and checks it against the file.
pub(super) fn choose(head: &[u8], len: u64) -> Result<Found, OpenFault> {
    let mut copies = [[0; WORDS]; 2];
    for (copy, offset) in copies.iter_mut().zip(SUPERBLOCKS) {
        for (word, bytes) in copy.iter_mut().zip(head[offset as usize..].as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
    }
    let found = Superblock::choose(&copies)?;
    let Superblock { size, shape, .. } = found.superblock;
    shape.geometry(size).map_err(|bad| OpenFault::Damaged { what: bad.what, offset: 0 })?;
    if size > len {
        return Err(OpenFault::Truncated { len, expected: size });
    }
    Ok(found)
}

/// Maps the first `size` bytes of a file, detects what it provides, and checks that this is enough. `found`
/// is the existing superblock, `standing` the twin that the file was restored from.
fn prepare(
    file: PoolFile,
    size: u64,
    found: Option<Found>,
    standing: Option<twin::ExistingTwin>,
    opts: &PoolOptions,
) -> Result<(PoolParts, Mapped), OpenError> {
    let path = file.path.clone();
    let fault = |fault: OpenFault| fault.at(&path);
    let may_grow = opts.grow && !opts.read_only && file.kind == FileKind::Regular;
    let room = opts.max_size.unwrap_or_else(|| size.saturating_mul(16).max(RESERVE));
    let capacity = if may_grow { room.max(size) } else { size };
    let region = Region::reserve(to_usize(capacity), to_usize(size))
        .map_err(|e| file.error("reserving addresses", e))?;
    let kind = map(&region, &file, size, opts).map_err(|e| file.error("mapping the file", e))?;
    // The kind that a writer would have: a private mapping tells nothing about the medium.
    let shared = if opts.read_only { shared_kind(&file, size) } else { kind };
    let medium = detect::medium_of(&file, shared, opts);
    if !opts.read_only && !medium.durability.satisfies(opts.require) {
        return Err(fault(OpenFault::TooWeak {
            required: opts.require,
            available: medium.durability,
            why: medium.why.into(),
        }));
    }
    check_twin(&medium, &path, opts)?;
    let instruction = opts.flush_instruction.unwrap_or_else(arch::best_flush);
    check_flush(instruction, opts).map_err(fault)?;
    let emulated = opts.emulate_pm && !medium.dax && !opts.read_only;
    let permit = Permit::new();
    let (mut journal, mut follower, mut locks) = (None, None, Vec::new());
    let (durability, mapped) = if opts.read_only {
        if let Some(found) = found.filter(|found| found.superblock.journal != 0) {
            journal::show(&file, &found, &region, opts)?;
        }
        // No store of this opening reaches the file.
        (Durability::Volatile, Mapped::private(instruction, permit))
    } else {
        let durability = if emulated { Durability::Flush } else { medium.durability };
        let mapped = Mapped::new(durability, instruction);
        let duplicated = |e| file.error("duplicating the file", e);
        if durability == Durability::Journal {
            let served = found.map_or((opts.uuid.unwrap_or_default(), 1), |found| {
                (found.superblock.uuid, found.superblock.generation.wrapping_add(1))
            });
            let (log, lock) = journal::make(&file, served, opts)?;
            locks.extend(lock);
            let cutter = cutter(&file, &region).map_err(duplicated)?;
            let made = journal::of(log, &file, cutter, permit).map_err(duplicated)?;
            journal = Some(Arc::clone(&made));
            (durability, mapped.with_journal(made))
        } else if durability == Durability::Periodic {
            let (made, held) = twin_of(&file, &region, found, standing, opts)?;
            locks = held;
            follower = Some(Arc::clone(&made));
            (durability, mapped.with_twin(made))
        } else {
            (durability, above(&file, &region, permit, mapped).map_err(duplicated)?)
        }
    };
    #[cfg(feature = "libpmem")]
    let mapped = if opts.libpmem {
        let pmem = pmindex_pmem_rs::Pmem::load();
        mapped.through(pmem.map_err(|e| {
            let (what, value) = ("way to persist", e.to_string());
            fault(OpenFault::BadOption { what, value })
        })?)
    } else {
        mapped
    };
    let parts = PoolParts {
        region,
        path,
        durability,
        emulated,
        dirty_shutdowns: detect::dirty_shutdowns(&medium),
        origin: Origin::File(medium),
        backing: Some(Backing {
            file,
            kind,
            huge: opts.huge_pages,
            journal,
            twin: follower,
            locks,
            synced: Synced::default(),
        }),
        permit,
    };
    Ok((parts, mapped))
}

/// Refuses an instruction that this CPU does not have.
fn check_flush(instruction: FlushInstruction, opts: &PoolOptions) -> Result<(), OpenFault> {
    let flushes = opts.emulate_pm || opts.flush_instruction.is_some();
    if flushes && !arch::has_flush(instruction) {
        let (what, value) = ("flush instruction on this CPU", instruction.to_string());
        return Err(OpenFault::BadOption { what, value });
    }
    Ok(())
}

/// Refuses a twin for a pool that cannot have one.
fn check_twin(medium: &detect::Medium, path: &Path, opts: &PoolOptions) -> Result<(), OpenError> {
    let Some(asked) = opts.twin.as_ref().filter(|_| !opts.read_only) else { return Ok(()) };
    if medium.durability != Durability::Periodic {
        return Err(twin::not_in_memory(path, asked));
    }
    if opts.emulate_pm {
        let (what, value) = ("medium for a pool with a twin", "emulated PM".into());
        return Err(OpenFault::BadOption { what, value }.at(path));
    }
    Ok(())
}

/// Makes the twin of the pool in a file whose superblock is `found`; `None` for a new pool.
fn twin_of(
    file: &PoolFile,
    region: &Region,
    found: Option<Found>,
    standing: Option<twin::ExistingTwin>,
    opts: &PoolOptions,
) -> Result<(Arc<Twin>, Vec<journal::Lock>), OpenError> {
    let standing = match (standing, &found, &opts.twin) {
        (None, Some(found), Some(asked)) => twin::look(&file.path, asked, found)?,
        (standing, ..) => standing,
    };
    let uuid = found.map_or(opts.uuid.unwrap_or_default(), |found| found.superblock.uuid);
    twin::of(file, region, uuid, standing, opts)
}

/// Returns how a writer would map the first `size` bytes of a file that is open for reading.
pub(super) fn shared_kind(file: &PoolFile, size: u64) -> MapKind {
    let synced = |fd| Region::probe(fd, to_usize(size), MapKind::Sync, false).is_ok();
    match file.fd() {
        Some(fd) if arch::has_flush(arch::best_flush()) && synced(fd) => MapKind::Sync,
        _ => MapKind::Shared,
    }
}

/// Returns the medium of a region that a file is mapped into.
fn above(
    file: &PoolFile,
    region: &Region,
    permit: Permit,
    mapped: Mapped,
) -> Result<Mapped, Errno> {
    match cutter(file, region) {
        Ok(cutter) => Ok(mapped.above(file.drive_cache()?, cutter, permit)),
        Err(Errno::BADF) => Ok(mapped), // no file
        Err(other) => Err(other),
    }
}

/// Returns the cutter of a region that a file is mapped into.
fn cutter(file: &PoolFile, region: &Region) -> Result<Cutter, Errno> {
    let (Some(fd), Some(mapping)) = (file.fd(), region.mapping()) else {
        return Err(Errno::BADF);
    };
    Ok(Cutter::new(Arc::clone(mapping), rustix::io::fcntl_dupfd_cloexec(fd, 0)?))
}

/// Maps the first `size` bytes in the best way the kernel grants.
fn map(region: &Region, file: &PoolFile, size: u64, opts: &PoolOptions) -> Result<MapKind, Errno> {
    let kinds: &[MapKind] = match file.kind {
        _ if opts.read_only => &[MapKind::Private],
        FileKind::Regular if arch::has_flush(arch::best_flush()) => {
            &[MapKind::Sync, MapKind::Shared]
        }
        FileKind::Regular | FileKind::Device => &[MapKind::Shared],
    };
    let mut refused = Errno::NODEV;
    for &kind in kinds {
        // A failed fixed mapping may leave a hole in the reservation: ask first.
        let Some(fd) = file.fd() else { break };
        match Region::probe(fd, to_usize(size), kind, true) {
            Ok(()) => {
                file.map(region, to_usize(size), kind, opts.huge_pages)?;
                return Ok(kind);
            }
            Err(e) => refused = e,
        }
    }
    Err(refused)
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn os(what: &'static str, error: Errno) -> PmError {
    PmError::Os { what, source_text: std::io::Error::from(error).to_string() }
}
