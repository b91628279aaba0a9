//! Watching commits: a stream of what they changed, in their order.

use std::collections::VecDeque;
use std::fmt;
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
use crate::record::Group;

/// Which commits a [`Watch`] has seen: all up to one. Positions ascend with the commits, and are never used
/// again, crashes included; a number that can be kept anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchPosition(u64);

impl WatchPosition {
    /// Before all commits: of a store that has kept them from the first one on.
    pub const START: Self = Self(0);

    /// The position that [`into_u64`](Self::into_u64) gave.
    #[must_use]
    pub const fn from_u64(position: u64) -> Self {
        Self(position)
    }

    /// A number to keep.
    #[must_use]
    pub const fn into_u64(self) -> u64 {
        self.0
    }
}

/// A stream of what commits to the maps of a store changed: transactions and single writes, in the order
/// of their commits. See [`Store::watch`](crate::Store::watch).
///
/// While one is alive, each single write takes two fences more, for its record in the store's log. Of the
/// log only so much is kept as the options say: a watch that falls further behind ends with
/// [`StoreError::WatchEnded`], and holds nobody up.
pub struct Watch<M: Medium = Mapped> {
    core: Handle<Core<M>>,
    /// What is read of the log, and not returned yet.
    read: VecDeque<Committed>,
    /// The log is read up to this commit.
    up_to: u64,
    /// Up to this commit, commits were returned.
    returned: u64,
    /// Where each lane of the log is read on.
    from: Positions,
    _logging: Logging,
}

impl<M: Medium> fmt::Debug for Watch<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("position", &self.position()).finish_non_exhaustive()
    }
}

/// What one commit changed.
#[derive(Clone, Debug)]
pub struct Committed {
    number: u64,
    groups: Vec<Group>,
}

impl Committed {
    /// The position behind this commit.
    #[must_use]
    pub fn position(&self) -> WatchPosition {
        WatchPosition(self.number)
    }

    /// The names of the maps that it changed.
    pub fn maps(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(|group| group.name.as_str())
    }

    /// The records of a map that it changed, by key: what they are since, or `None` if they are gone.
    ///
    /// # Errors
    /// [`PmError::Corrupt`](pmindex_core::PmError::Corrupt): the map had other types then.
    pub fn changes<K: Key, V: Value, M: Medium>(
        &self,
        map: &Map<K, V, M>,
    ) -> Result<Vec<(K, Option<V>)>, StoreError> {
        let group = self.groups.iter().find(|group| group.name == map.name());
        Ok(group.map_or(Ok(Vec::new()), Group::changes)?)
    }

    /// Whether a map, which was empty, was loaded: whatever it had then came at once and stands in no
    /// commit.
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
            up_to: after,
            returned: after,
            from: [Position::START; LANES],
            _logging: logging,
        };
        watch.read_on()?; // or says at once that this is too far behind
        Ok(watch)
    }

    /// Behind the commit that was returned last: whoever keeps it goes on there.
    #[must_use]
    pub fn position(&self) -> WatchPosition {
        WatchPosition(if self.read.is_empty() { self.up_to } else { self.returned })
    }

    /// Reads what the log has of finished commits; whether there was anything.
    fn read_on(&mut self) -> Result<bool, StoreError> {
        let core = &*self.core;
        let finished = core.moments.finished(core.pm());
        let commits = core.redo.commits(self.up_to, finished, &mut self.from)?;
        let Some(commits) = commits else {
            observe::watch_ended(self.up_to);
            return Err(StoreError::WatchEnded);
        };
        self.up_to = finished.max(self.up_to);
        let commits = commits.into_iter().map(|(number, groups)| Committed { number, groups });
        self.read.extend(commits);
        Ok(!self.read.is_empty())
    }

    /// The next commit, if there is one: durable, and seen by everybody who reads.
    ///
    /// # Errors
    /// [`StoreError::WatchEnded`]; the pool's.
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

    /// The next commit; waits for it, so long, on the thread that calls: in an async service on one for what
    /// blocks. Nothing ends the wait early, so wait a little at a time if something else may end it.
    ///
    /// # Errors
    /// As [`try_next`](Self::try_next).
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
