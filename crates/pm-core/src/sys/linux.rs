//! Linux.

use core::ops::Range;
use core::ptr::NonNull;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::{Advice, MapFlags};
use rustix::rand::GetRandomFlags;
use rustix::thread::CpuSet;

use crate::region::Found;

use super::{InMemory, TMPFS};

const RAMFS: InMemory =
    InMemory { name: "ramfs", why: "ramfs keeps files in DRAM, which an OS crash loses" };
const HUGETLBFS: InMemory =
    InMemory { name: "hugetlbfs", why: "hugetlbfs keeps files in DRAM, which an OS crash loses" };

const OVERLAY_IN_MEMORY: InMemory = InMemory {
    name: "an overlay over tmpfs",
    why: "the overlay writes to a directory in DRAM, which an OS crash loses",
};
const VOLATILE: InMemory = InMemory {
    name: "a volatile overlay",
    why: "the overlay is mounted with the option `volatile`, and synchronises nothing",
};

/// Asks the kernel to guarantee that a flushed line of the mapping is durable.
pub(crate) const MAP_SYNC: Option<MapFlags> = Some(MapFlags::SHARED_VALIDATE.union(MapFlags::SYNC));

/// Reserves address space alone: no swap space for the mapping.
pub(crate) const NO_RESERVE: MapFlags = MapFlags::NORESERVE;

/// Maps at an address, or fails if something is mapped there.
pub(crate) const NO_REPLACE: Option<MapFlags> = Some(MapFlags::FIXED_NOREPLACE);

/// Asks for huge pages. A hint: systems without them refuse it.
///
/// # Safety
/// The range is mapped.
pub(crate) unsafe fn advise_huge(start: NonNull<u8>, len: usize) {
    // SAFETY: mapped by the caller's promise; the advice changes no contents.
    let _ = unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, Advice::LinuxHugepage) };
}

/// Makes the range read as zeros in a forked child. Some sandboxes refuse it: then a fork is not detected.
///
/// # Safety
/// The range is mapped, anonymous and private, and only this process relies on it.
pub(crate) unsafe fn wipe_on_fork(start: NonNull<u8>, len: usize) {
    // SAFETY: the caller's promise is what this advice demands.
    let _ = unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, Advice::LinuxWipeOnFork) };
}

/// Drops the pages of a shared mapping, which stays; the stores to them are in the file.
///
/// # Safety
/// The range is mapped, shared, from a file.
pub(crate) unsafe fn let_go(start: NonNull<u8>, len: usize) {
    // SAFETY: of a shared mapping of a file, by the caller's promise, this changes no contents.
    let _ = unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, Advice::LinuxDontNeed) };
}

/// Gives back the pages of an anonymous mapping, which stays and reads as zeros; returns whether it did.
///
/// # Safety
/// The range is whole pages of an anonymous private mapping. All accesses to it are atomic, and treat zeros
/// as if another thread had stored them.
pub(crate) unsafe fn release(start: NonNull<u8>, len: usize) -> bool {
    // SAFETY: the caller's promise: this stores zeros.
    unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, Advice::LinuxDontNeed) }.is_ok()
}

/// Drops the clean, unmapped pages of a file from the page cache: later reads come from the medium.
pub(crate) fn forget_cached(file: BorrowedFd<'_>) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}

/// Reads the start of a file into memory, in pages of the usual size and without waiting for the end. (The
/// kernel's own read-ahead makes large pages.)
pub(crate) fn read_ahead(file: BorrowedFd<'_>, len: u64) {
    const STEP: u64 = 1 << 20; // a call for more may be cut short
    for at in (0..len).step_by(STEP as usize) {
        let step = core::num::NonZero::new(STEP.min(len - at));
        let _ = rustix::fs::fadvise(file, at, step, rustix::fs::Advice::WillNeed);
    }
}

/// Lowers the priority of this thread by `by`, in the scale of `nice`. If the system refuses, the thread only
/// competes more with others.
pub(crate) fn be_nice(by: i32) {
    // Of this thread alone: Linux has a priority for each.
    let _ = rustix::process::getpriority_process(None)
        .and_then(|now| rustix::process::setpriority_process(None, (now + by).min(19)));
}

/// Returns the bytes of memory that are free or hold copies of files.
pub(crate) fn free_memory() -> u64 {
    let known = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = known.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Makes a mapping of a file read page by page, as pages are used. The kernel's read-ahead makes large pages,
/// and a write-back of one changed word writes the whole page.
///
/// # Safety
/// The range is mapped.
pub(crate) unsafe fn advise_single_pages(start: NonNull<u8>, len: usize) {
    // SAFETY: mapped by the caller's promise; the advice changes no contents.
    let _ = unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, Advice::Random) };
}

/// Makes pages present and writable (Linux 5.14).
///
/// # Safety
/// The range is mapped.
pub(crate) unsafe fn populate(start: NonNull<u8>, len: usize) -> Result<(), Errno> {
    // SAFETY: mapped by the caller's promise; the advice changes no contents.
    unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, Advice::LinuxPopulateWrite) }
}

/// Makes pages present for reading (Linux 5.14), if it can.
///
/// # Safety
/// The range is mapped.
pub(crate) unsafe fn populate_read(start: NonNull<u8>, len: usize) {
    // SAFETY: mapped by the caller's promise; the advice changes no contents.
    let _ = unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, Advice::LinuxPopulateRead) };
}

unsafe extern "C" {
    /// Calls the C library's function, which also takes newer advice that rustix does not name.
    fn madvise(
        start: *mut core::ffi::c_void,
        len: usize,
        advice: core::ffi::c_int,
    ) -> core::ffi::c_int;
}

/// `MADV_COLLAPSE` in the kernel's `mman-common.h`.
const COLLAPSE: core::ffi::c_int = 25;

/// Makes one huge page of the pages in the range (Linux 6.1); returns whether it did.
///
/// # Safety
/// The range is mapped.
pub(crate) unsafe fn collapse(start: NonNull<u8>, len: usize) -> bool {
    // SAFETY: mapped by the caller's promise; the advice changes no contents.
    unsafe { madvise(start.as_ptr().cast(), len, COLLAPSE) == 0 }
}

/// `struct pm_scan_arg` of the kernel's `fs.h`.
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    report: u64,
}

/// `PAGEMAP_SCAN`.
const SCAN: Opcode = opcode::read_write::<Scan>(b'f', 16);
const IS_PRESENT: u64 = 1 << 3;
const IS_HUGE: u64 = 1 << 6;

/// Returns the kind of a range's pages (Linux 6.7); `None` if the kernel does not tell.
pub(crate) fn look_at(start: NonNull<u8>, len: usize) -> Option<Found> {
    let pages = std::fs::File::open("/proc/self/pagemap").ok()?;
    let start = start.addr().get() as u64;
    let end = start + len as u64;
    // `struct page_region`: start, end, kind. Adjacent pages of the same kind are one region.
    let mut region = [0u64; 3];
    let mut scan = Scan {
        size: size_of::<Scan>() as u64,
        flags: 0,
        start,
        end,
        walk_end: 0,
        regions: (&raw mut region).expose_provenance() as u64,
        regions_len: 1,
        max_pages: 0,
        inverted: 0,
        all_of: IS_PRESENT,
        any_of: 0,
        report: IS_PRESENT | IS_HUGE,
    };
    // SAFETY: the call has this number and takes this structure.
    let call = unsafe { Updater::<SCAN, Scan>::new(&mut scan) };
    // SAFETY: it reads page tables, and writes the structure and the one region that it names.
    unsafe { ioctl(&pages, call) }.ok()?;
    Some(match region {
        [from, to, is] if (from, to) != (start, end) || is & IS_PRESENT == 0 => Found::Other,
        [.., is] if is & IS_HUGE == 0 => Found::Small,
        _ => Found::Huge,
    })
}

/// The processors that a thread may run on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processors(CpuSet);

impl Processors {
    /// Returns the processors of the calling thread, if the system tells.
    pub(crate) fn of_this_thread() -> Option<Self> {
        rustix::thread::sched_getaffinity(None).ok().map(Self)
    }

    /// Lets the calling thread run on these processors. A hint: sandboxes refuse it.
    pub(crate) fn take(&self) {
        let _ = rustix::thread::sched_setaffinity(None, &self.0);
    }
}

/// Returns the file system of a file, if it keeps its files in DRAM alone.
pub(crate) fn memory_file_system(fd: BorrowedFd<'_>) -> Option<InMemory> {
    match magic_of(&rustix::fs::fstatfs(fd).ok()?) {
        OVERLAY => overlay_in_memory(fd),
        magic => in_memory(magic),
    }
}

const OVERLAY: u64 = 0x794c_7630;

fn magic_of(found: &rustix::fs::StatFs) -> u64 {
    found.f_type.cast_unsigned() & 0xffff_ffff
}

fn in_memory(magic: u64) -> Option<InMemory> {
    match magic {
        0x0102_1994 => Some(TMPFS),
        0x8584_58f6 => Some(RAMFS),
        0x9584_58f6 => Some(HUGETLBFS),
        _ => None,
    }
}

/// Returns what an overlay is, if what it writes is in DRAM alone or is never synchronised. In a container the directory
/// that it writes to usually has no name; then it is taken for one on a disk, where synchronising is what counts.
fn overlay_in_memory(fd: BorrowedFd<'_>) -> Option<InMemory> {
    let facts = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let mount = facts.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let options = overlay_options(&mounts, mount)?;
    let mut options = options.split(',');
    if options.clone().any(|option| option == "volatile" || option == "fsync=volatile") {
        return Some(VOLATILE);
    }
    let upper = options.find_map(|option| option.strip_prefix("upperdir="))?;
    in_memory(magic_of(&rustix::fs::statfs(upper).ok()?)).map(|_| OVERLAY_IN_MEMORY)
}

/// Returns the options of the overlay with this number in the text of `mountinfo`.
fn overlay_options<'m>(mounts: &'m str, mount: &str) -> Option<&'m str> {
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(mount))?;
    let (_, of_kind) = line.split_once(" - ")?;
    of_kind.strip_prefix("overlay ")?.split(' ').nth(1)
}

/// Converts permissions from their octal number.
pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}

/// Creates a file without a name in a directory; `OPNOTSUPP`, `ISDIR` or `INVAL` if that is not supported.
pub(crate) fn create_unnamed(
    directory: &Path,
    access: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    rustix::fs::open(directory, OFlags::TMPFILE | access, mode)
}

/// Gives a file without a name its name, which must be new.
pub(crate) fn name_unnamed(file: &OwnedFd, path: &Path) -> Result<(), Errno> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, own, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

/// Renames, never onto an existing file.
pub(crate) fn rename_new(from: &Path, to: &Path) -> Result<(), Errno> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => super::link_and_unlink(from, to),
        other => other,
    }
}

/// Makes a file or directory durable, its length and links included.
pub(crate) fn sync(file: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::fs::fsync(file)
}

/// Makes a file's contents durable.
pub(crate) fn sync_data(file: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::fs::fdatasync(file)
}

unsafe extern "C" {
    /// Calls the C library's function, which rustix does not have. It takes no addresses.
    safe fn sync_file_range(
        file: core::ffi::c_int,
        offset: i64,
        len: i64,
        flags: core::ffi::c_uint,
    ) -> core::ffi::c_int;
}

/// `SYNC_FILE_RANGE_WAIT_BEFORE`, `_WRITE` and `_WAIT_AFTER` of the kernel's `fs.h`.
const WAIT_BEFORE: core::ffi::c_uint = 1;
const WRITE: core::ffi::c_uint = 2;
const WAIT_AFTER: core::ffi::c_uint = 4;

/// Calls `sync_file_range`, which fails if the kernel has failed to write changed pages back, with any error of a disk.
fn range(file: BorrowedFd<'_>, bytes: Range<u64>, how: core::ffi::c_uint) -> Result<(), Errno> {
    let (start, len) = (bytes.start.cast_signed(), (bytes.end - bytes.start).cast_signed());
    match sync_file_range(file.as_raw_fd(), start, len, how) {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Writes changed pages of a file back, and tells whether the kernel has failed to. It writes them by itself at any time,
/// takes them for written when that fails, and may read them again from the disk, as they were before.
///
/// The file is opened twice more for this: each opening is told once of a failure, so those who push, who ask, and who
/// synchronise the file have one each. Nothing is done and told without `/proc`, or if the system has no such call.
#[derive(Debug)]
pub(crate) struct WriteBack {
    pushing: Option<OwnedFd>,
    asking: Option<OwnedFd>,
}

impl WriteBack {
    pub(crate) fn of(file: BorrowedFd<'_>) -> Self {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let open =
            || rustix::fs::open(&*path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        let this = Self { pushing: open(), asking: open() };
        // A new opening is told of no failure before it: the call does not work here.
        if this.check().is_err() { Self { pushing: None, asking: None } } else { this }
    }

    /// Waits until the disk has taken the changed pages of these bytes. They are not durable before the file is
    /// synchronised, which has less left to do then.
    pub(crate) fn push(&self, bytes: Range<u64>) -> Result<(), Errno> {
        let Some(file) = &self.pushing else { return Ok(()) };
        range(file.as_fd(), bytes, WAIT_BEFORE | WRITE | WAIT_AFTER)
    }

    /// Fails if a write-back has failed since the last call, or the opening.
    ///
    /// # Cost
    /// A system call, which waits for nothing: it asks for pages behind the end of any file.
    pub(crate) fn check(&self) -> Result<(), Errno> {
        const BEHIND: u64 = 1 << 60;
        let Some(file) = &self.asking else { return Ok(()) };
        range(file.as_fd(), BEHIND..BEHIND + 1, WAIT_BEFORE)
    }
}

/// Fills the bytes at random; returns whether it could.
pub(crate) fn random(bytes: &mut [u8; 16]) -> bool {
    rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::empty()) == Ok(16)
}

/// The cache of the drive below a file: Linux's `msync` flushes it too, so this does nothing.
#[derive(Debug)]
pub(crate) struct DriveCache;

impl DriveCache {
    pub(crate) fn none() -> Self {
        Self
    }

    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
    pub(crate) fn of(_: BorrowedFd<'_>) -> Result<Self, Errno> {
        Ok(Self)
    }

    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "elsewhere there is work")]
    pub(crate) fn flush(&self) -> Result<(), Errno> {
        Ok(())
    }
}
