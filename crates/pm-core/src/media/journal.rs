//! A journal of lines beside a file: what a flush and a fence are in mode `Journal`.
//!
//! A flush notes lines for the thread. The fence hands them over and waits; one of the threads that
//! wait leads for all: it copies each line once, after all have stored, writes the copies to the log as
//! one batch, and wakes the others. Lines are copied by one thread at a time, so that later copies of a
//! line stand later in the log.
//!
//! The file is mapped, and the kernel writes its pages back when it likes: what stands in a line that
//! was not fenced may be durable at any time. What the log holds are values, not changes, so that
//! replaying it, to its end, after whatever the kernel wrote gives every line that was fenced since the
//! checkpoint what it had at its last fence. A page that power failure has cut, at a sector, is mended
//! by that too: each of its lines was durable at the checkpoint or is in the log.
//!
//! Assumed, here and in mode `Msync`: who writes a page back reads each of its lines in one moment, as a
//! device does that reads memory by itself. The kernel lets programs store to a page meanwhile, so a layer
//! that copies pages word by word (encryption, a bounce buffer) may put later words of a line on the disk
//! without earlier ones. Replay mends that in every line that was fenced since the checkpoint, before or
//! after; it cannot in a line whose first stores since then were never fenced.
//!
//! ```text
//! checkpoint (when half of the log is used, by a thread of its own; closing)
//! step  what                                          durable before
//! J1    take the tail of the log, store it in the     -
//!       file (`CHECKPOINT`)
//! J2    fdatasync the pool's file                     J3
//! J3    the log's horizon is that tail                reuse of the log's space
//! ```
//!
//! So what the file says of the last checkpoint lies between the horizon and the tail of the log; if it
//! does not, they are copies of different moments, and nothing is replayed.
//!
//! The superblock is not journaled: it says which journal belongs to the file, so a fence after a
//! change of it synchronises the file, and reading it needs no replay.
//!
//! # A disk that fails
//!
//! A write to the log, or a synchronisation of the file, that fails poisons the pool for good, as a
//! failed `msync` does (see `writeback`): the mapping is cut off the file, and each thread takes back
//! in its next fence what it stored. The next opening replays the log. So does a checkpoint that makes
//! no room within the log's time: the pool says why in [`JournalState::lost`].

use core::cell::RefCell;
use core::fmt::Debug;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};
use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use pmindex_wal::{Abandoned, Batch, Group, Log};
use rustix::io::Errno;

use crate::cell::PmU64;
use crate::error::DurabilityLost;
use crate::line::{LINE, lines_of};
use crate::pool::layout::CHECKPOINT;

use super::Permit;
use super::lines::{FIRST, RUN, STAMP};
use super::tally::Tally;
use super::undo::Undo;
use super::writeback::Cutter;

thread_local! {
    /// For each medium, the lines this thread flushed and has not fenced.
    static FLUSHED: RefCell<Vec<(u64, Vec<usize>)>> = const { RefCell::new(Vec::new()) };
}

/// What makes the file of a pool durable.
pub(crate) trait PoolDisk: Debug + Send + Sync {
    /// Makes durable what was stored to the file.
    fn sync(&self) -> io::Result<()>;

    /// Calls `sync`, which does the same, its length included.
    fn sync_by(&self, sync: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        sync()
    }
}

/// The journal of a pool that is open.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Tells the media of this process apart, those that are closed included.
    identity: u64,
    log: Log,
    pool: Box<dyn PoolDisk>,
    cutter: Cutter,
    permit: Permit,
    undo: Undo,
    pub(super) tally: Tally,
    fences: Group<Vec<usize>, (), Refused>,
    /// Held while the file is synchronised: the kernel reports a failed write-back once.
    syncing: Mutex<()>,
    checkpoints: AtomicU64,
    /// The pool is poisoned, and the mapping is cut off.
    poisoned: AtomicBool,
    why: OnceLock<String>,
    work: Mutex<Work>,
    /// There is something to do for the thread that makes checkpoints.
    wake: Condvar,
    /// How many more writes succeed, when a test lets one fail.
    pretended: Mutex<Option<u64>>,
    /// Told of each moment, when a test watches.
    watch: OnceLock<Watch>,
    /// Fences that have joined a round.
    #[cfg(test)]
    pub(crate) joined: AtomicU64,
}

/// A moment at which a power failure would leave something else than at the one before, of a journal or
/// of a twin. For tests.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalMoment {
    /// Lines were flushed.
    Flushed,
    /// The next thing is a write to the journal.
    Writing,
    /// The journal was written, and no writer was told.
    Written,
    /// The pool's file was synchronised.
    Synchronised,
    /// The journal begins later.
    Truncated,
    /// Pages were written to the base of a twin, and not synchronised.
    Copied,
}

/// Who is told of each moment.
pub(super) struct Watch(pub(super) Box<dyn Fn(JournalMoment) + Send + Sync>);

impl Debug for Watch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Watch")
    }
}

#[derive(Debug, Default)]
struct Work {
    wanted: bool,
    stop: bool,
    /// The process whose thread it is: a forked child has none.
    thread: Option<(u32, JoinHandle<()>)>,
}

/// How a journal is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalState {
    /// Bytes of the log that an opening would replay now.
    pub used: u64,
    /// Bytes that the log has.
    pub capacity: u64,
    /// Checkpoints since the pool was opened.
    pub checkpoints: u64,
    /// Why the pool takes no writes any more, if it does not.
    pub lost: Option<String>,
}

/// What a round of fences is refused with.
#[derive(Clone, Copy, Debug)]
struct Refused;

impl From<Abandoned> for Refused {
    fn from(_: Abandoned) -> Self {
        Self
    }
}

impl Journal {
    /// Of the pool whose mapping `cutter` cuts off; `log` is empty.
    pub(crate) fn new(log: Log, pool: Box<dyn PoolDisk>, cutter: Cutter, permit: Permit) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            identity: NEXT.fetch_add(1, Relaxed),
            log,
            pool,
            cutter,
            permit,
            undo: Undo::default(),
            tally: Tally::default(),
            fences: Group::default(),
            syncing: Mutex::default(),
            checkpoints: AtomicU64::new(0),
            poisoned: AtomicBool::new(false),
            why: OnceLock::new(),
            work: Mutex::default(),
            wake: Condvar::new(),
            pretended: Mutex::default(),
            watch: OnceLock::new(),
            #[cfg(test)]
            joined: AtomicU64::new(0),
        }
    }

    /// What the superblock calls this journal.
    pub(crate) fn stamp(&self) -> u64 {
        self.log.id().stamp
    }

    pub(crate) fn undo(&self) -> &Undo {
        &self.undo
    }

    pub(crate) fn state(&self) -> JournalState {
        JournalState {
            used: self.log.used(),
            capacity: self.log.capacity(),
            checkpoints: self.checkpoints.load(Relaxed),
            lost: self.why.get().cloned(),
        }
    }

    /// Lets `succeed` more writes succeed and the next one fail, as if the device had.
    pub(crate) fn fail_after(&self, succeed: u64) {
        *self.pretended.lock() = Some(succeed);
    }

    /// Has `watch` told of each moment from now on, by the thread that brings it about.
    pub(crate) fn watch(&self, watch: Box<dyn Fn(JournalMoment) + Send + Sync>) {
        let _ = self.watch.set(Watch(watch)); // the first one stays
    }

    fn tell(&self, moment: JournalMoment) {
        if let Some(watch) = self.watch.get() {
            watch.0(moment);
        }
    }

    /// Whether a write failed.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Acquire)
    }

    /// Whether this thread may write.
    pub(crate) fn may_write(&self) -> bool {
        !self.is_poisoned() || self.permit.is_taken()
    }

    /// Notes the lines of `words` for this thread's next fence.
    pub(crate) fn note(&self, words: &[PmU64]) {
        let lines = lines_of(words.as_ptr().addr(), size_of_val(words));
        FLUSHED.with_borrow_mut(|flushed| {
            match flushed.iter_mut().find(|entry| entry.0 == self.identity) {
                Some((_, noted)) => noted.extend(lines),
                None => flushed.push((self.identity, lines.collect())),
            }
        });
        self.tell(JournalMoment::Flushed);
    }

    /// Makes durable what this thread noted.
    pub(crate) fn fence(&self) -> Result<(), DurabilityLost> {
        let mut lines = self.take();
        lines.sort_unstable();
        lines.dedup();
        let fenced = self.make_durable(&lines);
        match fenced {
            Ok(()) => self.undo.forget_lines(&lines),
            Err(_) if self.permit.is_taken() => {
                self.undo.keep();
                return Ok(());
            }
            Err(_) => {
                let mapping = self.cutter.mapping();
                self.undo.take_back(|address| mapping.word_at(address));
            }
        }
        fenced
    }

    /// Makes these lines durable, which are sorted: in the log, those of the superblock in the file.
    fn make_durable(&self, lines: &[usize]) -> Result<(), DurabilityLost> {
        if self.is_poisoned() {
            return Err(DurabilityLost);
        }
        let offset = |line: &usize| self.cutter.mapping().offset_of(*line);
        let (head, rest) = lines.split_at(lines.partition_point(|line| offset(line) < FIRST));
        if !rest.is_empty() {
            let join = |all: &mut Vec<usize>| {
                #[cfg(test)]
                self.joined.fetch_add(1, AcqRel);
                all.extend_from_slice(rest);
                Some(())
            };
            let written = self.fences.commit(join, |all| self.write(all));
            written.map_err(|Refused| {
                self.lose("the thread that wrote to the journal has panicked"); // if nothing else
                DurabilityLost
            })?;
        }
        if head.is_empty() { Ok(()) } else { self.sync().map_err(|_| DurabilityLost) }
    }

    /// Copies lines and writes them to the log: for all threads of a round, by one of them.
    fn write(&self, mut lines: Vec<usize>) -> Result<(), Refused> {
        lines.sort_unstable();
        lines.dedup();
        let most = (self.log.most() - 16) as usize / (LINE + 16);
        for lines in lines.chunks(most) {
            if self.is_poisoned() {
                return Err(Refused);
            }
            let batch = self.copy(lines);
            // A batch that begins anew at the start of the space leaves as much before it unused.
            if self.log.used() + 2 * self.log.space_of(&batch) > self.log.capacity() / 2 {
                self.want_checkpoint();
            }
            self.tell(JournalMoment::Writing);
            self.tally.round(batch.bytes());
            let written = self.allow().map_err(|e| e.to_string());
            let written = written.and_then(|()| self.log.write(&batch).map_err(|e| e.to_string()));
            self.tell(JournalMoment::Written);
            if let Err(why) = written {
                self.lose(&format!("writing to the journal: {why}"));
                return Err(Refused);
            }
        }
        Ok(())
    }

    /// A batch with one record, which holds copies of these lines: runs of neighbours, each after a word
    /// with the number of the first line and how many there are.
    fn copy(&self, lines: &[usize]) -> Batch {
        let mut record: Vec<u8> = Vec::with_capacity(lines.len() * (LINE + 8));
        let (mut run, mut next, mut len) = (0, None, 0);
        for &address in lines {
            let Some((offset, words)) = self.cutter.mapping().line_at(address) else { continue };
            let line = offset / LINE as u64;
            if next != Some(line) || len == RUN {
                (run, len) = (record.len(), 0);
                record.extend_from_slice(&[0; 8]);
            }
            (next, len) = (Some(line + 1), len + 1);
            let header = (line + 1 - len) << 16 | len;
            record[run..run + 8].copy_from_slice(&header.to_le_bytes());
            for word in words {
                record.extend_from_slice(&word.to_le_bytes());
            }
        }
        let mut batch = Batch::default();
        batch.push(&[&record]);
        batch
    }

    /// Synchronises the file, and then the log needs nothing from before.
    pub(crate) fn checkpoint(&self) -> io::Result<()> {
        let tail = self.log.tail(); // J1
        if let Some(word) = self.cutter.mapping().word(CHECKPOINT) {
            word.atomic().fetch_max(tail & !STAMP | self.stamp() & STAMP, AcqRel);
        }
        self.sync()?; // J2, durable before: J3
        self.tell(JournalMoment::Synchronised);
        if let Err(error) = self.log.truncate(tail) {
            self.lose(&format!("ending a checkpoint: {error}"));
            return Err(Errno::IO.into());
        }
        self.checkpoints.fetch_add(1, AcqRel);
        self.tell(JournalMoment::Truncated);
        Ok(())
    }

    /// Synchronises the pool's file.
    fn sync(&self) -> io::Result<()> {
        self.tally.sync();
        self.sync_apart(&mut || self.pool.sync())
    }

    /// See [`Medium::sync_apart`](super::Medium::sync_apart).
    pub(crate) fn sync_apart(&self, sync: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let _alone = self.syncing.lock();
        if self.is_poisoned() {
            return Err(Errno::IO.into());
        }
        let synced = self.allow().and_then(|()| self.pool.sync_by(sync));
        if let Err(error) = &synced {
            self.lose(&format!("synchronising the pool's file: {error}"));
        }
        synced
    }

    /// Nothing is acknowledged any more, and nothing that is stored reaches the file.
    fn lose(&self, why: &str) {
        let _ = self.why.set(why.to_owned()); // the first reason counts
        self.cutter.cut();
        self.poisoned.store(true, Release);
        // A thread that waits for the checkpoint that makes room would wait in vain.
        self.log.end("a write", why);
    }

    /// Keeps others from synchronising the file as long as this lives.
    #[cfg(test)]
    pub(crate) fn hold_syncs(&self) -> parking_lot::MutexGuard<'_, ()> {
        self.syncing.lock()
    }

    /// Starts the thread that makes checkpoints.
    pub(crate) fn begin(self: &Arc<Self>) -> io::Result<()> {
        if let Some(word) = self.cutter.mapping().word(CHECKPOINT) {
            // The word of an earlier journal says the same of this one: there was no checkpoint.
            word.atomic().store(self.stamp() & STAMP, Release);
        }
        let journal = Arc::clone(self);
        let named = std::thread::Builder::new().name("pmindex-journal".into());
        let thread = named.spawn(move || journal.work())?;
        self.work.lock().thread = Some((std::process::id(), thread));
        Ok(())
    }

    fn want_checkpoint(&self) {
        let mut work = self.work.lock();
        if !work.wanted {
            work.wanted = true;
            self.wake.notify_all();
        }
    }

    fn work(&self) {
        let mut work = self.work.lock();
        while !work.stop {
            if !work.wanted {
                self.wake.wait(&mut work);
                continue;
            }
            // What is wanted from here on may be more than what this one gives back.
            work.wanted = false;
            parking_lot::MutexGuard::unlocked(&mut work, || {
                let _ = self.checkpoint(); // a failure poisons the pool
            });
        }
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        let thread = {
            let mut work = self.work.lock();
            work.stop = true;
            self.wake.notify_all();
            work.thread.take()
        };
        // After a fork the thread is the parent's.
        if let Some((process, thread)) = thread
            && process == std::process::id()
        {
            let _ = thread.join();
        }
    }

    /// This thread's lines of this medium.
    fn take(&self) -> Vec<usize> {
        FLUSHED.with_borrow_mut(|flushed| {
            let at = flushed.iter().position(|entry| entry.0 == self.identity);
            at.map(|at| flushed.swap_remove(at).1).unwrap_or_default()
        })
    }

    /// Whether a test lets the next write succeed.
    fn allow(&self) -> io::Result<()> {
        if let Some(succeed) = self.pretended.lock().as_mut() {
            *succeed = succeed.checked_sub(1).ok_or(Errno::IO)?;
        }
        Ok(())
    }
}
