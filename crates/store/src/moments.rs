//! Moments: the order of commits, and who reads which of them.
//!
//! Every commit that is watched has a number. A *moment* is a number, too: it has all commits up to it and
//! none after it. A commit takes its number and notes what it is about to change ([`versions`](crate::versions))
//! in one step, under the lock here; it is *unfinished* until all its changes are in the indexes. Who
//! begins to read waits until no commit of its moment is unfinished, so a moment is never half a commit, and
//! has every commit that returned before.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use pmindex_core::Medium;

use crate::gate::Gate;
use crate::kept::Kept;
use crate::observe;
use crate::wait::wait_until;
use crate::wrong::{Faults, Wrong};

/// What a map keeps for readers of the past.
pub(crate) trait Past: Send + Sync {
    /// Forgets what only readers of moments before `oldest` want; the bytes that were.
    fn forget(&self, oldest: u64) -> u64;
}

/// See the module's head.
pub(crate) struct Moments {
    pub(crate) gate: Arc<Gate>,
    pub(crate) faults: Faults,
    state: Mutex<State>,
    /// A commit is finished that somebody waits for.
    finished: Condvar,
    maps: Mutex<Vec<Arc<dyn Past>>>,
    /// Readers of this moment and those before were ended.
    ended: AtomicU64,
    /// About how many bytes the maps keep for readers.
    kept: AtomicU64,
    limit: u64,
}

struct State {
    /// The last commit.
    last: u64,
    unfinished: BTreeSet<u64>,
    /// Moments that are read, and by how many.
    readers: BTreeMap<u64, u32>,
    /// How many want all commits to write records.
    logging: u32,
    /// What a report counts, since the store was opened.
    committed: u64,
    conflicts: u64,
    ended: u64,
}

/// What goes on, for a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) committed: u64,
    pub(crate) conflicts: u64,
    pub(crate) ended: u64,
    pub(crate) readers: u64,
    /// Commits since the oldest reader began.
    pub(crate) behind: u64,
    pub(crate) unfinished: u64,
    pub(crate) logging: u32,
}

impl State {
    /// All commits up to this one are finished.
    fn finished(&self) -> u64 {
        self.unfinished.first().map_or(self.last, |first| first - 1)
    }

    /// The newest moment that is read, but for one reader of `own`.
    fn newest_but(&self, own: Option<u64>) -> Option<u64> {
        let mut newest = self.readers.iter().rev();
        newest
            .find(|(moment, count)| Some(**moment) != own || **count > 1)
            .map(|(moment, _)| *moment)
    }

    /// No reader has, or will have, an earlier moment.
    fn oldest(&self) -> u64 {
        self.readers.first_key_value().map_or(self.last, |(&oldest, _)| oldest)
    }
}

impl fmt::Debug for Moments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moments").field("kept", &self.kept).finish_non_exhaustive()
    }
}

/// A commit under way, as whoever notes its changes sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commit {
    /// Its number.
    pub(crate) number: u64,
    /// The newest moment that anybody else reads.
    pub(crate) newest_reader: Option<u64>,
}

impl Moments {
    /// Keeps up to about `limit` bytes for readers. The first commit has a number greater than `last`.
    pub(crate) fn new(limit: u64, last: u64) -> Arc<Self> {
        Arc::new(Self {
            gate: Arc::new(Gate::new()),
            faults: Faults::default(),
            state: Mutex::new(State {
                last,
                unfinished: BTreeSet::new(),
                readers: BTreeMap::new(),
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
        })
    }

    /// Adds a map, which forgets when it is told.
    pub(crate) fn add(&self, map: Arc<dyn Past>) {
        self.maps.lock().push(map);
    }

    /// Removes what [`add`](Self::add) added.
    pub(crate) fn remove(&self, map: &Arc<dyn Past>) {
        self.maps.lock().retain(|other| !Arc::ptr_eq(other, map));
    }

    /// Watches all writes until the result is dropped.
    pub(crate) fn watch(self: &Arc<Self>, pm: &impl Medium) -> Watching {
        self.gate.watch(pm);
        Watching { moments: Arc::clone(self) }
    }

    /// Has all commits write records until the result is dropped; if they did not before, so many bytes of
    /// these are kept, and the log has those after `floor`, or after now. The last commit before this.
    pub(crate) fn log(
        self: &Arc<Self>,
        pm: &impl Medium,
        kept: &Arc<Kept>,
        bytes: u64,
        floor: Option<u64>,
    ) -> (Logging, u64) {
        let watching = self.watch(pm);
        let mut state = pm.lock(&self.state);
        state.logging += 1;
        if state.logging == 1 {
            let floor = floor.unwrap_or_else(|| {
                state.last += 1; // writes that nobody watched have no number, and came before it
                state.last
            });
            kept.keep(bytes);
            kept.raise(floor);
        }
        (Logging { watching, kept: Arc::clone(kept) }, state.last)
    }

    /// All commits up to this one are finished.
    pub(crate) fn finished(&self, pm: &impl Medium) -> u64 {
        pm.lock(&self.state).finished()
    }

    /// Waits until all commits up to one that is later than `after` are finished; whether that was before
    /// the time was over.
    pub(crate) fn wait_past(&self, after: u64, until: Instant) -> bool {
        let mut state = self.state.lock();
        while state.finished() <= after {
            if self.finished.wait_until(&mut state, until).timed_out() {
                return state.finished() > after;
            }
        }
        true
    }

    /// Begins to read the moment of now, when all its commits are finished; `None` if `give_up` says so
    /// first.
    pub(crate) fn read(
        self: &Arc<Self>,
        pm: &impl Medium,
        mut give_up: impl FnMut() -> bool,
    ) -> Option<Reader> {
        let watch = self.watch(pm);
        let mut state = pm.lock(&self.state);
        if state.last <= self.ended.load(Relaxed) {
            state.last += 1; // not a moment whose readers were ended, nor 0
        }
        let moment = state.last;
        *state.readers.entry(moment).or_default() += 1;
        drop(state);
        let reader = Reader { watch, moment };
        if self.faults.has(Wrong::NotAwaited) {
            return Some(reader);
        }
        let mut in_vain = false;
        wait_until(pm, || {
            let first = pm.lock(&self.state).unfinished.first().copied();
            in_vain = first.is_some_and(|first| first <= moment) && give_up();
            in_vain || first.is_none_or(|first| first > moment)
        });
        (!in_vain).then_some(reader)
    }

    /// Commits: `note` notes the changes, or refuses the commit, which has not been then; nothing is noted
    /// for `own`, the reader that commits and reads no more. The commit is unfinished until the result is
    /// dropped.
    pub(crate) fn commit<E>(
        self: &Arc<Self>,
        pm: &impl Medium,
        own: Option<&Reader>,
        note: impl FnOnce(Commit) -> Result<u64, E>,
    ) -> Result<Unfinished, E> {
        let mut state = pm.lock(&self.state);
        let newest_reader = state.newest_but(own.map(Reader::moment));
        let number = state.last + 1;
        let bytes = match note(Commit { number, newest_reader }) {
            Ok(bytes) => bytes,
            Err(refused) => {
                state.conflicts += 1;
                return Err(refused);
            }
        };
        state.committed += 1;
        state.last = number;
        state.unfinished.insert(number);
        let is_logged = state.logging > 0;
        // Under the lock: nobody forgets what this commit noted before it has its number.
        let kept = self.kept.fetch_add(bytes, Relaxed) + bytes;
        drop(state);
        let unfinished = Unfinished { moments: Arc::clone(self), number, is_logged };
        if kept > self.limit {
            self.end_readers(pm);
        }
        Ok(unfinished)
    }

    /// Ends the oldest readers until the maps keep less than the limit.
    #[cold]
    fn end_readers(&self, pm: &impl Medium) {
        while self.kept.load(Relaxed) > self.limit {
            let (mut state, mut ended) = (pm.lock(&self.state), None);
            if let Some((moment, _)) = state.readers.pop_first() {
                state.ended += 1;
                ended = Some(moment);
                self.ended.store(moment, Release); // before: what it wants is forgotten
            }
            let (oldest, done) = (state.oldest(), state.readers.is_empty());
            drop(state);
            if let Some(moment) = ended {
                observe::reader_ended(moment, self.limit);
            }
            self.forget(oldest);
            if done {
                break;
            }
        }
    }

    fn forget(&self, oldest: u64) {
        let maps = self.maps.lock().clone();
        let bytes: u64 = maps.iter().map(|map| map.forget(oldest)).sum();
        self.kept.fetch_sub(bytes, Relaxed);
    }

    /// Whether readers of a moment were ended. Asked after what they read was read.
    #[inline]
    pub(crate) fn is_ended(&self, moment: u64) -> bool {
        moment <= self.ended.load(Acquire)
    }

    /// What goes on.
    pub(crate) fn figures(&self, pm: &impl Medium) -> Figures {
        let state = pm.lock(&self.state);
        Figures {
            committed: state.committed,
            conflicts: state.conflicts,
            ended: state.ended,
            readers: state.readers.values().map(|&count| u64::from(count)).sum(),
            behind: state.last - state.oldest().min(state.last),
            unfinished: state.unfinished.len() as u64,
            logging: state.logging,
        }
    }

    /// About how many bytes are kept for readers.
    pub(crate) fn kept(&self) -> u64 {
        self.kept.load(Relaxed)
    }

    /// The most bytes that are kept for readers.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }
}

/// All writes are watched while this lives.
#[derive(Debug)]
pub(crate) struct Watching {
    moments: Arc<Moments>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.moments.gate.leave();
    }
}

/// All commits write records while this lives.
#[derive(Debug)]
pub(crate) struct Logging {
    watching: Watching,
    kept: Arc<Kept>,
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
}

impl Reader {
    #[inline]
    pub(crate) fn moment(&self) -> u64 {
        self.moment
    }

    /// Whether it was ended.
    #[inline]
    pub(crate) fn is_ended(&self) -> bool {
        self.watch.moments.is_ended(self.moment)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let moments = &self.watch.moments;
        let mut state = moments.state.lock();
        let before = state.oldest();
        if let Some(count) = state.readers.get_mut(&self.moment) {
            *count -= 1;
            if *count == 0 {
                state.readers.remove(&self.moment);
            }
        }
        let oldest = state.oldest();
        let is_last = state.readers.is_empty();
        drop(state);
        if oldest > before || is_last {
            moments.forget(oldest);
        }
    }
}

/// A commit whose changes are not all in the indexes.
#[derive(Debug)]
#[must_use = "the commit is finished when this is dropped"]
pub(crate) struct Unfinished {
    moments: Arc<Moments>,
    number: u64,
    is_logged: bool,
}

impl Unfinished {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether it is to write a record, whatever it changes.
    pub(crate) fn is_logged(&self) -> bool {
        self.is_logged
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut state = self.moments.state.lock();
        state.unfinished.remove(&self.number);
        let is_awaited = state.logging > 0;
        drop(state);
        if is_awaited {
            self.moments.finished.notify_all();
        }
    }
}
