//! The state that the maps, snapshots and transactions of a store share.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use parking_lot::Mutex;
use pmindex_core::sync::{VersionGuard, VersionTable};
use pmindex_core::{Medium, Pool};
use pmindex_index::IndexError;

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
    /// Durable commits whose changes could not all be made.
    stuck: Mutex<Vec<Stuck>>,
    is_stuck: AtomicBool,
    /// All commits write records, for later watches.
    logging: Option<Logging>,
}

/// The changes of a commit to one map.
pub(crate) trait Changes: Any + Send {
    /// Makes the changes.
    fn make(&self) -> Result<(), IndexError>;
    /// Returns the name of the map.
    fn map(&self) -> &str;
    /// Returns their concrete type.
    fn as_any(&self) -> &dyn Any;
}

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
            stuck: Mutex::default(),
            is_stuck: AtomicBool::new(false),
            logging: None,
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
        self.finish_stuck()?;
        let stuck = || self.is_stuck.load(Acquire);
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
    pub(crate) fn drop_stuck<E: From<IndexError>>(
        &self,
        name: &str,
        drop_it: impl FnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        if self.finish_stuck().is_ok() {
            return drop_it();
        }
        let mut stuck = lock(self.pm(), &self.stuck);
        let dropped = drop_it()?;
        self.forget_changes(&mut stuck, name)?;
        drop(stuck);
        let _ = self.finish_stuck(); // others may have found no room either
        Ok(dropped)
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
