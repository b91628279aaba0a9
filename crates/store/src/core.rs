//! The state that the maps, snapshots and transactions of a store share.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use parking_lot::Mutex;
use pmindex_core::sync::{VersionGuard, VersionTable};
use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::IndexError;

use crate::dropped::Dropped;
use crate::handles::Handles;
use crate::moments::{Held, Logging, Moments, Reader, Watching};
use crate::reading::Logged;
use crate::redo::Redo;
use crate::wait::lock;
use crate::wrong::Wrong;

/// There are `2^LOCKS` locks of keys.
const LOCKS: u32 = 14;

/// The state that the maps, snapshots and transactions of a store share.
pub(crate) struct Core<M: Medium> {
    pub(crate) pool: Arc<Pool<M>>,
    pub(crate) moments: Handles<Moments>,
    /// Watched writers lock the keys that they write; a commit holds all its locks until its last change is
    /// in its index.
    pub(crate) keys: VersionTable,
    pub(crate) redo: Redo<M>,
    /// The number of times that a conflicting transaction is run.
    pub(crate) tries: u32,
    pub(crate) dropped: Dropped,
    /// Durable commits whose changes could not all be made.
    stuck: Mutex<Vec<Stuck>>,
    is_stuck: AtomicBool,
    /// All commits write records, for later watches.
    logging: Option<Logging>,
    /// Tells what came from this store from what came from others.
    pub(crate) identity: Arc<()>,
}

/// The changes of a commit to one map.
pub(crate) trait Changes: Any + Send {
    /// Makes the changes.
    fn make(&self) -> Result<(), IndexError>;
    /// Returns the name of the map.
    fn map(&self) -> &str;
    /// Returns their concrete type.
    fn as_any(&self) -> &dyn Any;
    /// Returns `true` if the map is open.
    fn is_bound(&self) -> bool;
    /// Takes a map that was opened again; returns `false` if it has other types.
    fn bind(&mut self, map: &AnyShared) -> bool;
}

/// A [`Shared`](crate::map::Shared) map of any types.
pub(crate) type AnyShared = Arc<dyn Any + Send + Sync>;

/// The part of the log that a stuck commit keeps.
#[derive(Debug)]
pub(crate) enum Leave {
    /// The record of this commit.
    Commit { _unfinished: Held, logged: Logged },
    /// The changes of interrupted commits to this map.
    Map(String),
}

/// A durable commit whose changes could not all be made. Until they are, all writers are watched, and no
/// moment can be read.
struct Stuck {
    changes: Vec<Box<dyn Changes>>,
    leave: Leave,
    _watch: Watching,
}

impl<M: Medium> std::fmt::Debug for Core<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("moments", &self.moments).finish_non_exhaustive()
    }
}

impl<M: Medium> Core<M> {
    pub(crate) fn new(pool: Arc<Pool<M>>, redo: Redo<M>, limit: u64, tries: u32) -> Self {
        Self {
            pool,
            moments: Handles::new(Moments::new(limit, redo.last())),
            keys: VersionTable::new(LOCKS),
            redo,
            tries,
            dropped: Dropped::default(),
            stuck: Mutex::default(),
            is_stuck: AtomicBool::new(false),
            logging: None,
            identity: Arc::new(()),
        }
    }

    /// Makes all commits write records from now on, and keeps this many bytes of them.
    pub(crate) fn log_all(&mut self, bytes: u64) -> Result<(), IndexError> {
        let floor = self.redo.set_all(true)?;
        let (moments, kept) = (self.moments.handle(), &self.redo.kept);
        let log = Moments::log(moments, self.pool.pm(), kept, bytes, Some(floor));
        self.logging = Some(log.0);
        Ok(())
    }

    /// Returns `true` after [`log_all`](Self::log_all).
    pub(crate) fn keeps_all(&self) -> bool {
        self.logging.is_some()
    }

    /// Refuses a forked child, where a thread for which this one would wait may not exist.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), PmError> {
        self.pool.check_process()
    }

    pub(crate) fn pm(&self) -> &M {
        self.pool.pm()
    }

    /// Returns `true` if a test makes a step go wrong.
    #[inline(always)]
    pub(crate) fn goes_wrong(&self, wrong: Wrong) -> bool {
        self.moments.faults.has(wrong)
    }

    /// Locks these places, in the order of the locks.
    pub(crate) fn lock(&self, mut places: Vec<usize>) -> Vec<VersionGuard<'_>> {
        places.sort_unstable();
        places.dedup();
        places.into_iter().map(|place| self.keys.all()[place].lock(self.pm())).collect()
    }

    /// Begins to read the present moment.
    ///
    /// # Errors
    /// A commit is stuck, so no moment has all its changes.
    pub(crate) fn read(&self) -> Result<Reader, IndexError> {
        self.check_process()?;
        self.finish_stuck()?;
        let stuck = || {
            // A thread that loads a map, and reads another one for that, would wait for itself: this is a panic then.
            self.keys.all()[0].begin_read(self.pm());
            self.is_stuck.load(Acquire)
        };
        match Moments::read(self.moments.handle(), self.pm(), stuck) {
            Some(reader) => Ok(reader),
            None => self.read(),
        }
    }

    /// Notes changes that are durable in the log and could not be made.
    pub(crate) fn set_stuck(&self, changes: Vec<Box<dyn Changes>>, leave: Leave) {
        let watch = Moments::watch(self.moments.handle(), self.pm());
        lock(self.pm(), &self.stuck).push(Stuck { changes, leave, _watch: watch });
        // Threads that lock these keys next see it.
        self.is_stuck.store(true, Release);
    }

    /// Makes the changes of stuck commits. They need no locks: all writes to their keys call this first.
    #[inline]
    pub(crate) fn finish_stuck(&self) -> Result<(), IndexError> {
        if self.is_stuck.load(Acquire) { self.finish_all_stuck() } else { Ok(()) }
    }

    #[cold]
    fn finish_all_stuck(&self) -> Result<(), IndexError> {
        let mut stuck = lock(self.pm(), &self.stuck);
        self.forget_dropped(&mut stuck)?;
        while let Some(commit) = stuck.last() {
            commit.changes.iter().try_for_each(|changes| changes.make())?;
            match &commit.leave {
                Leave::Commit { logged, .. } => self.redo.retire(*logged)?,
                Leave::Map(name) => self.redo.settle(name)?,
            }
            stuck.pop();
        }
        self.is_stuck.store(false, Release);
        Ok(())
    }

    /// Drops a map, by calling `drop_it`, and with it the changes of stuck commits to it, if they cannot be made. No
    /// other thread makes changes of stuck commits meanwhile.
    ///
    /// | step | what | durable before |
    /// |------|------|----------------|
    /// | 1 | drops the map (LIN, DUR) | 2 |
    /// | 2 | says in the log that the changes to it are settled | other writes of the commit's maps |
    ///
    /// After a failure of step 1 the changes wait for the map to be [opened again](Self::bind_stuck). After a failure, or
    /// a crash, between the two steps, they are changes to a map that does not exist: what finishes stuck commits, or
    /// opens the store, does step 2.
    pub(crate) fn drop_stuck<E: From<IndexError>>(
        &self,
        drop_it: impl FnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        if self.finish_stuck().is_ok() {
            return drop_it();
        }
        let stuck = lock(self.pm(), &self.stuck);
        let dropped = drop_it()?; // 1
        drop(stuck);
        // 2, or later. The changes to other maps may have found no room either.
        let _ = self.finish_stuck();
        Ok(dropped)
    }

    /// Gives the changes of stuck commits to a map to the map itself, which was opened again; `None` if there are none,
    /// `Some(false)` if it has other types.
    pub(crate) fn bind_stuck(&self, name: &str, map: &AnyShared) -> Option<bool> {
        if !self.is_stuck.load(Acquire) {
            return None;
        }
        let mut stuck = lock(self.pm(), &self.stuck);
        let all = stuck.iter_mut().flat_map(|commit| &mut commit.changes);
        let bound = all.filter(|changes| changes.map() == name).map(|changes| changes.bind(map));
        bound.reduce(|one, other| one && other)
    }

    /// Forgets the changes of stuck commits to maps that were dropped.
    fn forget_dropped(&self, stuck: &mut Vec<Stuck>) -> Result<(), IndexError> {
        let all = stuck.iter().flat_map(|commit| &commit.changes);
        let closed = all.filter(|changes| !changes.is_bound()).map(|changes| changes.map().into());
        for name in closed.collect::<Vec<String>>() {
            if self.pool.find_index(&name)?.is_none() {
                self.forget_changes(stuck, &name)?;
            }
        }
        Ok(())
    }

    /// Forgets the changes of stuck commits to a map that does not exist: before one of its name is created.
    pub(crate) fn forget_stuck(&self, name: &str) -> Result<(), IndexError> {
        if !self.is_stuck.load(Acquire) {
            return Ok(());
        }
        self.forget_changes(&mut lock(self.pm(), &self.stuck), name)
    }

    fn forget_changes(&self, stuck: &mut Vec<Stuck>, name: &str) -> Result<(), IndexError> {
        for commit in &mut *stuck {
            if commit.changes.iter().all(|changes| changes.map() != name) {
                continue;
            }
            match &commit.leave {
                Leave::Commit { logged, .. } => self.redo.settle_of(*logged, name)?,
                Leave::Map(map) => self.redo.settle(map)?,
            }
            commit.changes.retain(|changes| changes.map() != name);
        }
        Ok(())
    }

    /// Makes the changes of stuck commits, if possible; if not, returns an error when `concerns` returns
    /// `true` for one of them.
    pub(crate) fn finish_stuck_of(
        &self,
        mut concerns: impl FnMut(&dyn Changes) -> bool,
    ) -> Result<(), IndexError> {
        let Err(error) = self.finish_stuck() else { return Ok(()) };
        let stuck = lock(self.pm(), &self.stuck);
        let mut all = stuck.iter().flat_map(|commit| &commit.changes);
        if all.any(|changes| concerns(&**changes)) { Err(error) } else { Ok(()) }
    }
}
