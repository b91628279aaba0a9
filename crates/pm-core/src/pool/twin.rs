//! The twin's file, on a disk: creating it, finding it, restoring a pool from it.
//!
//! ```text
//! 0                       log          base
//! | log of `pmindex-wal` .. | the pool's pages and their checksums .. |
//! ```
//!
//! It is one file, so there are no two that might not fit together. A twin is made under another name (`.new`
//! behind its own) and replaces the old one when it is complete. The log's identity is derived from the
//! pool's, so no journal is taken for a twin.
//!
//! Base and log hold a state of the pool, superblock included, and that superblock says which state it is.
//! Beside a pool in memory a twin is continued only if the pool was closed and the twin has that very
//! superblock, the last thing stored. Otherwise the pool in memory is newer: the process was killed before
//! everything was written. If a twin has a later generation than the pool in memory, another process has
//! continued it.

use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmindex_wal::{Disk, FileDisk, Log, LogError, LogId, LogOptions, SyncMethod, peek};
use rustix::fd::AsFd;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::alloc::PAGE;
use crate::error::{OpenError, OpenFault, PmError};
use crate::line::LINE;
use crate::media::{
    BaseDisk, GROUP_BYTES, Medium, Sums, Twin, TwinParts, TwinState, TwinTimes, held, is_right,
    lines_in, place_of, stored, sums_of,
};
use crate::newfile::{NewFile, folder_of};
use crate::process::Process;
use crate::region::Region;
use crate::sys::{self, WriteBack};

use super::Pool;
use super::detect::random_u128;
use super::file::PoolFile;
use super::journal::{Lock, io_error, retry, while_read_ahead};
use super::layout::DIRECTORY_OFFSET;
use super::options::PoolOptions;
use super::path::choose;
use super::superblock::Found;

/// Distinguishes the log of a twin from the journal of a pool.
const TWIN: u128 = u128::from_le_bytes(*b"pmindex's twin\0\x02");

/// The maximum number of threads that copy a base.
const COPYING: u64 = 8;

/// An existing twin, locked.
#[derive(Debug)]
pub(super) struct ExistingTwin {
    lock: Lock,
    /// The pages that are in its log and not in its base, if its state is that of the pool in memory.
    in_step: Option<Vec<u64>>,
}

/// The facts known about a twin's file.
#[derive(Debug)]
struct Content {
    file: fs::File,
    log: FileDisk,
    id: LogId,
    /// Where the base begins, and the number of the pool's bytes it holds.
    base: u64,
    len: u64,
    found: Found,
    /// Pages that are in the log.
    pages: BTreeSet<u64>,
}

/// The base of a twin on a disk.
#[derive(Debug)]
struct Base {
    file: fs::File,
    write_back: WriteBack,
    start: u64,
    /// Its temporary name, and its final one.
    names: Option<(PathBuf, PathBuf)>,
    /// `true` if it has the final name.
    is_named: AtomicBool,
    /// The process that made it: a forked child removes nothing.
    process: Process,
}

impl Base {
    fn new(file: fs::File, start: u64, names: Option<(PathBuf, PathBuf)>) -> Self {
        Self {
            write_back: WriteBack::of(file.as_fd()),
            file,
            start,
            names,
            is_named: AtomicBool::new(false),
            process: Process::current(),
        }
    }
}

impl BaseDisk for Base {
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.start + at)
    }

    fn sync(&self) -> io::Result<()> {
        retry(|| sys::sync_data(self.file.as_fd()))
    }

    fn push(&self, bytes: Range<u64>) -> io::Result<()> {
        let bytes = self.start + bytes.start..self.start + bytes.end;
        retry(|| self.write_back.push(bytes.clone()))
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        let (old, new) = (self.file.metadata()?.len(), self.start + len);
        if old >= new {
            return Ok(());
        }
        let none = FallocateFlags::empty();
        match retry(|| rustix::fs::fallocate(&self.file, none, old, new - old)) {
            Err(e) if Errno::from_io_error(&e) == Some(Errno::OPNOTSUPP) => {
                self.file.set_len(new)?;
            }
            other => other?,
        }
        retry(|| sys::sync(self.file.as_fd()))
    }

    fn publish(&self) -> io::Result<()> {
        let Some((from, to)) = &self.names else { return Ok(()) };
        fs::rename(from, to)?;
        self.is_named.store(true, Release);
        fs::File::open(folder_of(to))?.sync_all()
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        if let Some((from, _)) = &self.names
            && !self.is_named.load(Acquire)
            && self.process.is_current()
        {
            // It was never complete. When the lock is gone, another process's file may have the name.
            let _ = fs::remove_file(from);
        }
    }
}

/// Returns the identity of the log of this pool's twin.
fn identity_of(uuid: u128) -> u128 {
    uuid ^ TWIN
}

/// Reads a twin far enough to know which state it holds. `Err` says what is wrong with it.
fn read(twin: &Path) -> Result<Content, Bad> {
    let log = FileDisk::open_to_read(twin).map_err(Bad::Io)?;
    let peeked = peek(&log).map_err(|e| match e {
        LogError::NotALog | LogError::BadOption { .. } => Bad::Foreign("it is no twin".into()),
        other => of_log(other),
    })?;
    let file = fs::File::open(twin).map_err(Bad::Io)?;
    let whole = file.metadata().map_err(Bad::Io)?.len();
    let (log, id) = (log.shortened(peeked.bytes), peeked.id);
    Log::extent(&log, id).map_err(of_log)?;
    let (base, len) = (peeked.bytes, held(whole.saturating_sub(peeked.bytes)));
    let mut head = vec![0; DIRECTORY_OFFSET as usize];
    if len < DIRECTORY_OFFSET {
        return Err(Bad::Damaged(format!("it is truncated: its base has {len} bytes")));
    }
    file.read_exact_at(&mut head, base + place_of(0)).map_err(Bad::Io)?;
    let mut pages = BTreeSet::new();
    replay(&log, id, len, |offset, line| {
        pages.insert(offset / PAGE * PAGE);
        if let Some(there) = head.get_mut(offset as usize..offset as usize + LINE) {
            there.copy_from_slice(line);
        }
        Ok(())
    })?;
    let found = choose(&head, len).map_err(|fault| match fault {
        OpenFault::Truncated { len, expected } => {
            Bad::Damaged(format!("it is truncated: its base has {len} bytes of {expected}"))
        }
        _ => Bad::Damaged("its superblock is damaged".into()),
    })?;
    if id.identity != identity_of(found.superblock.uuid) {
        return Err(Bad::Foreign("it is no twin".into()));
    }
    Ok(Content { file, log, id, base, len, found, pages })
}

/// The fault of a twin.
#[derive(Debug)]
enum Bad {
    Io(io::Error),
    Foreign(String),
    Damaged(String),
}

impl Bad {
    fn at(self, path: &Path, twin: &Path) -> OpenError {
        let (path, twin) = (path.to_path_buf(), twin.to_path_buf());
        match self {
            Self::Io(e) => io_error(&twin, "reading the twin", e),
            Self::Foreign(why) => OpenError::TwinForeign {
                path,
                twin,
                why: why + "; move it away, or name another file",
            },
            Self::Damaged(why) => OpenError::TwinDamaged { path, twin, why },
        }
    }
}

fn of_log(error: LogError) -> Bad {
    match error {
        LogError::Io { kind, why, .. } => Bad::Io(io::Error::new(kind, why.to_string())),
        other => Bad::Damaged(other.to_string()),
    }
}

/// Calls `take` with every line of the log, in order.
fn replay(
    log: &FileDisk,
    id: LogId,
    len: u64,
    mut take: impl FnMut(u64, &[u8; LINE]) -> io::Result<()>,
) -> Result<(), Bad> {
    let mut bad = None;
    let replayed = Log::replay(log, id, |_, record| {
        for (offset, line) in lines_in(record).ok_or(LogError::Damaged)? {
            let taken = if offset.saturating_add(LINE as u64) > len {
                Err(Bad::Damaged(format!(
                    "it is truncated, or wrong: its log names {offset:#x} of {len} bytes"
                )))
            } else {
                take(offset, &line).map_err(Bad::Io)
            };
            if let Err(error) = taken {
                bad = Some(error);
                return Err(LogError::Damaged);
            }
        }
        Ok(())
    });
    match (bad, replayed) {
        (Some(bad), _) => Err(bad),
        (None, replayed) => replayed.map(drop).map_err(of_log),
    }
}

/// Locks the file in the twin's place; `None` if there is none.
fn lock(twin: &Path) -> Result<Option<Lock>, OpenError> {
    let in_use = || OpenError::Locked { path: twin.to_path_buf() };
    let file = match fs::File::open(twin) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|e| io_error(twin, "opening the twin", e))?,
    };
    let lock = Lock::take(file).map_err(|e| match e {
        Errno::WOULDBLOCK => in_use(),
        e => io_error(twin, "locking the twin", e.into()),
    })?;
    if lock.is_of(twin) { Ok(Some(lock)) } else { Err(in_use()) }
}

/// Looks for the twin of a pool in memory, which has this superblock.
pub(super) fn look(
    path: &Path,
    twin: &Path,
    memory: &Found,
) -> Result<Option<ExistingTwin>, OpenError> {
    let Some(lock) = lock(twin)? else { return Ok(None) };
    let foreign = |why: &str| Bad::Foreign(why.into()).at(path, twin);
    let disk = FileDisk::open_to_read(twin).map_err(|e| Bad::Io(e).at(path, twin))?;
    match peek(&disk) {
        Ok(peeked) if peeked.id.identity == identity_of(memory.superblock.uuid) => {}
        Ok(_) => return Err(foreign("it belongs to another pool")),
        Err(_) if disk.is_empty() => {}
        Err(_) => return Err(foreign("it is no twin, or both heads of its log are damaged")),
    }
    let in_step = match read(twin) {
        Ok(content) if content.found.superblock.generation > memory.superblock.generation => {
            let why = "it is newer than the pool in memory, which is an older copy; remove that, and \
                       the twin is read; or";
            let (path, twin) = (path.to_path_buf(), twin.to_path_buf());
            let why = format!("{why} move the twin away");
            return Err(OpenError::TwinForeign { path, twin, why });
        }
        Ok(content) => {
            let same = content.found.superblock == memory.superblock && memory.superblock.clean;
            let whole = !memory.damaged && !content.found.damaged;
            (same && whole).then(|| content.pages.into_iter().collect())
        }
        // The pool in memory is complete, and a new twin replaces this one.
        Err(Bad::Damaged(_) | Bad::Foreign(_)) => None,
        Err(bad @ Bad::Io(_)) => return Err(bad.at(path, twin)),
    };
    Ok(Some(ExistingTwin { lock, in_step }))
}

/// Restores the pool in memory from its twin.
pub(super) fn restore(path: &Path, opts: &PoolOptions) -> Result<Option<ExistingTwin>, OpenError> {
    let Some(twin) = &opts.twin else { return Ok(None) };
    let Some(lock) = lock(twin)? else { return Ok(None) };
    let whole = FileDisk::open_to_read(twin).map_err(|e| Bad::Io(e).at(path, twin))?;
    while_read_ahead(&whole, || restore_from(path, twin, opts))
        .map(|pages| Some(ExistingTwin { lock, in_step: Some(pages) }))
}

/// Returns the pages that are in the log of the twin.
fn restore_from(path: &Path, twin: &Path, opts: &PoolOptions) -> Result<Vec<u64>, OpenError> {
    let content = read(twin).map_err(|bad| bad.at(path, twin))?;
    let io = |what| move |e: io::Error| io_error(path, what, e);
    let new = NewFile::create(path, opts.mode).map_err(io("creating the file"))?;
    if opts.as_on_disk || sys::memory_file_system(new.file().as_fd()).is_none() {
        return Err(not_in_memory(path, twin));
    }
    let size = content.found.superblock.size;
    let none = FallocateFlags::empty();
    retry(|| rustix::fs::fallocate(new.file(), none, 0, size)).map_err(|e| match e.kind() {
        io::ErrorKind::StorageFull => OpenError::NoSpace { path: path.into(), wanted: size },
        _ => io("allocating the file")(e),
    })?;
    content.copy_to(new.file(), size).map_err(|bad| bad.at(path, twin))?;
    match new.finish(false) {
        // Another process has created it first.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            return Err(OpenError::Locked { path: path.into() });
        }
        named => named.map_err(io("naming the file"))?,
    }
    Ok(content.pages.into_iter().collect())
}

impl Content {
    /// Writes the pool of `size` bytes to `file`: the base by several threads, then the lines of the log.
    fn copy_to(&self, file: &fs::File, size: u64) -> Result<(), Bad> {
        let (groups, next) = (size.div_ceil(GROUP_BYTES), AtomicU64::new(0));
        let threads = match groups {
            0..=1 => 1,
            _ => std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
        };
        let threads = threads.min(groups).min(COPYING);
        std::thread::scope(|scope| {
            let work = || self.copy_groups(file, size, &next);
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mine = work();
            let panicked = |_| Err(Bad::Damaged("a thread that read it has panicked".into()));
            let theirs = others.into_iter().map(|other| other.join().unwrap_or_else(panicked));
            theirs.fold(mine, Result::and)
        })?;
        replay(&self.log, self.id, self.len, |offset, line| {
            // Skip lines of a growth that the superblock does not know of.
            if offset < size { file.write_all_at(line, offset) } else { Ok(()) }
        })
    }

    /// Copies groups of the base, one after another, until none is left or one is not right.
    fn copy_groups(&self, file: &fs::File, size: u64, next: &AtomicU64) -> Result<(), Bad> {
        let mut group = vec![0; stored(size.min(GROUP_BYTES)) as usize];
        loop {
            let start = next.fetch_add(1, Relaxed) * GROUP_BYTES;
            if start >= size {
                return Ok(());
            }
            let part = &mut group[..stored((size - start).min(GROUP_BYTES)) as usize];
            self.file.read_exact_at(part, self.base + sums_of(start)).map_err(Bad::Io)?;
            let (sums, pages) = part.split_at(PAGE as usize);
            let sums = sums.as_chunks().0.iter().map(|sum| u64::from_le_bytes(*sum));
            // The pages from `from` on are not written yet; where they are zero, the file is so too.
            let (mut from, mut at) = (None, start);
            for (sum, page) in sums.zip(pages.chunks(PAGE as usize)) {
                if !self.pages.contains(&at) && !is_right(sum, at, page) {
                    next.store(size.div_ceil(GROUP_BYTES), Relaxed); // for the others
                    let why = "is not what was written there";
                    return Err(Bad::Damaged(format!(
                        "the page of its base for offset {at:#x} {why}"
                    )));
                }
                if !is_zero(page) {
                    from.get_or_insert(at);
                } else if let Some(from) = from.take() {
                    let run = &pages[(from - start) as usize..(at - start) as usize];
                    file.write_all_at(run, from).map_err(Bad::Io)?;
                }
                at += PAGE;
            }
            if let Some(from) = from {
                let run = &pages[(from - start) as usize..(at - start) as usize];
                file.write_all_at(run, from).map_err(Bad::Io)?;
            }
        }
    }
}

fn is_zero(page: &[u8]) -> bool {
    page.as_chunks().0.iter().all(|word: &[u8; 8]| u64::from_le_bytes(*word) == 0)
}

pub(super) fn not_in_memory(path: &Path, twin: &Path) -> OpenError {
    OpenError::TwinNotInMemory { path: path.to_path_buf(), twin: twin.to_path_buf() }
}

/// Refuses to create a pool where a twin of one waits to be restored.
pub(super) fn check_absent(opts: &PoolOptions) -> Result<(), OpenError> {
    match &opts.twin {
        Some(twin) if !opts.read_only && fs::symlink_metadata(twin).is_ok() => {
            Err(OpenError::AlreadyExists { path: twin.clone() })
        }
        _ => Ok(()),
    }
}

/// Returns the twin of a pool that is being opened: the existing one, or one in the making.
pub(super) fn of(
    file: &PoolFile,
    region: &Region,
    uuid: u128,
    standing: Option<ExistingTwin>,
    opts: &PoolOptions,
) -> Result<(Arc<Twin>, Vec<Lock>), OpenError> {
    let (Some(mapping), Some(path)) = (region.mapping(), &opts.twin) else {
        return Err(file.error("mapping the file", Errno::BADF)); // never
    };
    let io = |what| move |e| io_error(path, what, e);
    let refused = |e: LogError| of_log(e).at(&file.path, path);
    let options = LogOptions::new().wait(opts.journal_wait);
    let times = TwinTimes { every: opts.twin_every, wait: opts.journal_wait };
    let identity = identity_of(uuid);
    let mut locks = Vec::new();
    let parts = match standing {
        Some(ExistingTwin { lock, in_step: whole @ Some(_) }) => {
            locks.push(lock);
            let disk =
                FileDisk::open(path, SyncMethod::Measured).map_err(io("opening the twin"))?;
            let start = peek(&disk).map_err(refused)?.bytes;
            let log = Log::open(Box::new(disk.shortened(start)), identity, options);
            let file = fs::OpenOptions::new().read(true).write(true).open(path);
            let file = file.map_err(io("opening the twin"))?;
            let sums =
                sums_in(&file, start, region.len() as u64).map_err(io("reading the twin"))?;
            let base = Base::new(file, start, None);
            let data = Vec::new();
            TwinParts { log: log.map_err(refused)?, base: Box::new(base), whole, data, sums }
        }
        #[cfg(test)]
        _ if simulated::is_on() => simulated::parts(identity, options, region.len() as u64),
        old => {
            locks.extend(old.map(|old| old.lock));
            let (log, base, lock) = make(path, region.len() as u64, opts)?;
            locks.push(lock);
            let id = LogId { identity, generation: 1, stamp: random_u128() as u64 };
            let log = Log::format(Box::new(log), id, options).map_err(refused)?;
            // Not before this moment: what is stored later is fenced, too, and the twin notes it.
            let (data, sums) = (file.data(region.len() as u64), Sums::default());
            TwinParts { log, base: Box::new(base), whole: None, data, sums }
        }
    };
    Ok((Arc::new(Twin::new(Arc::clone(mapping), parts, times)), locks))
}

/// Reads the checksums in the base, which begins at `start`, of a pool of `len` bytes.
fn sums_in(file: &fs::File, start: u64, len: u64) -> io::Result<Sums> {
    let (mut sums, mut page) = (Sums::default(), vec![0; PAGE as usize]);
    for first in (0..len).step_by(GROUP_BYTES as usize) {
        file.read_exact_at(&mut page, start + sums_of(first))?;
        sums.extend(&page);
    }
    Ok(sums)
}

/// Creates the file of a new twin, under its temporary name.
fn make(path: &Path, len: u64, opts: &PoolOptions) -> Result<(FileDisk, Base, Lock), OpenError> {
    use std::os::unix::fs::OpenOptionsExt;
    let io = |what| move |e| io_error(path, what, e);
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let name = PathBuf::from(name);
    let create = || {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(opts.mode);
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()).open(&name)
    };
    let file = create().map_err(io("creating the twin"))?;
    let lock = file.try_clone().map_err(io("locking the twin"))?;
    let in_use = || OpenError::Locked { path: name.clone() };
    let lock = Lock::take(lock).map_err(|_| in_use())?;
    if !lock.is_of(&name) {
        return Err(in_use());
    }
    // The remains of a crash; no process uses it.
    file.set_len(0).map_err(io("creating the twin"))?;
    // A larger log takes more writes before it is full: a fast writer waits less.
    let start = opts.journal_bytes.unwrap_or((len / 4).clamp(32 << 20, 256 << 20));
    let start = start.next_multiple_of(4096);
    let full = |wanted| {
        move |e: io::Error| match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                OpenError::NoSpace { path: path.to_path_buf(), wanted }
            }
            _ => io_error(path, "allocating the twin", e),
        }
    };
    let base = Base::new(file, start, Some((name.clone(), path.to_path_buf())));
    FileDisk::create(&base.file, start).map_err(full(start + len))?;
    base.grow(stored(len)).map_err(full(start + stored(len)))?;
    let log = FileDisk::open(&name, SyncMethod::Measured).map_err(io("opening the twin"))?;
    Ok((log.shortened(start), base, lock))
}

impl<M: Medium> Pool<M> {
    /// Returns the twin's state, in mode [`Periodic`](crate::Durability::Periodic).
    pub fn twin(&self) -> Option<TwinState> {
        Some(self.backing.as_ref()?.twin()?.state())
    }

    /// Waits until the twin's base has everything that was fenced before this call. Until other threads fence
    /// more, the twin's threads read nothing of the pool, and its log is empty.
    pub(crate) fn settle_twin(&self) -> Result<(), PmError> {
        match self.backing.as_ref().and_then(|backing| backing.twin()) {
            Some(twin) => {
                twin.sync()?;
                Ok(twin.checkpoint()?)
            }
            None => Ok(()),
        }
    }
}

/// A disk that a test substitutes for that of the twins that its thread makes.
#[cfg(test)]
pub(super) mod simulated {
    use std::cell::RefCell;

    use pmindex_wal::{Disk, Log, LogId, LogOptions};

    use crate::media::{BaseDisk, Sums, TwinParts};

    pub(in crate::pool) type Disks = Box<dyn Fn() -> (Box<dyn Disk>, Box<dyn BaseDisk>)>;

    thread_local! {
        pub(in crate::pool) static TWIN: RefCell<Option<Disks>> = const { RefCell::new(None) };
    }

    pub(super) fn is_on() -> bool {
        TWIN.with_borrow(Option::is_some)
    }

    pub(super) fn parts(identity: u128, options: LogOptions, len: u64) -> TwinParts {
        let (log, base) = TWIN.with_borrow(|disks| disks.as_ref().map(|disks| disks())).unwrap();
        let id = LogId { identity, generation: 1, stamp: 1 };
        TwinParts {
            log: Log::format(log, id, options).unwrap(),
            base,
            whole: None,
            data: core::iter::once(0..len).collect(),
            sums: Sums::default(),
        }
    }
}
