//! macOS and FreeBSD: ordinary files, with the calls that every Unix has. Only compiled, not tested.

use core::ptr::NonNull;
use std::io::Read;
use std::path::Path;

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, RawMode};
use rustix::io::Errno;
use rustix::mm::MapFlags;

use crate::region::Found;

use super::{InMemory, TMPFS};

/// The system gives no guarantee that a flushed line is durable.
pub(crate) const MAP_SYNC: Option<MapFlags> = None;

/// Address space needs no swap space anyway.
pub(crate) const NO_RESERVE: MapFlags = MapFlags::empty();

/// Not every system has such a flag.
pub(crate) const NO_REPLACE: Option<MapFlags> = None;

/// Does nothing: the system decides about huge pages.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn advise_huge(_: NonNull<u8>, _: usize) {}

/// Does nothing: a fork is not detected.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn wipe_on_fork(_: NonNull<u8>, _: usize) {}

/// Does nothing: the system decides about the size of pages.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn collapse(_: NonNull<u8>, _: usize) -> bool {
    false
}

/// Does nothing: the system decides when to drop pages.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn let_go(_: NonNull<u8>, _: usize) {}

/// Does nothing: the system's read-ahead makes no large pages.
pub(crate) fn read_ahead(_: BorrowedFd<'_>, _: u64) {}

/// Does nothing: the system has no priority of a thread alone.
pub(crate) fn be_nice(_: i32) {}

/// Returns 0: nothing is read ahead here.
pub(crate) fn free_memory() -> u64 {
    0
}

/// Does nothing: the system's read-ahead makes no large pages.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn advise_single_pages(_: NonNull<u8>, _: usize) {}

/// Does nothing: the system's advice need not make the pages read as zeros.
///
/// # Safety
/// None needed.
pub(crate) unsafe fn release(_: NonNull<u8>, _: usize) -> bool {
    false
}

/// Returns `None`: the system does not tell.
pub(crate) fn look_at(_: NonNull<u8>, _: usize) -> Option<Found> {
    None
}

/// Does nothing: pages become present when they are used.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn populate_read(_: NonNull<u8>, _: usize) {}

/// Does nothing: pages become present when they are used.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn populate(_: NonNull<u8>, _: usize) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// The processors of a thread, which the system chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processors;

impl Processors {
    /// Returns `None`: no caller needs it here.
    pub(crate) fn of_this_thread() -> Option<Self> {
        None
    }

    /// Does nothing.
    #[expect(clippy::unused_self, reason = "elsewhere there is work")]
    pub(crate) fn take(&self) {}
}

/// Returns the file system of a file, if it keeps its files in DRAM alone.
pub(crate) fn memory_file_system(fd: BorrowedFd<'_>) -> Option<InMemory> {
    let name = rustix::fs::fstatfs(fd).ok()?.f_fstypename;
    let tmpfs = TMPFS.name.bytes().chain([0]);
    let same = name.iter().zip(tmpfs).all(|(&found, wanted)| i32::from(found) == i32::from(wanted));
    same.then_some(TMPFS)
}

/// Converts permissions from their octal number.
pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode((bits & 0o7777) as RawMode)
}

/// Fails: the system has no files without a name.
pub(crate) fn create_unnamed(_: &Path, _: OFlags, _: Mode) -> Result<OwnedFd, Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Fails: the system has no files without a name.
pub(crate) fn name_unnamed(_: &OwnedFd, _: &Path) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Renames, never onto an existing file.
pub(crate) fn rename_new(from: &Path, to: &Path) -> Result<(), Errno> {
    super::link_and_unlink(from, to)
}

/// Makes a file or directory durable, in the drive too.
pub(crate) fn sync(file: BorrowedFd<'_>) -> Result<(), Errno> {
    // Some file systems do not support the stronger call. Every other failure is final: the weaker call might
    // not report it.
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

/// Nothing tells whether a write-back has failed, except a synchronisation, and there is no call for a part of a file.
#[derive(Debug)]
pub(crate) struct WriteBack;

impl WriteBack {
    pub(crate) fn of(_: BorrowedFd<'_>) -> Self {
        Self
    }

    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "elsewhere it can fail")]
    pub(crate) fn push(&self, _: core::ops::Range<u64>) -> Result<(), Errno> {
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "elsewhere it can fail")]
    pub(crate) fn check(&self) -> Result<(), Errno> {
        Ok(())
    }
}

/// Does nothing: see Linux's.
pub(crate) fn forget_cached(_: BorrowedFd<'_>) {}

/// Fills the bytes at random; returns whether it could.
pub(crate) fn random(bytes: &mut [u8; 16]) -> bool {
    let source = std::fs::File::open("/dev/urandom");
    source.and_then(|mut source| source.read_exact(bytes)).is_ok()
}

/// The cache of the drive below a file: `msync` writes pages to the drive, but does not flush its cache.
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
