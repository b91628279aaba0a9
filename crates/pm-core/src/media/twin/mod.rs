//! A twin on a disk of a pool in memory: implements flush and fence in mode `Periodic`.
//!
//! A flush notes lines for the thread. The fence adds them to those of earlier fences, under one lock, and
//! returns. A thread collects these lines, each once, and periodically copies them to a batch. While it copies,
//! threads fence more lines: it copies these next, in fewer and shorter passes, and the last few under the lock.
//! So a batch ends at one moment: it has a copy of each line that was fenced until then, made after that fence,
//! and nothing of what was stored later. Persistent memory could hold these lines after a power failure at that
//! moment, since it may keep any line that was stored to and not fenced yet. One thread makes all copies, and
//! another one writes the batches to the log, in their order, while the next one is made: so later copies of a
//! line are later in the log. Of the threads that copy, one works at a time, so the twin keeps one processor busy
//! at most, and the others stay with those that write to the pool.
//!
//! A line that is fenced often is copied once per batch, and by a thread that no caller waits for: a fence costs a
//! lock and a word for each line.
//!
//! Behind the log lies the base: the pool's bytes, page by page, with a checksum of each (`base`). A
//! checkpoint copies the pages with lines that were fenced since the last one. The copy of a page may depend
//! on anything fenced before, so the log is durable up to that moment before the page is written. The log
//! repairs a page that a power failure has cut: each of its lines is in the log, or was durable at the last
//! checkpoint and has not been fenced since.
//!
//! ```text
//! step  what                                                  durable before
//! B1    base: every page that is not zero, and checksums      B4
//! B2    from here on fences are logged                        -
//! B3    base: each page that was fenced meanwhile; the log,   B4
//!       up to the moment of its copy, before it
//! B4    the twin gets its name                                sync() returns
//!
//! checkpoint (when six sixteenths of the log are used, by a thread of its own; closing)
//! K1    the tail of the log; the pages fenced since the       -
//!       last checkpoint
//! K2    the log, up to the moment of a page's copy            the write of that page (K3)
//! K3    base: these pages, and their checksums                K4
//! K4    the log's horizon is that tail                        reuse of the log's space
//! ```
//!
//! A checkpoint writes to the log, in K2, although it is to make room there. So fences wait when eleven
//! sixteenths of the log are used, until the checkpoint is over. No more lines are added, and the rest has room
//! for what was fenced by then: the batch that used more than these, the one whose copies are made, the lines
//! that are pending, and the end of the space that a batch does not fit in, each at most a sixteenth.
//!
//! # A disk that fails, or stalls
//!
//! After a failed write or sync nothing more is written: the kernel may take failed pages for written, so no
//! later success would mean anything. [`Pool::sync`](crate::Pool::sync) fails from then on; the pool in
//! memory continues, as in mode `Process`; the twin keeps its state. The same happens if the disk takes
//! nothing for so long that there is no room and the wait for it is over: `wait` for each fence until one
//! gives up. A synchronisation tells only at its end, which may be minutes away, what the disk has taken. So pages are
//! pushed to the disk some at a time, and each time the wait begins anew. The copies of a batch take at most a sixteenth
//! of the log and `LIMIT` bytes; there are two batches.
//! The set of lines takes 8 bytes for each page of the pool, twice.

mod batches;
mod checkpoint;
mod copies;
mod lock;

use core::fmt::Debug;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};
use core::time::Duration;
use std::io;
use std::sync::{Arc, Condvar, OnceLock};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use pmindex_wal::{Log, Patience};

use crate::cell::PmU64;
use crate::error::DurabilityLost;
use crate::line::LINE;
use crate::process::Process;
use crate::region::Mapping;
use crate::threadlist::thread_list;

use super::background;
use super::base::{Sums, stored};
use super::journal::{JournalMoment, Watch};
use super::sets::PageSet;
use super::tally::Tally;
use batches::{Ready, SORTED};
use copies::Copies;
use lock::{Held, Lock};

/// The largest number of bytes of a batch's copies.
const LIMIT: usize = 16 << 20;
/// The largest number of bytes that the copy of a line takes in a batch.
const ENTRY: usize = 8 + LINE;

thread_list! {
    /// For each medium, the lines this thread flushed and has not fenced.
    const NOTED: (u64, Vec<usize>), kept if |noted| !noted.1.is_empty();
}

/// The disk of the base.
pub(crate) trait BaseDisk: Debug + Send + Sync {
    /// Writes pages.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all writes durable.
    fn sync(&self) -> io::Result<()>;

    /// Waits until the disk has taken what was written to these bytes; not durable before [`sync`](Self::sync).
    fn push(&self, _: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    /// Extends it durably to at least `len` bytes; the new ones are zero.
    fn grow(&self, len: u64) -> io::Result<()>;

    /// Gives the twin its name, durably.
    fn publish(&self) -> io::Result<()>;
}

/// The parts of a twin.
#[derive(Debug)]
pub(crate) struct TwinParts {
    pub(crate) log: Log,
    pub(crate) base: Box<dyn BaseDisk>,
    /// The offsets of pages that are in the log and not in the base, if the twin has the state of the pool in
    /// memory; otherwise `None`, and it is made.
    pub(crate) whole: Option<Vec<u64>>,
    /// The parts of the pool that may be other than zero, if the twin is made.
    pub(crate) data: Vec<Range<u64>>,
    /// The checksums in the base.
    pub(crate) sums: Sums,
}

/// How often the twin is written, and how long a fence waits for room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TwinTimes {
    pub(crate) every: Duration,
    pub(crate) wait: Duration,
}

/// The twin of a pool that is open.
#[derive(Debug)]
pub(crate) struct Twin {
    /// Distinguishes the media of this process, closed ones included.
    identity: u64,
    mapping: Arc<Mapping>,
    log: Log,
    base: Box<dyn BaseDisk>,
    /// The parts of the pool that may be other than zero when the twin is made.
    data: Vec<Range<u64>>,
    /// Locked by the thread that writes the base.
    sums: Mutex<Sums>,
    /// Held by the thread that collects or copies: while it does, the twin takes one processor, and leaves the
    /// others to those that write to the pool. Taken before any lock but `sums`.
    work: Mutex<()>,
    times: TwinTimes,
    /// The largest number of lines of a batch.
    limit: usize,
    /// The number of lines that are collected at a time.
    step: usize,
    /// Pages with lines that were fenced since the last checkpoint began, a bit for each. The bits of a batch's
    /// lines are set before it is written.
    dirty: Mutex<PageSet>,
    pub(super) tally: Tally,
    is_lost: AtomicBool,
    state: Lock<State>,
    /// Signalled when there are lines to copy, or room for a batch.
    write: Condvar,
    /// Signalled when there is a batch to write.
    ready: Condvar,
    /// Signalled when a checkpoint is wanted.
    copy: Condvar,
    /// Signalled when lines are durable, when there is room, or when there never will be.
    changed: Condvar,
    /// The process of the threads: a forked child has no such threads.
    process: OnceLock<Process>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Called at each moment, if a test watches.
    watch: OnceLock<Watch>,
    /// While a test holds it, no checkpoint proceeds.
    #[cfg(test)]
    pub(crate) checkpoints: Mutex<()>,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
struct State {
    /// The lines that were fenced since they were last collected.
    pending: Vec<usize>,
    /// The number of lines that are collected for the next batch.
    gathered: usize,
    /// The next batch to write, and memory for the one after it.
    ready: Option<Ready>,
    spare: Option<Copies>,
    /// The number of lines fenced, of those that were copied for a batch, and of those that are durable.
    fenced: u64,
    copied: u64,
    durable: u64,
    /// `true` if fences are logged.
    logs: bool,
    /// `true` if the twin has everything that is durable.
    whole: bool,
    /// `true` if the log has room for the pending lines only.
    tight: bool,
    /// `true` if a thread waits, so that the lines must be written now.
    urgent: bool,
    /// The number of checkpoints wanted, and of those that are over.
    wanted: u64,
    begun: u64,
    over: u64,
    /// The reason why nothing more is written.
    lost: Option<String>,
    stop: bool,
}

/// The state of a twin.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TwinState {
    /// `true` if the twin is complete: not while it is being made, at the start.
    pub whole: bool,
    /// The number of lines that were fenced and are not durable yet: a power failure now would lose them.
    pub behind: u64,
    /// Bytes of the log that an opening after a power failure now would read.
    pub used: u64,
    /// The bytes of the log.
    pub capacity: u64,
    /// Checkpoints since the pool was opened.
    pub checkpoints: u64,
    /// The reason why the twin is no longer written, if so.
    pub lost: Option<String>,
}

/// A thread's name, how much lower its priority is than that of the thread which opens the pool, and its function.
///
/// Threads that write to the pool come first: where all processors are busy, a thread of the twin at the same
/// priority takes whole time slices from them. Fences may wait for the batch, but not for the checkpoint until
/// the log is nearly full, so the checkpoint comes last.
type Work = (&'static str, i32, fn(&Twin));

/// Ends every wait: the twin is lost, or the pool is closing.
struct Over;

impl Twin {
    pub(crate) fn new(mapping: Arc<Mapping>, parts: TwinParts, times: TwinTimes) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let TwinParts { log, base, whole, data, sums } = parts;
        let most = usize::try_from(log.capacity() / 16).unwrap_or(LIMIT);
        let limit = LIMIT.min(most.saturating_sub(128)) / ENTRY;
        let state = State { logs: whole.is_some(), whole: whole.is_some(), ..State::default() };
        let mut dirty = PageSet::default();
        whole.unwrap_or_default().into_iter().for_each(|offset| dirty.add(offset));
        Self {
            identity: NEXT.fetch_add(1, Relaxed),
            mapping,
            log,
            base,
            data,
            sums: Mutex::new(sums),
            work: Mutex::default(),
            times,
            limit,
            step: SORTED.min(limit / 4).max(1),
            dirty: Mutex::new(dirty),
            tally: Tally::default(),
            is_lost: AtomicBool::new(false),
            state: Lock::new(state),
            write: Condvar::new(),
            ready: Condvar::new(),
            copy: Condvar::new(),
            changed: Condvar::new(),
            process: OnceLock::new(),
            threads: Mutex::default(),
            watch: OnceLock::new(),
            #[cfg(test)]
            checkpoints: Mutex::default(),
        }
    }

    pub(crate) fn state(&self) -> TwinState {
        let state = self.state.lock();
        TwinState {
            whole: state.whole,
            behind: state.fenced - state.durable,
            used: self.log.used(),
            capacity: self.log.capacity(),
            checkpoints: state.over,
            lost: state.lost.clone(),
        }
    }

    /// Calls `watch` at each moment from now on, on the thread that causes it.
    pub(super) fn watch(&self, watch: Box<dyn Fn(JournalMoment) + Send + Sync>) {
        let _ = self.watch.set(Watch(watch)); // the first one stays
    }

    fn tell(&self, moment: JournalMoment) {
        if let Some(watch) = self.watch.get() {
            watch.0(moment);
        }
    }

    /// Notes the lines of `words` for this thread's next fence.
    pub(crate) fn note(&self, words: &[PmU64]) {
        let start = words.as_ptr().addr();
        let end = start + size_of_val(words);
        NOTED.with(|noted| {
            let mine = match noted.first_mut() {
                Some((identity, mine)) if *identity == self.identity => mine,
                _ => self.to_the_front(noted),
            };
            let mut line = start & !(LINE - 1);
            if mine.last() == Some(&line) {
                line += LINE;
            }
            while line < end {
                mine.push(line);
                line += LINE;
            }
        });
    }

    /// Returns the lines that this thread noted for this medium, which become the first entry.
    #[cold]
    fn to_the_front<'n>(&self, noted: &'n mut Vec<(u64, Vec<usize>)>) -> &'n mut Vec<usize> {
        // Remove empty entries of other media: their pools are mostly closed.
        noted.retain(|entry| entry.0 == self.identity || !entry.1.is_empty());
        let at = noted.iter().position(|entry| entry.0 == self.identity).unwrap_or_else(|| {
            noted.push((self.identity, Vec::new()));
            noted.len() - 1
        });
        noted.swap(0, at);
        &mut noted[0].1
    }

    /// Adds the lines that this thread noted to those of all earlier fences.
    pub(crate) fn fence(&self) {
        NOTED.with(|noted| {
            let Some((_, lines)) = noted.iter_mut().find(|entry| entry.0 == self.identity) else {
                return;
            };
            // A fence in progress guarantees nothing, so a large one is added in parts.
            lines.chunks(self.limit).for_each(|part| self.append(part));
            lines.clear();
        });
    }

    fn append(&self, lines: &[usize]) {
        if self.is_lost.load(Acquire) {
            return;
        }
        let mut state = self.state.lock();
        if !state.has_room(self.limit, lines.len()) {
            self.await_room(&mut state, lines.len());
        }
        if state.lost.is_some() {
            return;
        }
        if !state.logs {
            let mut dirty = self.dirty.lock();
            return self.mapping.lines_at(lines.iter().copied(), |offset, _| dirty.add(offset));
        }
        let before = state.pending.len();
        state.pending.extend_from_slice(lines);
        state.fenced += lines.len() as u64;
        // The first line begins an interval; many are collected while more are fenced.
        let first = before == 0 && state.gathered == 0;
        if first || state.pending.len() / self.step > before / self.step {
            self.write.notify_one();
        }
    }

    #[cold]
    fn await_room(&self, state: &mut Held<'_, State>, lines: usize) {
        let mut patience = Patience::new(self.times.wait, self.log.progress());
        while state.lost.is_none() && !state.has_room(self.limit, lines) {
            state.urgent = true;
            self.write.notify_one();
            let Some(until) = patience.ends() else {
                state.wait(&self.changed);
                continue;
            };
            if state.wait_until(&self.changed, until) && patience.is_over(self.log.progress()) {
                let waited = self.times.wait;
                self.lose(state, &format!("the disk has taken nothing for {waited:?}"));
            }
        }
    }

    /// Waits until everything that was fenced before this call is durable.
    pub(crate) fn sync(&self) -> Result<(), DurabilityLost> {
        let mut state = self.state.lock();
        let mark = state.fenced;
        while !(state.whole && state.durable >= mark) {
            self.wait_once(&mut state, mark).map_err(|Over| DurabilityLost)?;
        }
        // Not after a failure of any kind.
        if state.lost.is_some() { Err(DurabilityLost) } else { Ok(()) }
    }

    /// Waits until this many lines are durable.
    fn await_durable(&self, mark: u64) -> Result<(), Over> {
        let mut state = self.state.lock();
        while state.durable < mark {
            self.wait_once(&mut state, mark)?;
        }
        Ok(())
    }

    /// Waits for a change; has this many lines copied at once, if they are not yet.
    fn wait_once(&self, state: &mut Held<'_, State>, mark: u64) -> Result<(), Over> {
        if state.is_over() {
            return Err(Over);
        }
        if state.copied < mark {
            state.urgent = true;
            self.write.notify_one();
        }
        state.wait(&self.changed);
        Ok(())
    }

    /// Writes everything that was fenced before this call to the base, and empties the log except for what
    /// other threads fence meanwhile.
    pub(crate) fn checkpoint(&self) -> Result<(), DurabilityLost> {
        let mut state = self.state.lock();
        let mine = state.begun + 1;
        state.wanted = state.wanted.max(mine);
        self.copy.notify_one();
        while state.over < mine {
            if state.is_over() {
                return Err(DurabilityLost);
            }
            state.wait(&self.changed);
        }
        Ok(())
    }

    /// Makes room for `len` bytes of the pool, durably, before anything can be fenced there.
    pub(crate) fn grow(&self, len: u64) -> io::Result<()> {
        if self.is_lost.load(Acquire) { Ok(()) } else { self.base.grow(stored(len)) }
    }

    fn lose(&self, state: &mut State, why: &str) {
        if state.lost.is_none() {
            state.lost = Some(why.to_owned());
        }
        self.is_lost.store(true, Release);
        state.pending = Vec::new();
        self.log.end("a write", why); // a thread that waits for room in it would wait in vain
        self.wake_all();
    }

    fn wake_all(&self) {
        for change in [&self.write, &self.ready, &self.copy, &self.changed] {
            change.notify_all();
        }
    }

    // --- its threads --------------------------------------------------------------------------

    /// Starts the threads.
    pub(crate) fn begin(self: &Arc<Self>) -> io::Result<()> {
        let _ = self.process.set(Process::current()); // begun once
        let works: [Work; 3] = [
            ("pmindex-twin", 5, Self::collect_often),
            ("pmindex-log", 5, Self::write_often),
            ("pmindex-base", 10, Self::copy_often),
        ];
        for (name, nice, work) in works {
            let twin = Arc::clone(self);
            let thread = background::start(name, move || {
                crate::sys::be_nice(nice);
                work(&twin);
            })?;
            self.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Ends the threads; pending lines are not written.
    pub(crate) fn end(&self) {
        // After a fork the threads belong to the parent, and they may hold any lock.
        if !self.process.get().is_some_and(|process| process.is_current()) {
            return;
        }
        {
            let mut state = self.state.lock();
            state.stop = true;
            self.wake_all();
        }
        for thread in core::mem::take(&mut *self.threads.lock()) {
            let _ = thread.join();
        }
    }

    fn check<T>(&self, what: &str, result: io::Result<T>) -> Result<T, Over> {
        result.map_err(|error| {
            self.lose(&mut self.state.lock(), &format!("{what}: {error}"));
            Over
        })
    }
}

impl State {
    /// Returns `true` if nothing more is written.
    fn is_over(&self) -> bool {
        self.stop || self.lost.is_some()
    }

    fn has_room(&self, limit: usize, lines: usize) -> bool {
        !self.tight && self.gathered + self.pending.len() + lines <= limit
    }
}
