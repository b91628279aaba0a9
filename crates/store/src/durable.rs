//! A commit whose record is durable, until its changes are made.

use pmindex_core::Medium;

use crate::changes::AnyPart;
use crate::core::{Changes, Core, Leave};
use crate::moments::Unfinished;
use crate::reading::Logged;

/// Something that can become changes that will be made later.
pub(crate) trait Later {
    fn later(self) -> Box<dyn Changes>;
}

impl Later for Box<dyn Changes> {
    fn later(self) -> Box<dyn Changes> {
        self
    }
}

impl Later for (u64, Box<dyn AnyPart>) {
    fn later(self) -> Box<dyn Changes> {
        self.1.into_late()
    }
}

/// A commit whose record is durable. It has taken place, so whatever ends it early, an error or a panic in an index or
/// in a type of the caller's, its changes are made before the next write. It is dropped before its keys are unlocked.
pub(crate) struct Durable<'c, M: Medium, C: Later> {
    core: &'c Core<M>,
    /// Until it is over.
    unfinished: Option<Unfinished<'c>>,
    pub(crate) changes: Vec<C>,
    logged: Logged,
}

impl<'c, M: Medium, C: Later> Durable<'c, M, C> {
    pub(crate) fn new(
        core: &'c Core<M>,
        unfinished: Unfinished<'c>,
        changes: Vec<C>,
        logged: Logged,
    ) -> Self {
        Self { core, unfinished: Some(unfinished), changes, logged }
    }

    /// Ends it: its record is no longer needed.
    pub(crate) fn end(mut self) -> Option<Unfinished<'c>> {
        self.unfinished.take()
    }
}

impl<M: Medium, C: Later> Drop for Durable<'_, M, C> {
    fn drop(&mut self) {
        let Some(unfinished) = self.unfinished.take() else { return };
        let changes = std::mem::take(&mut self.changes).into_iter().map(C::later).collect();
        let held = unfinished.hold(self.core.moments.handle());
        let leave = Leave::Commit { _unfinished: held, logged: self.logged };
        self.core.set_stuck(changes, leave);
    }
}
