//! A twin on a disk of a pool in memory: implements flush and fence in mode `Periodic`.
//!
//! A flush notes lines for the thread. The fence appends copies of them, in memory, to those of earlier
//! fences, and returns. One lock orders the copies like the fences, so of two copies of a line the later one
//! is later. A thread periodically writes the pending copies to a log, as one batch. Any prefix of the log
//! holds the lines that persistent memory could hold after a power failure at the moment of its last copy:
//! every line that was fenced until then, and no later store.
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
//! gives up. Pending copies take at most a sixteenth of the log and `LIMIT` bytes of memory; those being
//! written take three times as much in addition.

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

/// The largest number of bytes that are pending before they are written.
const LIMIT: usize = 16 << 20;
/// The bytes of a pending copy: its line's number, and the line.
const ENTRY: usize = 8 + LINE;
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
    /// The largest number of pending bytes.
    limit: usize,
    pub(super) tally: Tally,
    is_lost: AtomicBool,
    state: Mutex<State>,
    /// Signalled when there are copies to write.
    write: Condvar,
    /// Signalled when a checkpoint is wanted.
    copy: Condvar,
    /// Signalled when copies are durable, when there is room, or when there never will be.
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
    /// Copies of lines, in the order of the fences.
    pending: Vec<u8>,
    /// The number of copies made, and of those that are durable.
    copied: u64,
    durable: u64,
    /// `true` if fences are logged.
    logs: bool,
    /// `true` if the twin has everything that is durable.
    whole: bool,
    /// `true` if the log has room for the pending copies only.
    tight: bool,
    /// `true` if a thread waits, so that the copies must be written now.
    urgent: bool,
    /// Pages with lines that were fenced since the last checkpoint began, a bit for each.
    dirty: Vec<u64>,
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

/// A thread's name and its function.
type Work = (&'static str, fn(&Twin));

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
        let limit = LIMIT.min(most.saturating_sub(128)) / ENTRY * ENTRY;
        let mut state = State { logs: whole.is_some(), whole: whole.is_some(), ..State::default() };
        whole.unwrap_or_default().into_iter().for_each(|offset| state.mark(offset));
        Self {
            identity: NEXT.fetch_add(1, Relaxed),
            mapping,
            log,
            base,
            sums: Mutex::new(sums),
            times,
            limit,
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
            behind: state.copied - state.durable,
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

    /// Copies the lines that this thread noted behind those of all earlier fences.
    pub(crate) fn fence(&self) {
        NOTED.with_borrow_mut(|noted| {
            let Some((_, lines)) = noted.iter_mut().find(|entry| entry.0 == self.identity) else {
                return;
            };
            // A line that was flushed twice is copied twice, and written once: see `Writing`. A fence in
            // progress guarantees nothing, so a large one is copied in parts.
            for part in lines.chunks(self.limit / ENTRY) {
                self.append(part);
            }
            lines.clear();
        });
    }

    fn append(&self, lines: &[usize]) {
        if self.is_lost.load(Acquire) {
            return;
        }
        let mut state = self.state.lock();
        if !state.has_room(self.limit, lines.len() * ENTRY) {
            self.await_room(&mut state, lines.len() * ENTRY);
        }
        let State { pending, dirty, logs, copied, lost, .. } = &mut *state;
        if lost.is_some() {
            return;
        }
        let first = *logs && pending.is_empty();
        self.mapping.lines_at(lines.iter().copied(), |offset, words| {
            set(dirty, offset);
            if *logs {
                let mut entry = [[0; 8]; ENTRY / 8];
                entry[0] = (offset / LINE as u64).to_le_bytes();
                for (bytes, word) in entry[1..].iter_mut().zip(words) {
                    *bytes = word.to_le_bytes();
                }
                pending.extend_from_slice(entry.as_flattened());
                *copied += 1;
            }
        });
        if first {
            self.write.notify_one();
        }
    }

    #[cold]
    fn await_room(&self, state: &mut MutexGuard<'_, State>, bytes: usize) {
        let until = Instant::now().checked_add(self.times.wait); // none: for ever
        while state.lost.is_none() && !state.has_room(self.limit, bytes) {
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
        let mark = state.copied;
        while !(state.whole && state.durable >= mark) {
            self.wait_once(&mut state).map_err(|Over| DurabilityLost)?;
        }
        // Not after a failure of any kind.
        if state.lost.is_some() { Err(DurabilityLost) } else { Ok(()) }
    }

    /// Waits until this many copies are durable.
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

    /// Returns the pending copies of a line, in order.
    #[cfg(test)]
    pub(crate) fn copies_of(&self, offset: u64) -> Vec<[u64; 8]> {
        let state = self.state.lock();
        let words = |entry: &[u8; ENTRY]| -> [u64; 9] {
            core::array::from_fn(|i| u64::from_le_bytes(entry.as_chunks().0[i]))
        };
        let entries = state.pending.as_chunks().0.iter().map(words);
        let mine = entries.filter(|words| words[0] == offset / LINE as u64);
        mine.map(|words| core::array::from_fn(|i| words[i + 1])).collect()
    }

    // --- its threads --------------------------------------------------------------------------

    /// Starts the threads.
    pub(crate) fn begin(self: &Arc<Self>) -> io::Result<()> {
        self.process.store(std::process::id(), Release);
        let works: [Work; 2] =
            [("pmindex-twin", Self::write_often), ("pmindex-base", Self::copy_often)];
        for (name, work) in works {
            let twin = Arc::clone(self);
            let thread = std::thread::Builder::new().name(name.into());
            let thread = thread.spawn(move || work(&twin))?;
            self.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Ends the threads; pending copies are not written.
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
        let (mut spare, mut writing) = (Vec::new(), Writing::default());
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
            state.urgent = false;
            let taken = core::mem::replace(&mut state.pending, spare);
            let mark = state.copied;
            self.changed.notify_all(); // there is room
            let written = MutexGuard::unlocked(&mut state, || {
                self.tell(JournalMoment::Writing);
                let (batch, lines) = writing.batch_of(&taken);
                self.tally.round(lines, batch.bytes());
                self.log.write(batch).map(|_| {
                    self.tell(JournalMoment::Written);
                    self.log.used()
                })
            });
            spare = taken;
            spare.clear();
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
            let tail = self.log.tail(); // K1: of nothing before it is any line outside of `dirty`
            let dirty = core::mem::take(&mut state.dirty);
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
                let dirty = core::mem::take(&mut state.dirty);
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
                state.copied
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
    fn has_room(&self, limit: usize, bytes: usize) -> bool {
        !self.tight && self.pending.len() + bytes <= limit
    }

    fn mark(&mut self, offset: u64) {
        set(&mut self.dirty, offset);
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

/// The memory of the writing thread, reused for each batch.
#[derive(Default)]
struct Writing {
    /// The line and the number of each copy: one word each.
    order: Vec<u64>,
    record: Vec<u8>,
    batch: Batch,
}

impl Writing {
    /// Makes a batch of copies that were made in this order: the last of each line, since a batch is applied
    /// entirely or not at all; in runs of adjacent lines, as in a journal. Also returns the number of lines.
    fn batch_of(&mut self, copies: &[u8]) -> (&Batch, u64) {
        const COPY_BITS: u32 = 20;
        const { assert!(LIMIT / ENTRY < 1 << COPY_BITS) };
        let Self { order, record, batch } = self;
        let entries = copies.as_chunks::<ENTRY>().0;
        let line_of =
            |entry: &[u8; ENTRY]| entry.first_chunk().map_or(0, |n| u64::from_le_bytes(*n));
        order.clear();
        order.extend((0..).zip(entries).map(|(i, entry)| line_of(entry) << COPY_BITS | i));
        order.sort_unstable();
        record.clear();
        let (mut run, mut lines) = (None::<(usize, u64, u64)>, 0);
        for (i, &next) in order.iter().enumerate() {
            let (line, copy) = (next >> COPY_BITS, next & ((1 << COPY_BITS) - 1));
            if order.get(i + 1).is_some_and(|next| next >> COPY_BITS == line) {
                continue;
            }
            lines += 1;
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
            record.extend_from_slice(&entries[copy as usize][8..]);
        }
        batch.clear();
        batch.push(&[record]);
        (batch, lines)
    }
}
