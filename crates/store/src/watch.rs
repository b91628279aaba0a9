//! Watching commits: a stream of their changes, in their order.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex_core::{Mapped, Medium};
use pmindex_index::{Key, Value};
use pmindex_log::{LANES, Position, Positions};

use crate::core::Core;
use crate::error::StoreError;
use crate::handles::{Handle, Handles};
use crate::map::Map;
use crate::moments::{Logging, Moments};
use crate::observe;
use crate::reading::Ahead;
use crate::record::Group;

/// The bytes of records that are read at once.
const AT_ONCE: u64 = if cfg!(test) { 2_000 } else { 16 << 20 };

/// A position in the order of commits: a [`Watch`] at it has seen all commits up to one. Positions ascend
/// with the commits, and are never reused, also after crashes; a number that can be stored anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchPosition(u64);

impl WatchPosition {
    /// Before all commits, for a store that has kept them from the first one on.
    pub const START: Self = Self(0);

    /// Returns the position of a number from [`into_u64`](Self::into_u64).
    #[must_use]
    pub const fn from_u64(position: u64) -> Self {
        Self(position)
    }

    /// Returns a number to store.
    #[must_use]
    pub const fn into_u64(self) -> u64 {
        self.0
    }
}

/// A stream of the changes of commits to the maps of a store: transactions and single writes, in the order of
/// their commits. See [`Store::watch`](crate::Store::watch).
///
/// While a watch exists, each single write takes two more fences, for its record in the store's log. The
/// options limit the part of the log that is kept: a watch that falls further behind ends with
/// [`StoreError::WatchEnded`], and blocks no writer. So does each watch when a map is
/// [dropped](crate::Store::drop_map).
pub struct Watch<M: Medium = Mapped> {
    core: Handle<Core<M>>,
    /// Commits that were read from the log and not returned yet.
    read: VecDeque<Committed>,
    /// Commits after these that were found in the log.
    ahead: VecDeque<Ahead>,
    /// The log is searched up to this commit.
    up_to: u64,
    /// Commits up to this one were returned.
    returned: u64,
    /// The position in each lane of the log.
    from: Positions,
    _logging: Logging,
}

impl<M: Medium> fmt::Debug for Watch<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("position", &self.position()).finish_non_exhaustive()
    }
}

/// The changes of one commit.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The store's: see `Core::identity`.
    store: Arc<()>,
    number: u64,
    groups: Vec<Group>,
}

impl Committed {
    /// Returns the position after this commit.
    #[must_use]
    pub fn position(&self) -> WatchPosition {
        WatchPosition(self.number)
    }

    /// Returns the names of the maps that it changed.
    pub fn maps(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(|group| group.name.as_str())
    }

    /// Returns the records of a map that it changed, by key, with their new values; `None` if they were
    /// removed.
    ///
    /// # Errors
    /// [`StoreError::OtherStore`] if the map is not of the store that was watched, opened as it was then;
    /// [`PmError::Corrupt`](pmindex_core::PmError::Corrupt): the map had other types then.
    pub fn changes<K: Key, V: Value, M: Medium>(
        &self,
        map: &Map<K, V, M>,
    ) -> Result<Vec<(K, Option<V>)>, StoreError> {
        if !Arc::ptr_eq(&self.store, &map.shared.core.identity) {
            return Err(StoreError::OtherStore { name: map.name().into() });
        }
        let group = self.groups.iter().find(|group| group.name == map.name());
        Ok(group.map_or(Ok(Vec::new()), Group::changes)?)
    }

    /// Returns `true` if a map, which was empty, was loaded, or was created with records: its records came at once and
    /// are in no commit.
    #[must_use]
    pub fn is_loaded(&self, map: &str) -> bool {
        self.groups.iter().any(|group| group.name == map && group.is_loaded)
    }
}

impl<M: Medium> Watch<M> {
    /// Watches from now on, or after a position.
    pub(crate) fn new(
        core: &Handles<Core<M>>,
        after: Option<WatchPosition>,
        bytes: u64,
    ) -> Result<Self, StoreError> {
        core.pool.check_writable()?;
        let (moments, kept) = (core.moments.handle(), &core.redo.kept);
        let (logging, now) = Moments::log(moments, core.pm(), kept, bytes, None);
        let after = after.map_or(now, |WatchPosition(after)| after);
        if after > now {
            return Err(StoreError::WatchEnded); // of another store, or of one that lost it
        }
        let mut watch = Self {
            core: core.handle(),
            read: VecDeque::new(),
            ahead: VecDeque::new(),
            up_to: after,
            returned: after,
            from: [Position::START; LANES],
            _logging: logging,
        };
        watch.read_on()?; // or reports at once that this is too far behind
        Ok(watch)
    }

    /// Returns the position after the last returned commit; a watch from there continues with the next one.
    #[must_use]
    pub fn position(&self) -> WatchPosition {
        let is_empty = self.read.is_empty() && self.ahead.is_empty();
        WatchPosition(if is_empty { self.up_to } else { self.returned })
    }

    /// Reads the records of finished commits from the log, not too many at once: a watch that is far behind would have
    /// all that is kept in memory. Returns `true` if there were any.
    fn read_on(&mut self) -> Result<bool, StoreError> {
        let core = &*self.core;
        let ended = |at| {
            observe::watch_ended(at);
            StoreError::WatchEnded
        };
        if self.ahead.is_empty() {
            let finished = core.moments.finished(core.pm());
            let found = core.redo.commits(self.up_to, finished, &mut self.from)?;
            let found = found.ok_or_else(|| ended(self.up_to))?;
            self.up_to = finished.max(self.up_to);
            self.ahead.extend(found.into_values());
        }
        let commits = core.redo.contents(&mut self.ahead, AT_ONCE)?;
        let commits = commits.ok_or_else(|| ended(self.returned))?;
        let store = &core.identity;
        let committed = |(number, groups)| Committed { store: Arc::clone(store), number, groups };
        let commits = commits.into_iter().map(committed);
        self.read.extend(commits);
        Ok(!self.read.is_empty())
    }

    /// Returns the number of commits whose changes are in memory.
    #[cfg(test)]
    pub(crate) fn in_memory(&self) -> usize {
        self.read.len()
    }

    /// Returns the next commit, if there is one: durable, and visible to all readers.
    ///
    /// # Errors
    /// [`StoreError::WatchEnded`]; those of the pool.
    pub fn try_next(&mut self) -> Result<Option<Committed>, StoreError> {
        if self.read.is_empty() {
            self.read_on()?;
        }
        let next = self.read.pop_front();
        if let Some(next) = &next {
            self.returned = next.number;
        }
        Ok(next)
    }

    /// Returns the next commit; waits for it up to this time, blocking the calling thread: an async service
    /// calls it on a thread for blocking work. Nothing ends the wait early, so wait briefly if something else
    /// may end it.
    ///
    /// # Errors
    /// Those of [`try_next`](Self::try_next).
    pub fn next_within(&mut self, time: Duration) -> Result<Option<Committed>, StoreError> {
        let until = Instant::now() + time.min(Duration::from_secs(u64::from(u32::MAX)));
        loop {
            let next = self.try_next()?;
            if next.is_some() || !self.core.moments.wait_past(self.up_to, until) {
                return Ok(next);
            }
        }
    }
}
