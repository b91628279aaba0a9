//! A twin on a disk of a pool in memory: implements flush and fence in mode `Periodic`.
//!
//! A flush notes lines for the thread. The fence adds them to those of earlier fences, under one lock, and
//! returns. A thread periodically copies the lines that were fenced since its last batch, and writes the copies
//! to a log as one batch. While it copies, threads fence more lines: it copies these next, in fewer and shorter
//! passes, and the last few under the lock. So a batch ends at one moment: it has a copy of each line that was
//! fenced until then, made after that fence, and nothing of what was stored later. Persistent memory could hold
//! these lines after a power failure at that moment, since it may keep any line that was stored to and not
//! fenced yet. One thread makes all copies, so later ones of a line are later in the log.
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
//! checkpoint (when half of the log is used, by a thread of its own; closing)
//! K1    the tail of the log; the pages fenced since the       -
//!       last checkpoint
//! K2    the log, up to the moment of a page's copy            the write of that page (K3)
//! K3    base: these pages, and their checksums                K4
//! K4    the log's horizon is that tail                        reuse of the log's space
//! ```
//!
//! A checkpoint writes to the log, in K2, although it is to make room there. So fences wait when five eighths
//! of the log are used, until the checkpoint is over: the copies pending by then fit in the rest, and no more
//! are added.
//!
//! # A disk that fails, or stalls
//!
//! After a failed write or sync nothing more is written: the kernel may take failed pages for written, so no
//! later success would mean anything. [`Pool::sync`](crate::Pool::sync) fails from then on; the pool in
//! memory continues, as in mode `Process`; the twin keeps its state. The same happens if the disk takes
//! nothing for so long that there is no room and the wait for it is over: `wait` for each fence until one
//! gives up. The copies of a batch take at most a sixteenth of the log and `LIMIT` bytes of memory, and half as
//! much in addition.

use core::cell::RefCell;
use core::fmt::Debug;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use core::time::Duration;
use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use pmindex_wal::{Batch, Log};

use crate::alloc::PAGE;
use crate::cell::PmU64;
use crate::error::DurabilityLost;
use crate::line::LINE;
use crate::region::Mapping;

use super::base::{GROUP_BYTES, Sums, place_of, stored};
use super::journal::{JournalMoment, Watch};
use super::tally::Tally;

/// The largest number of bytes of a batch's copies.
const LIMIT: usize = 16 << 20;
/// The largest number of bytes that the copy of a line takes in a batch.
const ENTRY: usize = 8 + LINE;
/// The number of lines that are copied while fences wait.
const FEW: usize = 16;
/// The largest number of passes over the lines fenced meanwhile before fences wait.
const GATHERS: u32 = 6;
/// The largest number of passes over the pages fenced meanwhile before fences are logged.
const PASSES: u32 = 4;
/// The number of pages that are copied before they are written.
const CHUNK: usize = 256;
const PAGE_BYTES: usize = PAGE as usize;

thread_local! {
    /// For each medium, the lines this thread flushed and has not fenced.
    static NOTED: RefCell<Vec<(u64, Vec<usize>)>> = const { RefCell::new(Vec::new()) };
}

/// The disk of the base.
pub(crate) trait BaseDisk: Debug + Send + Sync {
    /// Writes pages.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all writes durable.
    fn sync(&self) -> io::Result<()>;

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
    /// Locked by the thread that writes the base.
    sums: Mutex<Sums>,
    times: TwinTimes,
    /// The largest number of lines of a batch.
    limit: usize,
    /// Pages with lines that were fenced since the last checkpoint began, a bit for each. The bits of a batch's
    /// lines are set before it is written.
    dirty: Mutex<Vec<u64>>,
    pub(super) tally: Tally,
    is_lost: AtomicBool,
    state: Mutex<State>,
    /// Signalled when there are lines to write.
    write: Condvar,
    /// Signalled when a checkpoint is wanted.
    copy: Condvar,
    /// Signalled when lines are durable, when there is room, or when there never will be.
    changed: Condvar,
    /// The process of the threads: a forked child has no such threads.
    process: AtomicU32,
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
    /// The lines that were fenced and are in no batch yet.
    pending: Vec<usize>,
    /// The number of lines that are being copied for the next batch.
    gathered: usize,
    /// The number of lines fenced, and of those that are durable.
    fenced: u64,
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
/// five eighths of the log are used, so the checkpoint comes last.
type Work = (&'static str, i32, fn(&Twin));

/// The way pages are copied to the base.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// The base is zero, and is no part of a twin yet.
    Anew,
    /// The base is no part of a twin yet.
    Again,
    /// Each page is written when the log is durable up to the moment of its copy.
    Logged,
}

/// Ends every wait: the twin is lost, or the pool is closing.
struct Over;

impl Twin {
    pub(crate) fn new(mapping: Arc<Mapping>, parts: TwinParts, times: TwinTimes) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let TwinParts { log, base, whole, sums } = parts;
        let most = usize::try_from(log.capacity() / 16).unwrap_or(LIMIT);
        let limit = LIMIT.min(most.saturating_sub(128)) / ENTRY;
        let state = State { logs: whole.is_some(), whole: whole.is_some(), ..State::default() };
        let mut dirty = Vec::new();
        whole.unwrap_or_default().into_iter().for_each(|offset| set(&mut dirty, offset));
        Self {
            identity: NEXT.fetch_add(1, Relaxed),
            mapping,
            log,
            base,
            sums: Mutex::new(sums),
            times,
            limit,
            dirty: Mutex::new(dirty),
            tally: Tally::default(),
            is_lost: AtomicBool::new(false),
            state: Mutex::new(state),
            write: Condvar::new(),
            copy: Condvar::new(),
            changed: Condvar::new(),
            process: AtomicU32::new(0),
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
        NOTED.with_borrow_mut(|noted| {
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
        NOTED.with_borrow_mut(|noted| {
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
            return self
                .mapping
                .lines_at(lines.iter().copied(), |offset, _| set(&mut dirty, offset));
        }
        let first = state.pending.is_empty();
        state.pending.extend_from_slice(lines);
        state.fenced += lines.len() as u64;
        // A batch begins while there is room for the lines that are fenced until its copies are made.
        let many = !state.urgent && state.pending.len() >= self.limit / 4;
        state.urgent |= many;
        if first || many {
            self.write.notify_one();
        }
    }

    #[cold]
    fn await_room(&self, state: &mut MutexGuard<'_, State>, lines: usize) {
        let until = Instant::now().checked_add(self.times.wait); // none: for ever
        while state.lost.is_none() && !state.has_room(self.limit, lines) {
            state.urgent = true;
            self.write.notify_one();
            let Some(until) = until else {
                self.changed.wait(state);
                continue;
            };
            if self.changed.wait_until(state, until).timed_out() {
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
            self.wait_once(&mut state).map_err(|Over| DurabilityLost)?;
        }
        // Not after a failure of any kind.
        if state.lost.is_some() { Err(DurabilityLost) } else { Ok(()) }
    }

    /// Waits until this many lines are durable.
    fn await_durable(&self, mark: u64) -> Result<(), Over> {
        let mut state = self.state.lock();
        while state.durable < mark {
            self.wait_once(&mut state)?;
        }
        Ok(())
    }

    fn wait_once(&self, state: &mut MutexGuard<'_, State>) -> Result<(), Over> {
        if state.lost.is_some() || state.stop {
            return Err(Over);
        }
        state.urgent = true;
        self.write.notify_one();
        self.changed.wait(state);
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
            if state.lost.is_some() || state.stop {
                return Err(DurabilityLost);
            }
            self.changed.wait(&mut state);
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
        self.write.notify_all();
        self.copy.notify_all();
        self.changed.notify_all();
    }

    // --- its threads --------------------------------------------------------------------------

    /// Starts the threads.
    pub(crate) fn begin(self: &Arc<Self>) -> io::Result<()> {
        self.process.store(std::process::id(), Release);
        let works: [Work; 2] =
            [("pmindex-twin", 5, Self::write_often), ("pmindex-base", 10, Self::copy_often)];
        for (name, nice, work) in works {
            let twin = Arc::clone(self);
            let thread = std::thread::Builder::new().name(name.into());
            let thread = thread.spawn(move || {
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
        if self.process.load(Acquire) != std::process::id() {
            return;
        }
        {
            let mut state = self.state.lock();
            state.stop = true;
            self.write.notify_all();
            self.copy.notify_all();
            self.changed.notify_all();
        }
        for thread in core::mem::take(&mut *self.threads.lock()) {
            let _ = thread.join();
        }
    }

    fn write_often(&self) {
        let mut copies = Copies::default();
        let mut state = self.state.lock();
        while !state.stop && state.lost.is_none() {
            if state.pending.is_empty() {
                state.urgent = false;
                self.write.wait(&mut state);
                continue;
            }
            let until = Instant::now() + self.times.every;
            while !state.urgent && !state.stop && state.lost.is_none() {
                if self.write.wait_until(&mut state, until).timed_out() {
                    break;
                }
            }
            if state.stop || state.lost.is_some() {
                break;
            }
            self.gather(&mut state, &mut copies);
            state.urgent = false; // all that a thread may wait for is in this batch
            let mark = state.fenced;
            self.changed.notify_all(); // there is room
            let written = MutexGuard::unlocked(&mut state, || {
                self.tell(JournalMoment::Writing);
                self.tally.round(copies.lines, copies.batch.bytes());
                self.log.write(&copies.batch).map(|_| {
                    self.tell(JournalMoment::Written);
                    self.log.used()
                })
            });
            match written {
                Ok(used) => {
                    state.durable = mark;
                    self.note_used(&mut state, used);
                    self.changed.notify_all();
                }
                Err(error) => self.lose(&mut state, &format!("writing to the log: {error}")),
            }
        }
    }

    /// Copies all pending lines. When it returns, no line is pending, and each copy is at least as new as the
    /// line's last fence.
    fn gather(&self, state: &mut MutexGuard<'_, State>, copies: &mut Copies) {
        copies.clear();
        for _ in 1..GATHERS {
            if state.pending.len() <= FEW {
                break;
            }
            core::mem::swap(&mut state.pending, &mut copies.addresses);
            state.gathered += copies.addresses.len();
            MutexGuard::unlocked(state, || copies.make(&self.mapping, &self.dirty));
        }
        // Under the lock, so that the batch ends at one moment.
        core::mem::swap(&mut state.pending, &mut copies.addresses);
        copies.make(&self.mapping, &self.dirty);
        state.gathered = 0;
    }

    fn copy_often(&self) {
        let whole = self.state.lock().whole;
        if !whole && let Err(Over) = self.build() {
            return;
        }
        let mut state = self.state.lock();
        while !state.stop && state.lost.is_none() {
            if state.wanted <= state.begun {
                self.copy.wait(&mut state);
                continue;
            }
            state.begun += 1;
            let begun = state.begun;
            // Lines fenced from here on are for the next checkpoint.
            // K1: a batch before the tail has no line outside of these pages.
            let tail = self.log.tail();
            let dirty = core::mem::take(&mut *self.dirty.lock());
            let done = MutexGuard::unlocked(&mut state, || self.advance(tail, &dirty));
            if done.is_ok() {
                state.over = begun;
                self.note_used(&mut state, self.log.used());
                self.changed.notify_all();
            }
        }
    }

    /// Records that `used` bytes of the log are used.
    fn note_used(&self, state: &mut State, used: u64) {
        let capacity = self.log.capacity();
        state.tight = used > capacity / 8 * 5;
        if used > capacity / 2 && state.whole {
            state.wanted = state.wanted.max(state.begun + 1);
            self.copy.notify_one();
        }
    }

    /// K2 to K4.
    fn advance(&self, tail: u64, dirty: &[u64]) -> Result<(), Over> {
        #[cfg(test)]
        drop(self.checkpoints.lock());
        self.copy_pages(pages_in(dirty), How::Logged)?;
        self.tally.sync();
        self.check("synchronising the base", self.base.sync())?; // durable before: K4
        self.tell(JournalMoment::Synchronised);
        let truncated = self.log.truncate(tail).map_err(io::Error::other);
        self.check("ending a checkpoint", truncated)?;
        self.tell(JournalMoment::Truncated);
        Ok(())
    }

    /// B1 to B4.
    fn build(&self) -> Result<(), Over> {
        let all = (0..self.mapping.len()).step_by(PAGE_BYTES);
        self.copy_pages(all, How::Anew)?;
        for pass in 1.. {
            let dirty = {
                let mut state = self.state.lock();
                let dirty = core::mem::take(&mut *self.dirty.lock());
                state.logs = pass == PASSES || pages_in(&dirty).count() <= CHUNK; // B2
                if state.logs {
                    drop(state);
                    self.copy_pages(pages_in(&dirty), How::Logged)?;
                    break;
                }
                dirty
            };
            self.copy_pages(pages_in(&dirty), How::Again)?;
        }
        self.tally.sync();
        self.check("synchronising the base", self.base.sync())?; // durable before: B4
        self.check("naming the twin", self.base.publish())?;
        let mut state = self.state.lock();
        state.whole = true;
        self.note_used(&mut state, self.log.used());
        self.changed.notify_all();
        Ok(())
    }

    /// Copies these pages to the base.
    fn copy_pages(&self, pages: impl Iterator<Item = u64>, how: How) -> Result<(), Over> {
        let (mut pages, mut bytes) = (pages.peekable(), Vec::with_capacity(CHUNK * PAGE_BYTES));
        let mut sums = self.sums.lock();
        while pages.peek().is_some() {
            let (mut runs, mut next) = (Vec::<(u64, usize)>::new(), None);
            bytes.clear();
            for page in pages.by_ref().take(CHUNK) {
                let start = bytes.len();
                let mut any = 0;
                self.mapping.lines_from(page, PAGE_BYTES, |_, words| {
                    any |= words.iter().fold(0, |any, word| any | word);
                    bytes.extend_from_slice(words.map(u64::to_le_bytes).as_flattened());
                });
                if how == How::Anew && any == 0 {
                    bytes.truncate(start);
                    continue;
                }
                sums.note(page, &bytes[start..]);
                match runs.last_mut() {
                    Some(run) if next == Some(page) && !page.is_multiple_of(GROUP_BYTES) => {
                        run.1 = bytes.len();
                    }
                    _ => runs.push((page, bytes.len())),
                }
                next = Some(page + PAGE);
            }
            let mark = {
                let state = self.state.lock();
                if state.stop {
                    return Err(Over);
                }
                state.fenced
            };
            if how == How::Logged {
                self.await_durable(mark)?; // K2, durable before: K3
            }
            let mut start = 0;
            for (offset, end) in runs {
                self.write_base(place_of(offset), &bytes[start..end])?;
                start = end;
            }
        }
        // Nothing must be durable before: where pages are newer than their checksums, the log has their
        // lines.
        sums.take_changed().try_for_each(|(place, stored)| self.write_base(place, &stored))
    }

    fn write_base(&self, place: u64, bytes: &[u8]) -> Result<(), Over> {
        self.check("writing to the base", self.base.write(place, bytes))?;
        self.tell(JournalMoment::Copied);
        Ok(())
    }

    fn check<T>(&self, what: &str, result: io::Result<T>) -> Result<T, Over> {
        result.map_err(|error| {
            self.lose(&mut self.state.lock(), &format!("{what}: {error}"));
            Over
        })
    }
}

impl State {
    fn has_room(&self, limit: usize, lines: usize) -> bool {
        !self.tight && self.gathered + self.pending.len() + lines <= limit
    }
}

/// Marks the page at this offset.
fn set(dirty: &mut Vec<u64>, offset: u64) {
    let page = (offset / PAGE) as usize;
    if page / 64 >= dirty.len() {
        dirty.resize(page / 64 + 1, 0);
    }
    dirty[page / 64] |= 1 << (page % 64);
}

/// Returns the offsets of the marked pages.
fn pages_in(dirty: &[u64]) -> impl Iterator<Item = u64> {
    dirty.iter().enumerate().flat_map(|(i, &word)| {
        let bits = (0..64).filter(move |bit| word >> bit & 1 != 0);
        bits.map(move |bit| (i as u64 * 64 + bit) * PAGE)
    })
}

/// The copies of a batch; their memory is used again for the next one.
#[derive(Default)]
struct Copies {
    /// The addresses of the lines to copy next.
    addresses: Vec<usize>,
    /// The pages of the lines that were copied last.
    pages: Vec<u64>,
    record: Vec<u8>,
    batch: Batch,
    /// The number of lines in the batch.
    lines: u64,
}

impl Copies {
    fn clear(&mut self) {
        self.batch.clear();
        self.lines = 0;
    }

    /// Copies the lines at `addresses`, as one record of runs of adjacent lines, as in a journal. A record of the
    /// same batch that comes later has the newer copies. Marks their pages.
    fn make(&mut self, mapping: &Mapping, dirty: &Mutex<Vec<u64>>) {
        let Self { addresses, pages, record, batch, lines } = self;
        addresses.sort_unstable();
        addresses.dedup();
        record.clear();
        let mut run = None::<(usize, u64, u64)>;
        mapping.lines_at(addresses.drain(..), |offset, words| {
            let page = offset / PAGE * PAGE;
            if pages.last() != Some(&page) {
                pages.push(page);
            }
            *lines += 1;
            let line = offset / LINE as u64;
            let (at, first, count) = match run {
                Some((at, first, count)) if first + count == line && count < super::lines::RUN => {
                    (at, first, count + 1)
                }
                _ => {
                    record.extend_from_slice(&[0; 8]);
                    (record.len() - 8, line, 1)
                }
            };
            run = Some((at, first, count));
            record[at..at + 8].copy_from_slice(&(first << 16 | count).to_le_bytes());
            record.extend_from_slice(words.map(u64::to_le_bytes).as_flattened());
        });
        if !record.is_empty() {
            batch.push(&[record]);
        }
        let mut dirty = dirty.lock();
        pages.drain(..).for_each(|page| set(&mut dirty, page));
    }
}
