//! Moments: the order of commits, and their readers.
//!
//! Every watched commit has a number. A *moment* is a number too: it has all commits up to it and none after
//! it. A commit takes its number and notes the old values of its records ([`versions`](crate::versions)) in
//! one step, under the lock here; it is *unfinished* until all its changes are in the indexes. A thread that
//! begins to read waits until no commit of its moment is unfinished, so a moment never has half a commit, and
//! has every commit that returned before.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use pmindex_core::Medium;

use crate::gate::Gate;
use crate::handles::Handle;
use crate::kept::KeptLog;
use crate::observe;
use crate::wait::wait_until;
use crate::wrong::{Faults, Wrong};

/// The old values of a map.
pub(crate) trait Past: Send + Sync {
    /// Drops the values that only readers of moments before `oldest` need, a few at a time; their bytes are taken from
    /// `kept` at once, so that no other reader is ended for them. Hashes and compares keys, which may panic: the rest is
    /// then dropped by the next call.
    fn forget(&self, oldest: u64, kept: &AtomicU64);
    /// Drops all values, and takes their bytes from `kept`. Calls nothing of the user's types.
    fn clear(&self, kept: &AtomicU64);
}

/// The moments of a store.
pub(crate) struct Moments {
    pub(crate) gate: Arc<Gate>,
    pub(crate) faults: Faults,
    state: Mutex<State>,
    /// Notified when a commit is finished.
    finished: Condvar,
    /// The list is replaced when it changes, so that its lock is held briefly.
    maps: Mutex<Arc<Vec<Arc<dyn Past>>>>,
    /// Readers of this and of earlier moments were ended.
    ended: AtomicU64,
    /// The approximate bytes of old values.
    kept: AtomicU64,
    limit: u64,
    /// The number of readers of moments.
    reading: AtomicU64,
    /// `true` if maps may have old values. Changes under the lock.
    has_past: AtomicBool,
}

struct State {
    /// The last commit.
    last: u64,
    /// Ascending.
    unfinished: Vec<u64>,
    /// The moments that are read, ascending, and the number of their readers.
    readers: Vec<(u64, u32)>,
    /// The number of callers for which all commits write records.
    logging: u32,
    /// Counted for reports, since the store was opened.
    committed: u64,
    conflicts: u64,
    ended: u64,
}

/// Figures for a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) committed: u64,
    pub(crate) conflicts: u64,
    pub(crate) ended: u64,
    pub(crate) readers: u64,
    /// The commits since the oldest reader began.
    pub(crate) behind: u64,
    pub(crate) unfinished: u64,
    pub(crate) logging: u32,
}

impl State {
    /// Returns the last commit up to which all are finished.
    fn finished(&self) -> u64 {
        self.unfinished.first().map_or(self.last, |first| first - 1)
    }

    /// Returns the newest moment that is read, except by one reader of `own`.
    fn newest_but(&self, own: Option<u64>) -> Option<u64> {
        let mut newest = self.readers.iter().rev();
        newest.find(|(moment, count)| Some(*moment) != own || *count > 1).map(|(moment, _)| *moment)
    }

    /// Returns a moment such that no reader has, or will have, an earlier one.
    fn oldest(&self) -> u64 {
        self.readers.first().map_or(self.last, |(oldest, _)| *oldest)
    }

    /// Adds a reader of the last moment.
    fn add_reader(&mut self) {
        match self.readers.last_mut() {
            Some((moment, count)) if *moment == self.last => *count += 1,
            _ => self.readers.push((self.last, 1)),
        }
    }

    /// Removes a reader, unless it was ended.
    fn remove_reader(&mut self, moment: u64) {
        if let Ok(at) = self.readers.binary_search_by_key(&moment, |(moment, _)| *moment) {
            self.readers[at].1 -= 1;
            if self.readers[at].1 == 0 {
                self.readers.remove(at);
            }
        }
    }

    /// Notes that all changes of a commit are made.
    fn finish(&mut self, number: u64) {
        self.unfinished.retain(|unfinished| *unfinished != number);
    }
}

impl fmt::Debug for Moments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moments").field("kept", &self.kept).finish_non_exhaustive()
    }
}

/// The reason why a commit is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Other commits changed what it has read.
    Conflicts,
    /// The old values of its records are needed and were not read.
    NotRead,
}

/// A commit in progress, for noting its changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commit<'s> {
    /// Its number.
    pub(crate) number: u64,
    /// The newest moment that another reader has.
    pub(crate) newest_reader: Option<u64>,
    /// The moments that are read, ascending, and the number of their readers.
    pub(crate) readers: &'s [(u64, u32)],
    /// The approximate bytes of old values. Those of a value are added when it is noted: a panic may end the commit then.
    pub(crate) kept: &'s AtomicU64,
}

impl Moments {
    /// Keeps up to about `limit` bytes of old values. The first commit has a number greater than `last`.
    pub(crate) fn new(limit: u64, last: u64) -> Arc<Self> {
        Arc::new(Self {
            gate: Arc::new(Gate::new()),
            faults: Faults::default(),
            state: Mutex::new(State {
                last,
                unfinished: Vec::new(),
                readers: Vec::new(),
                logging: 0,
                committed: 0,
                conflicts: 0,
                ended: 0,
            }),
            finished: Condvar::new(),
            maps: Mutex::default(),
            ended: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            limit,
            reading: AtomicU64::new(0),
            has_past: AtomicBool::new(false),
        })
    }

    /// Adds a map, whose old values are dropped when no reader needs them.
    pub(crate) fn add(&self, map: Arc<dyn Past>) {
        Arc::make_mut(&mut self.maps.lock()).push(map);
    }

    /// Removes a map, whose old values nothing can read any more.
    pub(crate) fn remove(&self, map: &Arc<dyn Past>) {
        Arc::make_mut(&mut self.maps.lock()).retain(|other| !Arc::ptr_eq(other, map));
        map.clear(&self.kept);
    }

    /// Watches all writes until the result is dropped.
    pub(crate) fn watch(this: Handle<Self>, pm: &impl Medium) -> Watching {
        this.gate.watch(pm);
        Watching { moments: this }
    }

    /// Does the same as [`watch`](Self::watch), for a shorter time.
    pub(crate) fn watched(&self, pm: &impl Medium) -> Watched<'_> {
        self.gate.watch(pm);
        Watched(&self.gate)
    }

    /// Returns `true` if another reader has a moment: a hint.
    pub(crate) fn has_readers_but(&self, own: Option<&Reader>) -> bool {
        self.reading.load(Relaxed) > u64::from(own.is_some())
    }

    /// Makes all commits write records until the result is dropped. If they did not before, this many bytes
    /// of records are kept, and the log has those after `floor`, or after now. Returns the last commit before
    /// this.
    pub(crate) fn log(
        this: Handle<Self>,
        pm: &impl Medium,
        kept: &Arc<KeptLog>,
        bytes: u64,
        floor: Option<u64>,
    ) -> (Logging, u64) {
        let watching = Self::watch(this, pm);
        let mut state = pm.lock(&watching.moments.state);
        state.logging += 1;
        if state.logging == 1 {
            let floor = floor.unwrap_or_else(|| {
                state.last += 1; // unwatched writes have no number, and came before it
                state.last
            });
            kept.keep(bytes);
            kept.raise(floor);
        }
        let last = state.last;
        drop(state);
        (Logging { watching, kept: Arc::clone(kept) }, last)
    }

    /// Returns the last commit up to which all are finished.
    pub(crate) fn finished(&self, pm: &impl Medium) -> u64 {
        pm.lock(&self.state).finished()
    }

    /// Waits until all commits up to one later than `after` are finished; returns `false` if the time has run
    /// out first.
    pub(crate) fn wait_past(&self, after: u64, until: Instant) -> bool {
        let mut state = self.state.lock();
        while state.finished() <= after {
            if self.finished.wait_until(&mut state, until).timed_out() {
                return state.finished() > after;
            }
        }
        true
    }

    /// Begins to read the present moment, when all its commits are finished; returns `None` if `give_up`
    /// returns `true` first.
    pub(crate) fn read(
        this: Handle<Self>,
        pm: &impl Medium,
        mut give_up: impl FnMut() -> bool,
    ) -> Option<Reader> {
        let watch = Self::watch(this, pm);
        let this = &*watch.moments;
        let mut state = pm.lock(&this.state);
        if state.last <= this.ended.load(Relaxed) {
            state.last += 1; // a moment that no ended reader had, and not 0
        }
        let moment = state.last;
        state.add_reader();
        this.reading.fetch_add(1, Relaxed);
        let is_now = state.unfinished.is_empty() || this.faults.has(Wrong::NotAwaited);
        drop(state);
        let reader = Reader { watch, moment, is_over: false };
        if is_now {
            return Some(reader);
        }
        let (mut in_vain, this) = (false, &*reader.watch.moments);
        wait_until(pm, || {
            let first = pm.lock(&this.state).unfinished.first().copied();
            in_vain = first.is_some_and(|first| first <= moment) && give_up();
            in_vain || first.is_none_or(|first| first > moment)
        });
        (!in_vain).then_some(reader)
    }

    /// Commits: `note` notes the changes, or refuses the commit, which then has not taken place. Nothing is noted for
    /// `own`, the reader that commits and reads no more. The commit is unfinished until the result is dropped.
    pub(crate) fn commit(
        &self,
        pm: &impl Medium,
        own: Option<&Reader>,
        note: impl FnOnce(Commit<'_>) -> Result<(), Refused>,
    ) -> Result<Unfinished<'_>, Refused> {
        let mut state = pm.lock(&self.state);
        let newest_reader = state.newest_but(own.map(Reader::moment));
        let number = state.last + 1;
        if newest_reader.is_some() {
            self.has_past.store(true, Relaxed); // before: a panic ends the noting
        }
        // Under the lock: the old values that this commit notes stay until it has its number.
        let (readers, kept) = (&*state.readers, &self.kept);
        if let Err(refused) = note(Commit { number, newest_reader, readers, kept }) {
            state.conflicts += u64::from(refused == Refused::Conflicts);
            return Err(refused);
        }
        state.committed += 1;
        state.last = number;
        state.unfinished.push(number);
        let is_logged = state.logging > 0;
        drop(state);
        let unfinished = Unfinished { moments: self, number, is_logged, is_over: false };
        if self.kept.load(Relaxed) > self.limit {
            self.end_readers(pm);
        }
        Ok(unfinished)
    }

    /// Takes the number of something that changes no record, and has none in the log. It is unfinished until the result
    /// is dropped.
    pub(crate) fn take_number(&self, pm: &impl Medium) -> Unfinished<'_> {
        let mut state = pm.lock(&self.state);
        state.last += 1;
        let (number, is_logged) = (state.last, state.logging > 0);
        state.unfinished.push(number);
        drop(state);
        Unfinished { moments: self, number, is_logged, is_over: false }
    }

    /// Returns a moment such that no reader has, or will have, an earlier one.
    pub(crate) fn oldest(&self, pm: &impl Medium) -> u64 {
        pm.lock(&self.state).oldest()
    }

    /// Ends the oldest readers until the maps keep no more than the limit. Before each, drops what no reader needs:
    /// another thread may have released or ended a reader, and not have dropped its values yet.
    #[cold]
    fn end_readers(&self, pm: &impl Medium) {
        while self.kept.load(Relaxed) > self.limit {
            let needed = self.oldest(pm);
            self.forget(needed);
            if self.kept.load(Relaxed) <= self.limit {
                break;
            }
            let mut state = pm.lock(&self.state);
            if state.readers.is_empty() {
                break;
            }
            if state.oldest() != needed {
                continue; // there may be more to drop by now
            }
            let (moment, _) = state.readers.remove(0);
            state.ended += 1;
            self.ended.store(moment, Release); // before: the values that they need are dropped
            let oldest = state.oldest();
            drop(state);
            observe::reader_ended(moment, self.limit);
            self.forget(oldest);
        }
    }

    /// Removes a reader, under the lock; returns the oldest needed moment, for dropping old values after the
    /// lock is released.
    fn end_reader(&self, state: &mut State, moment: u64) -> Option<u64> {
        let before = state.oldest();
        state.remove_reader(moment);
        self.reading.fetch_sub(1, Relaxed);
        let (oldest, is_last) = (state.oldest(), state.readers.is_empty());
        let has_past = self.has_past.load(Relaxed);
        if std::thread::panicking() {
            // Dropping old values hashes and compares keys. A panic of that, while one unwinds, would end the process:
            // a later reader that ends drops them, at the latest the last one.
            return None;
        }
        if is_last {
            self.has_past.store(false, Relaxed); // all old values are dropped now
        }
        (has_past && (oldest > before || is_last)).then_some(oldest)
    }

    /// Finishes a commit and ends its reader in one step.
    pub(crate) fn finish(mut unfinished: Unfinished<'_>, reader: Option<Reader>) {
        let Some(mut reader) = reader else { return };
        let this = unfinished.moments;
        let mut state = this.state.lock();
        state.finish(unfinished.number);
        let oldest = this.end_reader(&mut state, reader.moment);
        let is_awaited = state.logging > 0;
        drop(state);
        (unfinished.is_over, reader.is_over) = (true, true);
        if is_awaited {
            this.finished.notify_all();
        }
        if let Some(oldest) = oldest {
            this.forget(oldest);
        }
    }

    fn finish_commit(&self, number: u64) {
        let mut state = self.state.lock();
        state.finish(number);
        let is_awaited = state.logging > 0;
        drop(state);
        if is_awaited {
            self.finished.notify_all();
        }
    }

    /// Drops old values, with no lock of all maps: maps come and go, and other threads do the same, meanwhile. A map that
    /// comes later has no values of moments before `oldest`.
    fn forget(&self, oldest: u64) {
        let maps = Arc::clone(&self.maps.lock());
        maps.iter().for_each(|map| map.forget(oldest, &self.kept));
    }

    /// Returns `true` if the readers of a moment were ended. Called after each of their reads.
    #[inline]
    pub(crate) fn is_ended(&self, moment: u64) -> bool {
        moment <= self.ended.load(Acquire)
    }

    /// Returns the figures for a report.
    pub(crate) fn figures(&self, pm: &impl Medium) -> Figures {
        let state = pm.lock(&self.state);
        Figures {
            committed: state.committed,
            conflicts: state.conflicts,
            ended: state.ended,
            readers: state.readers.iter().map(|(_, count)| u64::from(*count)).sum(),
            behind: state.last - state.oldest().min(state.last),
            unfinished: state.unfinished.len() as u64,
            logging: state.logging,
        }
    }

    /// Returns the approximate bytes of old values.
    pub(crate) fn kept(&self) -> u64 {
        self.kept.load(Relaxed)
    }

    /// Returns the maximum bytes of old values.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }
}

/// All writes are watched while this exists.
#[derive(Debug)]
pub(crate) struct Watching {
    moments: Handle<Moments>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.moments.gate.leave();
    }
}

/// Does the same as [`Watching`], for a shorter time.
#[derive(Debug)]
#[must_use]
pub(crate) struct Watched<'m>(&'m Gate);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// All commits write records while this exists.
#[derive(Debug)]
pub(crate) struct Logging {
    watching: Watching,
    kept: Arc<KeptLog>,
}

impl Drop for Logging {
    fn drop(&mut self) {
        let mut state = self.watching.moments.state.lock();
        state.logging -= 1;
        if state.logging == 0 {
            self.kept.keep(0);
        }
    }
}

/// A reader of a moment.
#[derive(Debug)]
pub(crate) struct Reader {
    watch: Watching,
    moment: u64,
    is_over: bool,
}

impl Reader {
    #[inline]
    pub(crate) fn moment(&self) -> u64 {
        self.moment
    }

    /// Returns `true` if it was ended.
    #[inline]
    pub(crate) fn is_ended(&self) -> bool {
        self.watch.moments.is_ended(self.moment)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let moments = &*self.watch.moments;
        let oldest = moments.end_reader(&mut moments.state.lock(), self.moment);
        if let Some(oldest) = oldest {
            moments.forget(oldest);
        }
    }
}

/// A commit whose changes are not all in the indexes yet.
#[derive(Debug)]
#[must_use = "the commit is finished when this is dropped"]
pub(crate) struct Unfinished<'m> {
    moments: &'m Moments,
    number: u64,
    is_logged: bool,
    is_over: bool,
}

impl Unfinished<'_> {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns `true` if it must write a record, whatever it changes.
    pub(crate) fn is_logged(&self) -> bool {
        self.is_logged
    }

    /// Converts to one that can be kept. `moments` are its own.
    pub(crate) fn hold(mut self, moments: Handle<Moments>) -> Held {
        self.is_over = true;
        Held { moments, number: self.number }
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.moments.finish_commit(self.number);
        }
    }
}

/// An [`Unfinished`] commit that keeps the moments alive.
#[derive(Debug)]
pub(crate) struct Held {
    moments: Handle<Moments>,
    number: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.moments.finish_commit(self.number);
    }
}
