//! macOS and FreeBSD: ordinary files, with what every Unix has. Checked by the compiler alone.

use core::ptr::NonNull;
use std::io::Read;
use std::path::Path;

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, RawMode};
use rustix::io::Errno;
use rustix::mm::MapFlags;

use crate::region::Found;

use super::{InMemory, TMPFS};

/// The system does not say that a flushed line is durable.
pub(crate) const MAP_SYNC: Option<MapFlags> = None;

/// Addresses are had without swap space as it is.
pub(crate) const NO_RESERVE: MapFlags = MapFlags::empty();

/// There is no such flag on every system.
pub(crate) const NO_REPLACE: Option<MapFlags> = None;

/// Huge pages are the system's own affair.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn advise_huge(_: NonNull<u8>, _: usize) {}

/// A fork goes unnoticed.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn wipe_on_fork(_: NonNull<u8>, _: usize) {}

/// Pages are as large as they are.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn collapse(_: NonNull<u8>, _: usize) -> bool {
    false
}

/// Pages go when the system wants them.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn let_go(_: NonNull<u8>, _: usize) {}

/// Nobody makes large pages of what is read ahead.
pub(crate) fn read_ahead(_: BorrowedFd<'_>, _: u64) {}

/// Nobody asks.
pub(crate) fn free_memory() -> u64 {
    0
}

/// Nobody makes large pages of what is read ahead.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn advise_single_pages(_: NonNull<u8>, _: usize) {}

/// Not here: the advice need not make zeros of what was there.
///
/// # Safety
/// None needed.
pub(crate) unsafe fn release(_: NonNull<u8>, _: usize) -> bool {
    false
}

/// Nobody tells.
pub(crate) fn look_at(_: NonNull<u8>, _: usize) -> Option<Found> {
    None
}

/// Pages come when they are used.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn populate_read(_: NonNull<u8>, _: usize) {}

/// Pages come when they are used.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn populate(_: NonNull<u8>, _: usize) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Threads run where the system lets them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processors;

impl Processors {
    /// Nobody asks.
    pub(crate) fn of_this_thread() -> Option<Self> {
        None
    }

    /// Nothing to do.
    #[expect(clippy::unused_self, reason = "elsewhere there is work")]
    pub(crate) fn take(&self) {}
}

/// The file system of a file, if it keeps its files in DRAM alone.
pub(crate) fn memory_file_system(fd: BorrowedFd<'_>) -> Option<InMemory> {
    let name = rustix::fs::fstatfs(fd).ok()?.f_fstypename;
    let tmpfs = TMPFS.name.bytes().chain([0]);
    let same = name.iter().zip(tmpfs).all(|(&found, wanted)| i32::from(found) == i32::from(wanted));
    same.then_some(TMPFS)
}

/// Permissions from their octal number.
pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode((bits & 0o7777) as RawMode)
}

/// There are no files without a name.
pub(crate) fn create_unnamed(_: &Path, _: OFlags, _: Mode) -> Result<OwnedFd, Errno> {
    Err(Errno::OPNOTSUPP)
}

/// There are no files without a name.
pub(crate) fn name_unnamed(_: &OwnedFd, _: &Path) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Renames, never onto an existing file.
pub(crate) fn rename_new(from: &Path, to: &Path) -> Result<(), Errno> {
    super::link_and_unlink(from, to)
}

/// Makes a file or directory durable, in the drive too.
pub(crate) fn sync(file: BorrowedFd<'_>) -> Result<(), Errno> {
    // Some file systems have not got the stronger call. Any other failure is one: the weaker call
    // might not hear of it any more.
    #[cfg(target_vendor = "apple")]
    match rustix::fs::fcntl_fullfsync(file) {
        Err(Errno::NOTSUP | Errno::NOTTY | Errno::INVAL) => {}
        other => return other,
    }
    rustix::fs::fsync(file)
}

/// Makes a file's contents durable.
pub(crate) fn sync_data(file: BorrowedFd<'_>) -> Result<(), Errno> {
    sync(file)
}

/// Nothing: see Linux's.
pub(crate) fn forget_cached(_: BorrowedFd<'_>) {}

/// Fills the bytes at random; whether it could.
pub(crate) fn random(bytes: &mut [u8; 16]) -> bool {
    let source = std::fs::File::open("/dev/urandom");
    source.and_then(|mut source| source.read_exact(bytes)).is_ok()
}

/// The drive's cache below a file: `msync` writes pages to the drive, not through its cache.
#[derive(Debug)]
pub(crate) struct DriveCache {
    /// The file; none where nothing is behind the memory.
    file: Option<OwnedFd>,
}

impl DriveCache {
    pub(crate) fn none() -> Self {
        Self { file: None }
    }

    pub(crate) fn of(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        rustix::io::fcntl_dupfd_cloexec(file, 0).map(|file| Self { file: Some(file) })
    }

    pub(crate) fn flush(&self) -> Result<(), Errno> {
        use rustix::fd::AsFd;
        let Some(file) = &self.file else { return Ok(()) };
        loop {
            match sync(file.as_fd()) {
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }
}
