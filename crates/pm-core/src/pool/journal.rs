//! The journal's file, beside the pool's: creating it, finding it, replaying it.
//!
//! While the pool's file depends on a journal, the superblock names that journal by a random stamp: from the
//! first fence of an opening in mode `Journal` to the end of the next clean close, or replay. A pool that was
//! closed consists of its file alone.
//!
//! ```text
//! step  what                                                    durable before
//! H0    superblock: no stamp, as it was read                    A1
//! A1    the journal's file, empty, with identity, generation    A2
//!       and stamp
//! A2    superblock: its stamp (S3, S4)                          the first fence that the journal serves
//!
//! after an unclean end, by any opening that may write
//! H1    every line of the journal, in order                     H2
//! H2    superblock: no stamp (both copies, one after another)   A1
//!
//! closing
//! C1    a checkpoint: the whole file                            C2
//! C2    superblock: no stamp, clean (S3, S4)                    return
//! ```
//!
//! A crash between A1 and A2, or H2 and A1, leaves a journal that no superblock names; the next opening makes
//! it anew. A crash during creation, which stores nothing in a journal, leaves an empty one, and the next
//! creation replaces it.

use core::ops::Range;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmindex_wal::{Disk, FileDisk, Log, LogError, LogId, LogOptions, SyncMethod, peek};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{DurabilityLost, OpenError, PmError};
use crate::line::LINE;
use crate::media::{
    Cutter, JOURNAL_FIRST, Journal, JournalState, Medium, Permit, PoolDisk, checkpoint_in,
    lines_in, new_stamp,
};
use crate::newfile::{NewFile, folder_of};
use crate::region::Region;
use crate::sys::{self, WriteBack};

use super::Pool;
use super::detect::random_u128;
use super::file::PoolFile;
use super::layout::CHECKPOINT;
use super::options::PoolOptions;
use super::superblock::{Found, Superblock};

/// The lines held in memory before they are written to the file.
const HELD: usize = 1 << 18;

/// The bytes from which on a file is read ahead by a thread.
const READ_AHEAD_FROM: u64 = 8 << 20;

/// Returns the name of the journal of the pool at `path`, after resolving links.
pub(super) fn path_of(path: &Path) -> io::Result<PathBuf> {
    let real = if let Ok(real) = fs::canonicalize(path) {
        real
    } else {
        // A new pool has no file yet.
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        fs::canonicalize(folder_of(path))?.join(name)
    };
    let mut name = real.into_os_string();
    name.push(".journal");
    Ok(name.into())
}

#[derive(Debug)]
struct File {
    file: OwnedFd,
    write_back: WriteBack,
}

impl PoolDisk for File {
    fn sync(&self) -> io::Result<()> {
        retry(|| sys::sync_data(self.file.as_fd()))
    }

    fn push(&self, bytes: Range<u64>) -> io::Result<()> {
        retry(|| self.write_back.push(bytes.clone()))
    }

    fn check(&self) -> io::Result<()> {
        retry(|| self.write_back.check())
    }
}

/// Calls again what a signal interrupted.
pub(super) fn retry(mut call: impl FnMut() -> Result<(), Errno>) -> io::Result<()> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// The lock of a journal: its holder may write to the journal. The pool's own lock is not enough: its file
/// may have another name by now, or none yet.
#[derive(Debug)]
pub(super) struct Lock(fs::File);

impl Lock {
    pub(super) fn take(file: fs::File) -> Result<Self, Errno> {
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self(file))
    }

    /// Returns `true` if this locks the file that has the name now.
    pub(super) fn is_of(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        let (own, named) = (self.0.metadata(), fs::symlink_metadata(path));
        own.is_ok_and(|own| named.is_ok_and(|named| same(&own, &named)))
    }

    /// Unlocks it, even if other processes have the descriptor.
    pub(super) fn end(&self) {
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock); // else when it is closed
    }
}

/// A1: creates or recreates the journal of a pool that consists of its file alone.
pub(super) fn make(
    file: &PoolFile,
    (identity, generation): (u128, u64),
    opts: &PoolOptions,
) -> Result<(Log, Option<Lock>), OpenError> {
    let word = checkpoint_word(file).map_err(|e| file.error("reading the last checkpoint", e))?;
    let stamp = new_stamp(random_u128() as u64 >> 1, word);
    let id = LogId { identity, generation, stamp };
    let options = LogOptions::new().wait(opts.journal_wait);
    let path = path_of(&file.path).map_err(|e| io_error(&file.path, "naming the journal", e))?;
    #[cfg(test)]
    if let Some(disk) = simulated::log() {
        let log = Log::format(disk, id, options).map_err(|e| damaged(&file.path, &path, &e))?;
        return Ok((log, None));
    }
    let io = |what| move |e| io_error(&file.path, what, e);
    let len = opts.journal_bytes.unwrap_or(32 << 20).next_multiple_of(4096);
    let unallocated = |e: io::Error| match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            OpenError::NoSpace { path: path.clone(), wanted: len }
        }
        _ => io_error(&file.path, "allocating the journal", e),
    };
    let locked = |e: Errno| match e {
        Errno::WOULDBLOCK => OpenError::Locked { path: file.path.clone() },
        e => io("locking the journal")(e.into()),
    };
    let there = match fs::symlink_metadata(&path) {
        Ok(there) => Some(there.len()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(io("looking for the journal")(e)),
    };
    let mut lock = None;
    if there.is_some() {
        let in_the_way = |why| OpenError::JournalInTheWay {
            path: file.path.clone(),
            journal: path.clone(),
            why,
        };
        may_be_replaced(&path, identity).map_err(in_the_way)?;
        let held = fs::File::open(&path).map_err(io("opening the journal"))?;
        let held = Lock::take(held).map_err(locked)?;
        may_be_replaced(&path, identity).map_err(in_the_way)?; // no process writes to it now
        lock = Some(held);
    }
    if there != Some(len) {
        let new = NewFile::create(&path, opts.mode).map_err(io("creating the journal"))?;
        let held = new.file().try_clone().map_err(io("locking the journal"))?;
        let held = Lock::take(held).map_err(locked)?;
        FileDisk::create(new.file(), len).map_err(unallocated)?;
        match new.finish(there.is_some()) {
            // Another process has created it first.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(OpenError::Locked { path: file.path.clone() });
            }
            named => named.map_err(io("naming the journal"))?,
        }
        lock = Some(held);
    }
    if !lock.as_ref().is_some_and(|lock| lock.is_of(&path)) {
        return Err(OpenError::Locked { path: file.path.clone() }); // it was replaced meanwhile
    }
    if there == Some(len) {
        allocate(&path, len).map_err(unallocated)?;
    }
    let disk = FileDisk::open(&path, SyncMethod::Measured).map_err(io("opening the journal"))?;
    let log = Log::format(Box::new(disk), id, options);
    Ok((log.map_err(|e| damaged(&file.path, &path, &e))?, lock))
}

/// Allocates what a copy of a journal left out because it was zero: a full disk is an error now, and not when the log
/// gets there (unless the file system cannot allocate: then it is one there). Does nothing to what is allocated.
fn allocate(path: &Path, len: u64) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    retry(|| match rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        other => other,
    })
}

/// Returns whether the file in the way of a new journal is not needed: it is this pool's and the pool's file
/// is complete without it, or it is empty, or a crash interrupted its creation.
fn may_be_replaced(path: &Path, identity: u128) -> Result<(), String> {
    let disk = FileDisk::open_to_read(path).map_err(|e| e.to_string())?;
    let mut head = vec![0; 8192.min(disk.len() as usize)];
    disk.read(0, &mut head).map_err(|e| e.to_string())?;
    if head.iter().all(|&byte| byte == 0) {
        return Ok(());
    }
    let id = peek(&disk).map_err(|e| e.to_string())?.id;
    if id.identity == identity {
        return Ok(());
    }
    match Log::replay(&disk, id, |_, _| Ok(())).map_err(|e| e.to_string())? {
        0 => Ok(()),
        records => Err(format!("{records} batches that are not in that pool yet, the log is {id}")),
    }
}

/// Makes the medium's part of the journal.
pub(super) fn of(
    log: Log,
    file: &PoolFile,
    cutter: Cutter,
    permit: Permit,
) -> Result<Arc<Journal>, Errno> {
    let fd = file.fd().ok_or(Errno::BADF)?;
    let (file, write_back) = (rustix::io::fcntl_dupfd_cloexec(fd, 0)?, WriteBack::of(fd));
    let disk: Box<dyn PoolDisk> = Box::new(File { file, write_back });
    #[cfg(test)]
    let disk = simulated::pool(disk);
    Ok(Arc::new(Journal::new(log, disk, cutter, permit)))
}

/// H1, H2: writes all lines of the journal to the file, which then does not depend on the journal. Does
/// nothing for a file without a journal.
pub(super) fn heal(
    file: &PoolFile,
    found: &mut Found,
    opts: &PoolOptions,
) -> Result<(), OpenError> {
    let io = |what| move |e: Errno| file.error(what, e);
    let write = |superblock: &Superblock, copy| {
        let (offset, bytes) = superblock.to_bytes(copy);
        file.write_at(offset, &bytes).map_err(io("writing the superblock"))?;
        file.sync().map_err(io("synchronising the superblock"))
    };
    if found.superblock.journal == 0 {
        // H0, durable before: A1. That no journal is needed may be in the caches only, if the process died in
        // H2 or C2; on the medium the superblock may still name the old one.
        return if opts.journal { write(&found.superblock, found.copy) } else { Ok(()) };
    }
    // The dead process's stores in the caches, and pages that a failed write-back left there as if durable.
    file.write_back().map_err(io("making what was left durable"))?;
    file.forget_cached();
    let len = file.len().map_err(io("asking for the file's length"))?;
    let mut held = Held::default();
    let replayed = replay(file, found, len, |offset, line| {
        held.push(offset, line);
        if held.order.len() < HELD { Ok(()) } else { held.write_to(file) }
    });
    accepted(replayed, opts)?;
    held.write_to(file).map_err(io("replaying the journal"))?;
    // H1, durable before: H2.
    file.sync().map_err(io("synchronising what was replayed"))?;
    // H2: the older copy first, each durable before the next.
    let superblock = &mut found.superblock;
    superblock.sequence = superblock.sequence.wrapping_add(1);
    superblock.journal = 0;
    write(superblock, 1 - found.copy)?;
    write(superblock, found.copy)?;
    found.damaged = false;
    Ok(())
}

/// Does the same as [`heal`] in a private copy, for a file that is open for reading only.
pub(super) fn show(
    file: &PoolFile,
    found: &Found,
    region: &Region,
    opts: &PoolOptions,
) -> Result<(), OpenError> {
    let pm = crate::media::Mapped::dram();
    let shown = replay(file, found, region.len() as u64, |offset, line| {
        let words = region.words(offset, LINE / 8).unwrap_or_default();
        pm.write_bytes(words, line);
        Ok(())
    });
    accepted(shown, opts)
}

/// Does something while the kernel reads a file for it, if that is long and fits in memory.
pub(super) fn while_read_ahead<T>(disk: &FileDisk, work: impl FnOnce() -> T) -> T {
    if disk.len() < READ_AHEAD_FROM || disk.len() > sys::free_memory() / 2 {
        return work();
    }
    std::thread::scope(|scope| {
        // A request may wait for those before it.
        scope.spawn(|| disk.read_ahead(0..disk.len()));
        work()
    })
}

/// Returns the outcome of a replay, unless the caller accepts that the journal is lost.
fn accepted(replayed: Result<(), OpenError>, opts: &PoolOptions) -> Result<(), OpenError> {
    match replayed {
        Err(
            OpenError::JournalMissing { .. }
            | OpenError::JournalForeign { .. }
            | OpenError::JournalDamaged { .. },
        ) if opts.accept_journal_loss => Ok(()),
        other => other,
    }
}

/// Calls `take` with every line of the journal that the superblock names, in order.
fn replay(
    file: &PoolFile,
    found: &Found,
    len: u64,
    mut take: impl FnMut(u64, &[u8; LINE]) -> Result<(), Errno>,
) -> Result<(), OpenError> {
    let Superblock { uuid: identity, generation, journal: stamp, .. } = found.superblock;
    let id = LogId { identity, generation, stamp };
    let path = file.path.clone();
    let journal = path_of(&path).map_err(|e| io_error(&path, "naming the journal", e))?;
    let disk = FileDisk::open_to_read(&journal).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            OpenError::JournalMissing { path: path.clone(), journal: journal.clone() }
        }
        _ if fs::symlink_metadata(&journal).is_ok_and(|there| there.is_symlink()) => {
            let why = "it is a symbolic link, and a journal lies beside its pool";
            OpenError::JournalForeign { path: path.clone(), journal: journal.clone(), why }
        }
        _ => io_error(&path, "opening the journal", e),
    })?;
    let word = checkpoint_word(file).map_err(|e| file.error("reading the last checkpoint", e))?;
    match while_read_ahead(&disk, || Log::extent(&disk, id)) {
        Ok(extent) if checkpoint_in(word, stamp) < extent.start => {
            let why = "it is newer than the pool's file, which is an older copy";
            return Err(OpenError::JournalForeign { path, journal, why });
        }
        Ok(extent) if checkpoint_in(word, stamp) > extent.end => {
            let why = "it is older than the pool's file: it is an older copy";
            return Err(OpenError::JournalForeign { path, journal, why });
        }
        Ok(_) => {}
        Err(error) => return Err(refused(&path, &journal, id, &error)),
    }
    let (mut failed, mut bad) = (None, None);
    let replayed = Log::replay(&disk, id, |_, record| {
        let lines = lines_in(record).ok_or(LogError::Damaged)?;
        for (offset, line) in lines {
            if offset < JOURNAL_FIRST || offset.saturating_add(LINE as u64) > len {
                bad = Some(offset);
                return Err(LogError::Damaged);
            }
            take(offset, &line).map_err(|e| {
                failed = Some(e);
                LogError::Damaged
            })?;
        }
        Ok(())
    });
    if let Some(error) = failed {
        return Err(file.error("replaying the journal", error));
    }
    if let Some(offset) = bad {
        let why = format!("it names offset {offset:#x} of a file of {len} bytes");
        return Err(OpenError::JournalDamaged { path, journal, why });
    }
    replayed.map(drop).map_err(|error| refused(&path, &journal, id, &error))
}

/// Returns the word at `CHECKPOINT`, or 0 if the file ends before it.
fn checkpoint_word(file: &PoolFile) -> Result<u64, Errno> {
    let mut head = [0; CHECKPOINT as usize + 8];
    file.read_head(&mut head)?;
    let word = head.last_chunk().copied().unwrap_or_default();
    Ok(u64::from_le_bytes(word))
}

/// Returns the error for a log that is not the expected one.
fn refused(path: &Path, journal: &Path, id: LogId, error: &LogError) -> OpenError {
    let LogError::Foreign { found, .. } = error else { return damaged(path, journal, error) };
    let why = if found.identity != id.identity {
        "it belongs to another pool"
    } else if found.generation < id.generation {
        "it is older than the pool's file"
    } else if found.generation > id.generation {
        "it is newer than the pool's file"
    } else {
        "it belongs to a copy of this pool"
    };
    OpenError::JournalForeign { path: path.to_path_buf(), journal: journal.to_path_buf(), why }
}

/// Lines that are written to the file together.
#[derive(Default)]
struct Held {
    /// Of each line, its number and its place among them: one word each.
    order: Vec<u64>,
    lines: Vec<[u8; LINE]>,
}

impl Held {
    fn push(&mut self, offset: u64, line: &[u8; LINE]) {
        self.order.push(offset / LINE as u64 * HELD as u64 + self.lines.len() as u64);
        self.lines.push(*line);
    }

    /// Writes the last of each line, adjacent ones together.
    fn write_to(&mut self, file: &PoolFile) -> Result<(), Errno> {
        let Self { order, lines } = self;
        order.sort_unstable();
        let (mut start, mut run) = (0, Vec::new());
        for (i, word) in order.iter().enumerate() {
            let (line, place) = (word / HELD as u64, word % HELD as u64);
            if order.get(i + 1).is_some_and(|next| next / HELD as u64 == line) {
                continue;
            }
            let offset = line * LINE as u64;
            if offset != start + run.len() as u64 {
                file.write_at(start, &run)?;
                run.clear();
                start = offset;
            }
            run.extend_from_slice(&lines[place as usize]);
        }
        order.clear();
        lines.clear();
        file.write_at(start, &run)
    }
}

fn damaged(path: &Path, journal: &Path, error: &LogError) -> OpenError {
    if let LogError::Io { what, kind, why } = error {
        return io_error(journal, what, io::Error::new(*kind, why.to_string()));
    }
    let (path, journal) = (path.to_path_buf(), journal.to_path_buf());
    OpenError::JournalDamaged { path, journal, why: error.to_string() }
}

pub(super) fn io_error(path: &Path, what: &'static str, source: io::Error) -> OpenError {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            OpenError::PermissionDenied { path: path.to_path_buf(), what }
        }
        _ => OpenError::Io { path: path.to_path_buf(), what, source },
    }
}

impl<M: Medium> Pool<M> {
    /// Returns the journal's state, in mode [`Journal`](crate::Durability::Journal).
    pub fn journal(&self) -> Option<JournalState> {
        Some(self.backing.as_ref()?.journal()?.state())
    }

    /// Writes everything acknowledged before this call to the pool's file, and empties the journal except for
    /// what other threads write meanwhile. This happens by itself when half of the journal is used, and 5 seconds after a write. With a
    /// twin, the same: its base has the pool then, and its log nothing.
    ///
    /// # Errors
    /// [`PmError::DurabilityLost`].
    pub fn checkpoint(&self) -> Result<(), PmError> {
        match self.backing.as_ref().and_then(|backing| backing.twin()) {
            Some(twin) => Ok(twin.checkpoint()?),
            None => self.empty_journal(),
        }
    }

    /// A [`checkpoint`](Self::checkpoint) of the journal, if there is one.
    pub(crate) fn empty_journal(&self) -> Result<(), PmError> {
        match self.backing.as_ref().and_then(|backing| backing.journal()) {
            Some(journal) => journal.checkpoint().map_err(|_| DurabilityLost.into()),
            None => Ok(()),
        }
    }

    /// Leaves lines of these bytes, which are unused, out of the journal, from the next
    /// [`empty_journal_of_left_out`](Self::empty_journal_of_left_out) on at the latest.
    pub(crate) fn leave_out_of_journal(&self, offset: u64, bytes: u64) {
        if let Some(journal) = self.backing.as_ref().and_then(|backing| backing.journal()) {
            journal.left_out.add(offset..offset + bytes);
        }
    }

    /// Empties the journal; afterwards it has no line of what is left out.
    pub(crate) fn empty_journal_of_left_out(&self) -> Result<(), PmError> {
        if let Some(journal) = self.backing.as_ref().and_then(|backing| backing.journal()) {
            journal.await_writer();
        }
        self.empty_journal()
    }

    /// Has lines of these bytes in the journal again.
    pub(crate) fn have_in_journal(&self, offset: u64, bytes: u64) {
        if let Some(journal) = self.backing.as_ref().and_then(|backing| backing.journal()) {
            journal.left_out.remove(offset..offset + bytes);
        }
    }
}

/// Disks that a test substitutes for those of the pools that its thread opens.
#[cfg(test)]
pub(super) mod simulated {
    use std::cell::RefCell;

    use super::{Disk, Errno, PoolDisk};

    pub(in crate::pool) type Disks =
        (Box<dyn Fn() -> Box<dyn Disk>>, Box<dyn Fn() -> Box<dyn PoolDisk>>);

    thread_local! {
        pub(in crate::pool) static DISKS: RefCell<Option<Disks>> = const { RefCell::new(None) };
    }

    /// Synchronises the pool's file while it is being opened.
    pub(in crate::pool) fn sync(sync: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
        let disk = DISKS.with_borrow(|disks| disks.as_ref().map(|disks| disks.1()));
        let Some(disk) = disk else { return sync() };
        let synced = disk.sync_by(&mut || Ok(sync()?));
        synced.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
    }

    pub(super) fn log() -> Option<Box<dyn Disk>> {
        DISKS.with_borrow(|disks| disks.as_ref().map(|disks| disks.0()))
    }

    pub(super) fn pool(disk: Box<dyn PoolDisk>) -> Box<dyn PoolDisk> {
        DISKS.with_borrow(|disks| disks.as_ref().map_or(disk, |disks| disks.1()))
    }
}
