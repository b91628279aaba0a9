//! A log in an ordinary file.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::buffer::{ALIGN, Buffer};
use crate::disk::Disk;
use crate::layout::TRIAL;

/// The way a write becomes durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncMethod {
    /// The faster way on this disk, measured by some writes to the trial block of a log when the file is opened.
    /// In a file with other contents nothing is measured: this is [`Sync`](Self::Sync).
    #[default]
    Measured,
    /// The write itself is durable (`RWF_DSYNC`).
    WriteThrough,
    /// A write followed by `fdatasync`.
    Sync,
}

/// The number of writes of each kind that are measured.
const TRIALS: u32 = 4;

/// A file, written past the page cache where the file system allows it.
#[derive(Debug)]
pub struct FileDisk {
    fd: OwnedFd,
    len: u64,
    direct: bool,
    write_through: bool,
}

impl FileDisk {
    /// Writes zeros to the first `len` bytes of an empty file, durably, so that no later write changes
    /// metadata.
    ///
    /// # Errors
    /// The system's, for example if there is no room.
    pub fn create(file: &File, len: u64) -> io::Result<()> {
        let zeros = Buffer::zeros(1 << 20);
        let mut at = 0;
        // L1, durable before: any head.
        while at < len {
            let count = zeros.as_slice().len().min(usize::try_from(len - at).unwrap_or(usize::MAX));
            at += retry(|| rustix::io::pwrite(file, &zeros.as_slice()[..count], at))? as u64;
        }
        file.sync_all()
    }

    /// Opens a file that was [created](Self::create).
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path, method: SyncMethod) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let (fd, direct) = match open_direct(path, flags) {
            Ok(fd) => (fd, true),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                (rustix::fs::open(path, flags, Mode::empty())?, false)
            }
            Err(error) => return Err(error.into()),
        };
        let len = u64::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or(0);
        let mut disk = Self { fd, len, direct, write_through: false };
        disk.write_through = match method {
            SyncMethod::Sync => false,
            SyncMethod::WriteThrough => true,
            SyncMethod::Measured => disk.is_write_through_faster(),
        };
        Ok(disk)
    }

    /// Opens a file for reading only.
    ///
    /// # Errors
    /// The system's.
    pub fn open_to_read(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let len = u64::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or(0);
        Ok(Self { fd, len, direct: false, write_through: false })
    }

    /// Returns the first `len` bytes of the file as the disk, if the file is longer: the rest belongs to
    /// another structure.
    #[must_use]
    pub fn shortened(self, len: u64) -> Self {
        Self { len: self.len.min(len), ..self }
    }

    /// Asks the kernel to read bytes of the file, in the background. It returns when the kernel has taken the
    /// last of these requests.
    pub fn read_ahead(&self, bytes: core::ops::Range<u64>) {
        const STEP: u64 = 1 << 20; // a call for more may be cut short
        let end = bytes.end.min(self.len);
        for at in (bytes.start..end).step_by(STEP as usize) {
            advise(&self.fd, at, STEP.min(end - at));
        }
    }

    /// Returns `true` if writes bypass the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Returns the way a write becomes durable.
    #[must_use]
    pub fn method(&self) -> SyncMethod {
        if self.write_through { SyncMethod::WriteThrough } else { SyncMethod::Sync }
    }

    /// Measures both ways with some blocks in the trial block of the log, which is zero: where it is not, the
    /// file is no log, and is not touched.
    fn is_write_through_faster(&self) -> bool {
        let zeros = Buffer::zeros(ALIGN);
        let at = TRIAL * ALIGN as u64;
        if at + ALIGN as u64 > self.len {
            return false;
        }
        let mut trial = Buffer::zeros(ALIGN);
        let is_read = self.read(at, trial.as_mut_slice()).is_ok();
        if !is_read || trial.as_slice().iter().any(|&byte| byte != 0) {
            return false;
        }
        let best = |write: &dyn Fn() -> io::Result<()>| {
            let time = || {
                let started = Instant::now();
                write().map(|()| started.elapsed())
            };
            (0..TRIALS)
                .map(|_| time())
                .try_fold(Duration::MAX, |best, time| time.map(|time| best.min(time)))
        };
        let synced = best(&|| self.write_and_sync(at, zeros.as_slice()));
        let through = best(&|| write_all(&self.fd, zeros.as_slice(), at, true));
        matches!((through, synced), (Ok(through), Ok(synced)) if through < synced)
    }

    fn write_and_sync(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        write_all(&self.fd, bytes, at, false)?;
        self.sync()
    }
}

impl Disk for FileDisk {
    fn block(&self) -> usize {
        ALIGN
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            match retry(|| rustix::io::pread(&self.fd, &mut into[done..], at + done as u64))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => done += count,
            }
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        write_all(&self.fd, bytes, at, false)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(retry(|| sync_data(&self.fd))?)
    }

    fn write_durably(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if self.write_through {
            return write_all(&self.fd, bytes, at, true);
        }
        self.write_and_sync(at, bytes)
    }
}

/// Writes all bytes. If that takes several system calls, each part becomes durable by itself.
fn write_all(fd: &OwnedFd, mut bytes: &[u8], mut at: u64, durably: bool) -> io::Result<()> {
    while !bytes.is_empty() {
        match retry(|| write_some(fd, bytes, at, durably))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => {
                bytes = &bytes[count..];
                at += count as u64;
            }
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn write_some(fd: &OwnedFd, bytes: &[u8], at: u64, durably: bool) -> Result<usize, Errno> {
    use rustix::io::ReadWriteFlags;
    let flags = if durably { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    rustix::io::pwritev2(fd, &[IoSlice::new(bytes)], at, flags)
}

#[cfg(not(target_os = "linux"))]
fn write_some(fd: &OwnedFd, bytes: &[u8], at: u64, durably: bool) -> Result<usize, Errno> {
    let written = rustix::io::pwritev(fd, &[IoSlice::new(bytes)], at)?;
    if durably {
        sync_data(fd)?;
    }
    Ok(written)
}

#[cfg(target_os = "linux")]
fn open_direct(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty())
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_: &Path, _: OFlags) -> Result<OwnedFd, Errno> {
    Err(Errno::INVAL)
}

#[cfg(not(target_vendor = "apple"))]
fn advise(fd: &OwnedFd, at: u64, len: u64) {
    let len = core::num::NonZero::new(len);
    let _ = rustix::fs::fadvise(fd, at, len, rustix::fs::Advice::WillNeed);
}

#[cfg(target_vendor = "apple")]
fn advise(_: &OwnedFd, _: u64, _: u64) {}

#[cfg(target_vendor = "apple")]
fn sync_data(fd: &OwnedFd) -> Result<(), Errno> {
    match rustix::fs::fcntl_fullfsync(fd) {
        Err(Errno::NOTSUP | Errno::NOTTY | Errno::INVAL) => rustix::fs::fsync(fd),
        other => other,
    }
}

#[cfg(not(target_vendor = "apple"))]
fn sync_data(fd: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::fdatasync(fd)
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
