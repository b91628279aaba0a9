//! The file behind a pool: opening, locking, allocating, synchronising.
//!
//! Decisions:
//!
//! * **Symbolic links** are followed when a pool is opened (a link from a data directory to a PM mount is
//!   common) and never when one is created: an existing link is `AlreadyExists`, dangling or not.
//! * **Ownership** is left to the file system: a user who may open the file may use the pool. New files get
//!   mode 0600.
//! * **Creation** happens in a file without a name (`O_TMPFILE`), which gets its name when the pool in it is
//!   complete and durable: a crash leaves no partial pool behind, and two creators cannot write to one file.
//!   Where the file system does not support that, the file has a hidden name meanwhile.
//! * **The lock** is `flock`, exclusive for writers, shared for readers. It belongs to the open file: a
//!   second opener in the same process is refused too. Closing the pool unlocks it, even if other processes
//!   have the descriptor. If the process dies, a child that it forked keeps the lock until the child ends or
//!   executes another program.

use core::ops::Range;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::error::OpenError;
use crate::media::traced;
use crate::newfile::{Temporary, create_hidden, folder_of, sweep};
use crate::process::Process;
use crate::region::{MapKind, Region};
use crate::sys::{self, DriveCache};

#[cfg(test)]
use super::journal::simulated;

/// The kind of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    Regular,
    /// A device-DAX device: memory of fixed size.
    Device,
}

/// The open file.
#[derive(Debug)]
enum Handle {
    Os(OwnedFd),
    /// In the crash simulator.
    Simulated(traced::File),
}

/// An open, locked file.
#[derive(Debug)]
pub(super) struct PoolFile {
    handle: Handle,
    pub(super) kind: FileKind,
    pub(super) path: PathBuf,
    /// The file's temporary name, if it has one.
    temporary: Option<Temporary>,
    /// The process that locked the file: when the pool ends there, the lock ends, even if other processes
    /// have the descriptor.
    locked_by: Option<Process>,
}

impl PoolFile {
    /// Opens an existing file and locks it.
    pub(super) fn open(path: &Path, read_only: bool) -> Result<Self, OpenError> {
        loop {
            let mut file = Self::open_unlocked(path, read_only)?;
            file.lock(read_only)?;
            if file.has_its_name()? {
                return Ok(file);
            }
        }
    }

    /// Returns `false` if the path names another file since this one was opened: what is written to this one
    /// would be lost.
    pub(super) fn has_its_name(&self) -> Result<bool, OpenError> {
        let Handle::Os(fd) = &self.handle else { return Ok(true) };
        let own = rustix::fs::fstat(fd).map_err(|e| self.error("inspecting the file", e))?;
        let named = match rustix::fs::stat(&self.path) {
            Ok(named) => named,
            Err(Errno::NOENT) => return Ok(false),
            Err(e) => return Err(self.error("inspecting the file", e)),
        };
        Ok((own.st_dev, own.st_ino) == (named.st_dev, named.st_ino))
    }

    /// Opens an existing file, even if it is locked.
    pub(super) fn open_unlocked(path: &Path, read_only: bool) -> Result<Self, OpenError> {
        let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
        // NONBLOCK: opening a FIFO must not wait for its other end.
        let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| match e {
            Errno::ISDIR => OpenError::NotAFile { path: path.into(), found: "a directory" },
            Errno::NXIO => OpenError::NotAFile { path: path.into(), found: "a socket or FIFO" },
            e => io_error(path, "opening the file", e),
        })?;
        let stat = rustix::fs::fstat(&fd).map_err(|e| io_error(path, "inspecting the file", e))?;
        let kind =
            kind_of(&stat).map_err(|found| OpenError::NotAFile { path: path.into(), found })?;
        Ok(Self {
            handle: Handle::Os(fd),
            kind,
            path: path.into(),
            temporary: None,
            locked_by: None,
        })
    }

    /// Opens the file of the crash simulator.
    pub(super) fn open_simulated(file: traced::File, path: &Path) -> Result<Self, OpenError> {
        if !file.is_named() {
            return Err(OpenError::NotFound { path: path.into() });
        }
        Ok(Self::simulated(file, path))
    }

    /// Makes the file of the crash simulator, without a name.
    pub(super) fn create_simulated(file: traced::File, path: &Path) -> Result<Self, OpenError> {
        if file.is_named() {
            return Err(OpenError::AlreadyExists { path: path.into() });
        }
        Ok(Self::simulated(file, path))
    }

    fn simulated(file: traced::File, path: &Path) -> Self {
        let (handle, kind) = (Handle::Simulated(file), FileKind::Regular);
        Self { handle, kind, path: path.into(), temporary: None, locked_by: None }
    }

    /// Returns `true` if `path` names a device-DAX device.
    pub(super) fn is_device(path: &Path) -> bool {
        rustix::fs::stat(path).is_ok_and(|stat| kind_of(&stat) == Ok(FileKind::Device))
    }

    /// Creates a file for a pool that is to be at `path`; [`finish`](Self::finish) gives it that name.
    pub(super) fn create(path: &Path, mode: u32) -> Result<Self, OpenError> {
        if rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(OpenError::AlreadyExists { path: path.into() });
        }
        sweep(path);
        let mode = sys::mode(mode);
        let access = OFlags::RDWR | OFlags::CLOEXEC;
        let (fd, temporary) = match sys::create_unnamed(folder_of(path), access, mode) {
            Ok(fd) => (fd, None),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let (fd, temporary) = create_hidden(path, access, mode).map_err(|e| {
                    let directory =
                        || OpenError::NotAFile { path: path.into(), found: "a directory" };
                    let failed = |e| io_error(path, "creating the file", e);
                    Errno::from_io_error(&e).map_or_else(directory, failed)
                })?;
                (fd, Some(temporary))
            }
            Err(Errno::NOENT) => {
                let directory = folder_of(path).to_path_buf();
                return Err(OpenError::NoDirectory { path: path.into(), directory });
            }
            Err(e) => return Err(io_error(path, "creating the file in its directory", e)),
        };
        let (handle, kind) = (Handle::Os(fd), FileKind::Regular);
        let mut file = Self { handle, kind, path: path.into(), temporary, locked_by: None };
        file.lock(false)?;
        Ok(file)
    }

    fn lock(&mut self, shared: bool) -> Result<(), OpenError> {
        let how = if shared {
            FlockOperation::NonBlockingLockShared
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        let Handle::Os(fd) = &self.handle else { return Ok(()) };
        rustix::fs::flock(fd, how).map_err(|e| match e {
            Errno::WOULDBLOCK => OpenError::Locked { path: self.path.clone() },
            e => self.error("locking the file", e),
        })?;
        self.locked_by = Some(Process::current());
        Ok(())
    }

    /// Gives a new file its name, durably. A device has its name.
    ///
    /// The file is synchronised twice. btrfs logs nothing of a file that has no name yet, and would show an
    /// empty file after a crash; on other file systems the name may be durable at once, so the contents must
    /// be durable before.
    pub(super) fn finish(&mut self) -> Result<(), OpenError> {
        if self.kind == FileKind::Device {
            return Ok(());
        }
        self.sync().map_err(|e| self.error("synchronising the new file", e))?;
        // durable before: the name
        let named = match (&self.handle, &self.temporary) {
            (Handle::Simulated(file), _) => {
                file.link();
                Ok(())
            }
            (Handle::Os(fd), None) => sys::name_unnamed(fd, &self.path),
            (Handle::Os(_), Some(temporary)) => sys::rename_new(temporary.name(), &self.path),
        };
        named.map_err(|e| self.error("naming the new file", e))?;
        if let Some(temporary) = self.temporary.take() {
            temporary.end();
        }
        // durable before: the directory
        self.sync().map_err(|e| self.error("synchronising the new file", e))?;
        self.sync_directory().map_err(|e| self.error("synchronising the directory", e))
    }

    /// Takes its name from a file that [has just got it](Self::finish), if it has: the creation failed. The lock keeps
    /// other processes from using it.
    pub(super) fn remove_name(&self) {
        if self.kind == FileKind::Regular && self.is_at(&self.path) {
            let _ = rustix::fs::unlink(&self.path); // a crash here would leave a pool as well: an empty one
        }
    }

    /// Makes the file's name durable.
    #[track_caller]
    fn sync_directory(&self) -> Result<(), Errno> {
        if let Handle::Simulated(file) = &self.handle {
            file.sync_directory();
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(folder_of(&self.path), flags, Mode::empty())?;
        retry(|| sys::sync(directory.as_fd()))
    }

    /// Returns `true` if `path` leads to this file, by any name.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let Handle::Os(fd) = &self.handle else { return false };
        match (rustix::fs::fstat(fd), rustix::fs::stat(path)) {
            (Ok(own), Ok(other)) => (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino),
            _ => false,
        }
    }

    /// Returns the bytes of the file or device.
    pub(super) fn len(&self) -> Result<u64, Errno> {
        let fd = match &self.handle {
            Handle::Os(fd) => fd,
            Handle::Simulated(file) => return Ok(file.len()),
        };
        let stat = rustix::fs::fstat(fd)?;
        match self.kind {
            FileKind::Regular => Ok(u64::try_from(stat.st_size).unwrap_or(0)),
            FileKind::Device => super::detect::device_size(stat.st_rdev).ok_or(Errno::NXIO),
        }
    }

    /// Makes the file exactly `len` bytes long, with blocks allocated for all of it, and zeros beyond `keep`.
    /// Not durable before the file is synchronised. A device keeps its length.
    pub(super) fn allocate(&self, keep: u64, len: u64) -> Result<(), Errno> {
        if self.kind == FileKind::Device {
            return Ok(());
        }
        if self.len()? > keep {
            self.truncate(keep)?; // remove what an interrupted growth left
        }
        match &self.handle {
            Handle::Simulated(file) if file.set_len(len) => {}
            Handle::Simulated(_) => return Err(Errno::NOSPC),
            Handle::Os(fd) => {
                let none = FallocateFlags::empty();
                match retry(|| rustix::fs::fallocate(fd, none, keep, len - keep)) {
                    Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(fd, keep, len)?,
                    other => other?,
                }
            }
        }
        Ok(())
    }

    /// Makes a hole of whole blocks; returns by how many bytes the file shrank on the device.
    pub(super) fn punch(&self, offset: u64, len: u64) -> u64 {
        let (Handle::Os(fd), FileKind::Regular) = (&self.handle, self.kind) else { return 0 };
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let before = self.blocks();
        match retry(|| rustix::fs::fallocate(fd, how, offset, len)) {
            Ok(()) => before.unwrap_or(0).saturating_sub(self.blocks().unwrap_or(0)),
            Err(_) => 0,
        }
    }

    /// Allocates blocks for bytes of the file that have none.
    pub(super) fn fill(&self, offset: u64, len: u64) -> Result<(), Errno> {
        match (&self.handle, self.kind) {
            (Handle::Os(fd), FileKind::Regular) => {
                retry(|| rustix::fs::fallocate(fd, FallocateFlags::empty(), offset, len))
            }
            _ => Ok(()),
        }
    }

    /// Returns `true` if the file's blocks have fewer bytes than the file is long.
    pub(super) fn may_have_holes(&self) -> bool {
        self.kind == FileKind::Regular
            && self.blocks().is_some_and(|blocks| self.len().is_ok_and(|len| blocks < len))
    }

    /// Returns the parts of its first `len` bytes that may be other than zero: holes, and blocks that were
    /// never written, are left out where the system tells them.
    pub(super) fn data(&self, len: u64) -> Vec<Range<u64>> {
        let (mut parts, mut at) = (Vec::new(), 0);
        while at < len {
            let Handle::Os(fd) = &self.handle else { break };
            let start = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => return parts, // nothing behind
                Err(_) => break,
            };
            let Ok(end) = rustix::fs::seek(fd, SeekFrom::Hole(start)) else { break };
            if start < at || end <= start {
                break;
            }
            parts.push(start..end.min(len));
            at = end;
        }
        if at < len {
            parts.push(at..len);
        }
        parts
    }

    /// Returns the bytes of its blocks.
    fn blocks(&self) -> Option<u64> {
        let Handle::Os(fd) = &self.handle else { return None };
        Some(u64::try_from(rustix::fs::fstat(fd).ok()?.st_blocks).ok()? * 512)
    }

    fn truncate(&self, len: u64) -> Result<(), Errno> {
        match &self.handle {
            Handle::Os(fd) => retry(|| rustix::fs::ftruncate(fd, len)),
            Handle::Simulated(file) if file.set_len(len) => Ok(()),
            Handle::Simulated(_) => Err(Errno::NOSPC),
        }
    }

    /// Makes contents and length durable.
    #[track_caller]
    pub(super) fn sync(&self) -> Result<(), Errno> {
        match &self.handle {
            #[cfg(test)]
            Handle::Os(fd) => simulated::sync(|| retry(|| sys::sync(fd.as_fd()))),
            #[cfg(not(test))]
            Handle::Os(fd) => retry(|| sys::sync(fd.as_fd())),
            Handle::Simulated(file) => {
                file.sync();
                Ok(())
            }
        }
    }

    /// Makes durable what a dead process left in the caches: its stores, and the name, if it died while
    /// naming the file.
    pub(super) fn write_back(&self) -> Result<(), Errno> {
        match &self.handle {
            #[cfg(test)]
            Handle::Os(fd) => simulated::sync(|| retry(|| sys::sync_data(fd.as_fd())))?,
            #[cfg(not(test))]
            Handle::Os(fd) => retry(|| sys::sync_data(fd.as_fd()))?,
            Handle::Simulated(file) => file.sync(),
        }
        match self.sync_directory() {
            // A process that may not read the directory did not create the file, and cannot find out who did.
            Err(Errno::ACCESS | Errno::PERM) => Ok(()),
            other => other,
        }
    }

    /// Asks the kernel to read ahead the first `len` bytes of the file, if they may take that much memory.
    pub(super) fn read_ahead(&self, len: u64) {
        if let Handle::Os(fd) = &self.handle
            && self.kind == FileKind::Regular
            && len <= sys::free_memory() / 2
        {
            sys::read_ahead(fd.as_fd(), len);
        }
    }

    /// Drops the file's clean pages from the page cache, so that later reads come from the medium.
    pub(super) fn forget_cached(&self) {
        if let Handle::Os(fd) = &self.handle {
            sys::forget_cached(fd.as_fd());
        }
    }

    /// Reads bytes from the start of the file; returns fewer if it is shorter.
    pub(super) fn read_head(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let fd = match &self.handle {
            Handle::Os(fd) => fd,
            Handle::Simulated(file) => {
                let words = file.head(buffer.len() / 8);
                for (bytes, word) in buffer.chunks_mut(8).zip(&words) {
                    bytes.copy_from_slice(&word.to_le_bytes());
                }
                return Ok(8 * words.len());
            }
        };
        let mut done = 0;
        while done < buffer.len() {
            match retry(|| rustix::io::pread(fd, &mut buffer[done..], done as u64))? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }

    /// Writes bytes at an offset of the file.
    pub(super) fn write_at(&self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        let fd = self.fd().ok_or(Errno::BADF)?;
        let mut done = 0;
        while done < bytes.len() {
            match retry(|| rustix::io::pwrite(fd, &bytes[done..], at + done as u64))? {
                0 => return Err(Errno::IO),
                count => done += count,
            }
        }
        Ok(())
    }

    /// Makes the first `len` bytes of the file usable in the region.
    pub(super) fn map(
        &self,
        region: &Region,
        len: usize,
        kind: MapKind,
        huge: bool,
    ) -> Result<(), Errno> {
        match &self.handle {
            Handle::Os(fd) => region.map_file(fd.as_fd(), len, kind, huge),
            Handle::Simulated(_) => {
                region.lengthen(len);
                Ok(())
            }
        }
    }

    /// Returns the descriptor; none in the simulator.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.handle {
            Handle::Os(fd) => Some(fd.as_fd()),
            Handle::Simulated(_) => None,
        }
    }

    /// Returns whether the file's drive has a volatile cache.
    pub(super) fn drive_cache(&self) -> Result<DriveCache, Errno> {
        self.fd().map_or_else(|| Ok(DriveCache::none()), DriveCache::of)
    }

    pub(super) fn error(&self, what: &'static str, error: Errno) -> OpenError {
        io_error(&self.path, what, error)
    }
}

impl Drop for PoolFile {
    fn drop(&mut self) {
        // Not in a forked child, whose parent still uses the pool.
        let is_mine = self.locked_by.is_some_and(Process::is_current);
        if let (true, Handle::Os(fd)) = (is_mine, &self.handle) {
            // A process that another thread is starting still has the descriptor for a moment: unlock now,
            // not when the last descriptor is closed.
            let _ = rustix::fs::flock(fd, FlockOperation::Unlock);
        }
    }
}

fn kind_of(stat: &rustix::fs::Stat) -> Result<FileKind, &'static str> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(FileKind::Regular),
        FileType::CharacterDevice if super::detect::is_device_dax(stat.st_rdev) => {
            Ok(FileKind::Device)
        }
        FileType::CharacterDevice => Err("a character device that is not device DAX"),
        FileType::BlockDevice => Err("a block device"),
        FileType::Directory => Err("a directory"),
        FileType::Fifo => Err("a FIFO"),
        FileType::Socket => Err("a socket"),
        _ => Err("of an unknown type"),
    }
}

/// Allocates by writing zeros, for file systems without a better way.
fn write_zeros(fd: &OwnedFd, from: u64, to: u64) -> Result<(), Errno> {
    // A page per call: the kernel may keep a larger write as one large page, and then write all of that back
    // for each word that changes.
    let zeros = [0; 4096];
    let mut at = from;
    while at < to {
        let count = zeros.len().min(usize::try_from(to - at).unwrap_or(usize::MAX));
        at += retry(|| rustix::io::pwrite(fd, &zeros[..count], at))? as u64;
    }
    Ok(())
}

/// Makes the error of a failed system call on `path`.
pub(super) fn io_error(path: &Path, what: &'static str, error: Errno) -> OpenError {
    let path = path.to_path_buf();
    match error {
        Errno::NOENT => OpenError::NotFound { path },
        Errno::EXIST => OpenError::AlreadyExists { path },
        Errno::ACCESS | Errno::PERM | Errno::ROFS => OpenError::PermissionDenied { path, what },
        source => OpenError::Io { path, what, source: source.into() },
    }
}

/// Returns `true` if the error says that the medium or the quota is full.
pub(super) fn is_full(error: Errno) -> bool {
    matches!(error, Errno::NOSPC | Errno::DQUOT | Errno::FBIG)
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
