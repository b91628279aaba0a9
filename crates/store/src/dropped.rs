//! Maps that were dropped while earlier moments are read.
//!
//! A map that gets the name of a dropped one is another map, of which earlier moments know nothing: they had the
//! dropped one. Dropping takes a number, like a commit, and the next map of the name begins with it, so a reader of
//! an earlier moment is refused. A map that stays because a drop fails begins anew too, as its old values are gone. The
//! log does not have that number: a [watch](crate::Watch) that has not come to it ends, since it would take the
//! changes of both maps for those of one.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use pmindex_core::{Medium, PmError};

use crate::core::Core;
use crate::wait::lock;

/// The number of the last drop of each name, as long as an earlier moment is read.
#[derive(Debug, Default)]
pub(crate) struct Dropped(Mutex<BTreeMap<String, u64>>);

impl<M: Medium> Core<M> {
    /// Begins to drop a map that was closed. Earlier moments no longer have it, and earlier watches end, durably before
    /// the drop: after a crash between the two they have ended for nothing.
    pub(crate) fn begin_drop(&self, name: &str) -> Result<(), PmError> {
        // Unfinished until the floor is raised: no watch comes to the number.
        let unfinished = self.moments.take_number(self.pm());
        let (number, oldest) = (unfinished.number(), self.moments.oldest(self.pm()));
        let mut dropped = lock(self.pm(), &self.dropped.0);
        dropped.retain(|_, number| *number > oldest);
        if number > oldest {
            dropped.insert(name.into(), number);
        }
        drop(dropped);
        if unfinished.is_logged() { self.redo.raise_floor(number) } else { Ok(()) }
    }

    /// Returns the first moment that a new map of this name can have.
    pub(crate) fn begins(&self, name: &str) -> u64 {
        lock(self.pm(), &self.dropped.0).get(name).copied().unwrap_or(0)
    }

    /// Returns the number of dropped maps that are remembered.
    #[cfg(test)]
    pub(crate) fn dropped(&self) -> usize {
        self.dropped.0.lock().len()
    }
}
