//! A journal of lines beside a file: implements flush and fence in mode `Journal`.
//!
//! A flush notes lines for the thread. The fence hands them over and waits. One of the waiting threads leads
//! for all: it copies each line once, after all have stored, writes the copies to the log as one batch, and
//! wakes the others. One thread copies lines at a time, so later copies of a line are later in the log.
//!
//! The file is mapped, and the kernel writes its pages back at any time, so an unfenced line may be durable.
//! The log holds values, not changes. So a replay of the whole log, over whatever the kernel wrote, gives
//! every line that was fenced since the checkpoint its value at its last fence. It also repairs a page that a
//! power failure has cut at a sector: each of its lines was durable at the checkpoint or is in the log.
//!
//! Assumption, here and in mode `Msync`: a page's write-back reads each of its lines at one moment, as a
//! device that reads memory by itself does. The kernel lets programs store to a page meanwhile, so a layer
//! that copies pages word by word (encryption, a bounce buffer) may put later words of a line on the disk
//! without earlier ones. Replay repairs that in every line that was fenced since the checkpoint, before or
//! after; it cannot in a line whose first stores since then were never fenced.
//!
//! ```text
//! checkpoint (when half of the log is used, or some seconds after a write, by a thread of its own; closing)
//! step  what                                          durable before
//! J0    have the disk take the logged pages, part by  -
//!       part, until few are left
//! J1    take the tail of the log, store it in the     -
//!       file (`CHECKPOINT`)
//! J2    fdatasync the pool's file                     J3
//! J3    the log's horizon is that tail                reuse of the log's space
//! ```
//!
//! So the position of the last checkpoint in the file lies between the horizon and the tail of the log; if
//! not, file and log are copies of different moments, and nothing is replayed.
//!
//! The superblock is not journaled: it names the journal that belongs to the file, so a fence after a change
//! of it synchronises the file, and reading it needs no replay.
//!
//! # A disk that fails
//!
//! The kernel writes pages back at any time. If that fails, it takes them for written, and may drop them and read them
//! again as they were at the last checkpoint: without what was fenced since, which is in the log. A thread that stores to
//! such a page would have its old words copied to the log, behind the right ones. So between the copy and the write to
//! the log the leader asks whether a write-back has failed, and then writes nothing; reads may return old words until
//! then. A checkpoint some seconds after a write asks too.
//!
//! A failed write to the log, or a failed synchronisation of the file, poisons the pool for good, as a failed
//! `msync` does (see `writeback`): the mapping is cut off the file, and each thread takes back its stores in
//! its next fence. The next opening replays the log. The same happens if a thread needs room in
//! the log and the disk takes nothing for the log's time limit: [`JournalState::lost`] says why. `fdatasync` tells
//! nothing until it is over, which may take minutes on a slow disk, and meanwhile other threads change more pages. So
//! J0 has the disk take most pages before, some at a time, and each time the limit begins anew.

use core::fmt::Debug;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};
use core::time::Duration;
use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use pmindex_wal::{Batch, Group, Log};
use rustix::io::Errno;

use crate::alloc::PAGE;
use crate::cell::PmU64;
use crate::error::DurabilityLost;
use crate::line::{LINE, lines_of};
use crate::pool::layout::CHECKPOINT;
use crate::process::Process;
use crate::threadlist::thread_list;

use super::Permit;
use super::background;
use super::left_out::LeftOut;
use super::lines::{FIRST, LineWriter, STAMP};
use super::sets::PageSet;
use super::tally::Tally;
use super::undo::Undo;
use super::writeback::{Cutter, ROUND, Refused};

/// The number of pages that the disk takes at a time: as many as a slow one takes in some seconds.
const SLICE: usize = 1024;

/// The time from a write to the checkpoint that it causes, if no other one is made.
const SOON: Duration = Duration::from_secs(5);

thread_list! {
    /// For each medium, the lines this thread flushed and has not fenced.
    const FLUSHED: (u64, Vec<usize>), kept if |_| true;
}

/// The synchronisation of a pool's file.
pub(crate) trait PoolDisk: Debug + Send + Sync {
    /// Makes all stores to the file durable.
    fn sync(&self) -> io::Result<()>;

    /// Waits until the disk has taken the stores to these bytes; not durable before [`sync`](Self::sync).
    fn push(&self, _: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    /// Fails if the kernel has failed to write pages of the file back since the last call.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    /// Calls `sync`, which does the same, the file's length included.
    fn sync_by(&self, sync: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        sync()
    }
}

/// The journal of a pool that is open.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Distinguishes the media of this process, closed ones included.
    identity: u64,
    log: Log,
    pool: Box<dyn PoolDisk>,
    cutter: Cutter,
    permit: Permit,
    undo: Undo,
    pub(super) tally: Tally,
    fences: Group<Vec<usize>, (), Refused>,
    /// The memory of the batch that is written; one thread at a time uses it.
    batch: Mutex<Batch>,
    /// Pages with lines that were logged since a checkpoint last took them.
    dirty: Mutex<PageSet>,
    /// `true` if something was logged since the last checkpoint began.
    logged: AtomicBool,
    /// The memory of which no line is written.
    pub(crate) left_out: LeftOut,
    /// Held while the file is synchronised: the kernel reports a failed write-back once.
    syncing: Mutex<()>,
    checkpoints: AtomicU64,
    /// `true` if the pool is poisoned and the mapping cut off.
    poisoned: AtomicBool,
    why: OnceLock<String>,
    work: Mutex<Work>,
    /// The process of the thread: a forked child has no such thread.
    process: OnceLock<Process>,
    /// Signalled when the checkpoint thread has work.
    wake: Condvar,
    /// The number of writes that still succeed before a test makes one fail.
    pretended: Mutex<Option<u64>>,
    /// Called at each moment, if a test watches.
    watch: OnceLock<Watch>,
    /// The number of fences that have joined a round.
    #[cfg(test)]
    pub(crate) joined: AtomicU64,
}

/// A moment at which a power failure would leave another state than at the one before, of a journal or of a
/// twin. For tests.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalMoment {
    /// Lines were flushed.
    Flushed,
    /// The journal is about to be written.
    Writing,
    /// The journal was written, and no writer was woken yet.
    Written,
    /// A checkpoint begins: what is before the journal's tail is durable, though that may not have been
    /// [told](Self::Written) yet.
    Begun,
    /// The pool's file was synchronised.
    Synchronised,
    /// The journal's horizon has moved.
    Truncated,
    /// Pages were written to the base of a twin, but not synchronised.
    Copied,
}

/// The function that is called at each moment.
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
    thread: Option<JoinHandle<()>>,
}

/// The state of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalState {
    /// Bytes of the log that an opening would replay now.
    pub used: u64,
    /// The bytes of the log.
    pub capacity: u64,
    /// Checkpoints since the pool was opened.
    pub checkpoints: u64,
    /// The reason why the pool takes no more writes, if so.
    pub lost: Option<String>,
}

impl Journal {
    /// Makes the journal of the pool whose mapping `cutter` cuts off; `log` is empty.
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
            batch: Mutex::default(),
            dirty: Mutex::default(),
            logged: AtomicBool::new(false),
            left_out: LeftOut::default(),
            syncing: Mutex::default(),
            checkpoints: AtomicU64::new(0),
            poisoned: AtomicBool::new(false),
            why: OnceLock::new(),
            work: Mutex::default(),
            process: OnceLock::new(),
            wake: Condvar::new(),
            pretended: Mutex::default(),
            watch: OnceLock::new(),
            #[cfg(test)]
            joined: AtomicU64::new(0),
        }
    }

    /// Returns the superblock's name for this journal.
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

    /// Lets `succeed` more writes succeed and the next one fail, as if the device had failed.
    pub(crate) fn fail_after(&self, succeed: u64) {
        *self.pretended.lock() = Some(succeed);
    }

    /// Calls `watch` at each moment from now on, on the thread that causes it.
    pub(crate) fn watch(&self, watch: Box<dyn Fn(JournalMoment) + Send + Sync>) {
        let _ = self.watch.set(Watch(watch)); // the first one stays
    }

    fn tell(&self, moment: JournalMoment) {
        if let Some(watch) = self.watch.get() {
            watch.0(moment);
        }
    }

    /// Returns `true` if a write failed.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Acquire)
    }

    /// Returns `true` if this thread may write.
    pub(crate) fn may_write(&self) -> bool {
        !self.is_poisoned() || self.permit.is_taken()
    }

    /// Notes the lines of `words` for this thread's next fence.
    pub(crate) fn note(&self, words: &[PmU64]) {
        let (mapping, lines) =
            (self.cutter.mapping(), lines_of(words.as_ptr().addr(), size_of_val(words)));
        // Cells of another pool or of an arena: nothing here makes them durable.
        let mapped = mapping.len();
        let lines = lines.filter(|line| mapping.offset_of(*line) < mapped);
        FLUSHED.with(|flushed| match flushed.iter_mut().find(|entry| entry.0 == self.identity) {
            Some((_, noted)) => noted.extend(lines),
            None => flushed.push((self.identity, lines.collect())),
        });
        self.tell(JournalMoment::Flushed);
    }

    /// Waits for a thread that holds a lock, probably over a fence.
    pub(super) fn await_round(&self) {
        self.fences.await_round(ROUND);
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

    /// Makes these sorted lines durable: in the log; those of the superblock in the file.
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

    /// Copies lines and writes them to the log; one thread does this for all of a round.
    fn write(&self, mut lines: Vec<usize>) -> Result<(), Refused> {
        lines.sort_unstable();
        lines.dedup();
        let most = (self.log.most() - 16) as usize / (LINE + 16);
        let mut batch = self.batch.lock();
        self.left_out.filter(&mut lines, |line| self.cutter.mapping().offset_of(line));
        for lines in lines.chunks(most) {
            if self.is_poisoned() {
                return Err(Refused);
            }
            self.copy(lines, &mut batch);
            // A batch that does not fit at the end of the space leaves up to its own size unused there.
            if self.log.used() + 2 * self.log.space_of(&batch) > self.log.capacity() / 2 {
                self.want_checkpoint();
            }
            if let Err(error) = self.pool.check() {
                self.lose(&format!("writing pages of the pool's file back: {error}"));
                return Err(Refused);
            }
            self.tell(JournalMoment::Writing);
            self.tally.round(lines.len() as u64, batch.bytes());
            let written = self.allow().map_err(|e| e.to_string());
            let written =
                written.and_then(|()| self.log.write(&mut batch).map_err(|e| e.to_string()));
            self.tell(JournalMoment::Written);
            if let Err(why) = written {
                self.lose(&format!("writing to the journal: {why}"));
                return Err(Refused);
            }
            self.note_logged();
        }
        Ok(())
    }

    /// Has a checkpoint made some time after the first write since the last one.
    fn note_logged(&self) {
        if !self.logged.load(Acquire) && !self.logged.swap(true, AcqRel) {
            let _work = self.work.lock(); // so that the thread waits by now
            self.wake.notify_all();
        }
    }

    /// Makes `batch` one of a single record, the copies of these lines.
    fn copy(&self, lines: &[usize], batch: &mut Batch) {
        batch.clear();
        let mut record = batch.record();
        let mut writer = LineWriter::new(&mut record);
        let mut dirty = self.dirty.lock();
        self.cutter.mapping().lines_at(lines.iter().copied(), |offset, words| {
            dirty.add(offset);
            writer.push(offset, &words);
        });
        record.end();
    }

    /// Waits for the thread that writes, which may have looked at [`left_out`](Self::left_out) before this call. Not for
    /// the thread of checkpoints: the other one may wait for room in the log.
    pub(crate) fn await_writer(&self) {
        drop(self.batch.lock());
    }

    /// Synchronises the file, after which the log needs no earlier records.
    pub(crate) fn checkpoint(&self) -> io::Result<()> {
        self.logged.store(false, Release); // what is logged from here on is for the next one
        self.push()?; // J0
        let tail = self.log.tail(); // J1
        self.tell(JournalMoment::Begun);
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

    /// J0. It ends: other threads add pages only as long as there is room in the log.
    fn push(&self) -> io::Result<()> {
        loop {
            let dirty = core::mem::take(&mut *self.dirty.lock());
            if dirty.len() <= SLICE {
                return Ok(());
            }
            let pages: Vec<u64> = dirty.iter().collect();
            for part in pages.chunks(SLICE) {
                let bytes = part[0]..part[part.len() - 1] + PAGE;
                self.alone(|| self.pool.push(bytes))?;
                self.log.note_progress();
            }
        }
    }

    /// Synchronises the pool's file.
    fn sync(&self) -> io::Result<()> {
        self.tally.sync();
        self.sync_apart(&mut || self.pool.sync())
    }

    /// See [`Medium::sync_apart`](super::Medium::sync_apart).
    pub(crate) fn sync_apart(&self, sync: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.alone(|| self.allow().and_then(|()| self.pool.sync_by(sync)))
    }

    /// Has the pool's file written, while no other thread does: the kernel tells one caller alone of a failure.
    fn alone(&self, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _alone = self.syncing.lock();
        if self.is_poisoned() {
            return Err(Errno::IO.into());
        }
        let written = write();
        if let Err(error) = &written {
            self.lose(&format!("synchronising the pool's file: {error}"));
        }
        written
    }

    /// Poisons the pool: no later fence succeeds, and no later store reaches the file.
    fn lose(&self, why: &str) {
        let _ = self.why.set(why.to_owned()); // the first reason counts
        self.cutter.cut();
        self.poisoned.store(true, Release);
        // A thread that waits for room would wait for a checkpoint that never comes.
        self.log.end("a write", why);
    }

    /// Prevents other threads from synchronising the file as long as the guard lives.
    #[cfg(test)]
    pub(crate) fn hold_syncs(&self) -> parking_lot::MutexGuard<'_, ()> {
        self.syncing.lock()
    }

    /// Prevents the thread from changing its state as long as the guard lives.
    #[cfg(test)]
    pub(crate) fn hold_work(&self) -> impl Sized {
        self.work.lock()
    }

    /// Starts the thread that makes checkpoints.
    pub(crate) fn begin(self: &Arc<Self>) -> io::Result<()> {
        if let Some(word) = self.cutter.mapping().word(CHECKPOINT) {
            // The word of an earlier journal, with this stamp, would say the same: there was no checkpoint.
            word.atomic().store(self.stamp() & STAMP, Release);
        }
        let _ = self.process.set(Process::current()); // begun once
        let journal = Arc::clone(self);
        let thread = background::start("pmindex-journal", move || journal.work())?;
        self.work.lock().thread = Some(thread);
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
        let mut due = None;
        let mut work = self.work.lock();
        while !work.stop {
            if !work.wanted {
                if !self.logged.load(Acquire) {
                    self.wake.wait(&mut work);
                    continue;
                }
                let until = *due.get_or_insert_with(|| Instant::now() + SOON);
                if !self.wake.wait_until(&mut work, until).timed_out() {
                    continue;
                }
            }
            due = None;
            // A later request may need more room than this checkpoint frees.
            work.wanted = false;
            parking_lot::MutexGuard::unlocked(&mut work, || {
                let _ = self.checkpoint(); // a failure poisons the pool
            });
        }
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        // After a fork the thread belongs to the parent, and it, or another one there, may hold the lock.
        if !self.process.get().is_some_and(|process| process.is_current()) {
            return;
        }
        let thread = {
            let mut work = self.work.lock();
            work.stop = true;
            self.wake.notify_all();
            work.thread.take()
        };
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Takes this thread's lines of this medium.
    fn take(&self) -> Vec<usize> {
        FLUSHED.with(|flushed| {
            let at = flushed.iter().position(|entry| entry.0 == self.identity);
            at.map(|at| flushed.swap_remove(at).1).unwrap_or_default()
        })
    }

    /// Whether a test allows the next write to succeed.
    fn allow(&self) -> io::Result<()> {
        if let Some(succeed) = self.pretended.lock().as_mut() {
            *succeed = succeed.checked_sub(1).ok_or(Errno::IO)?;
        }
        Ok(())
    }
}
