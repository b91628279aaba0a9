//! Mutants: the same program with one persistence step dropped or moved.
//!
//! Flushes, fences and barriers do not change a program's results, only what survives. So a mutant needs no
//! second run of the program: the memory model reads the same trace and ignores, or delays, the events of one
//! call site. If no crash state exposes a mutant, the step is redundant, or the test does not reach it.

use std::fmt;

use pmindex_core::trace::Event;

use super::memory::Flush;
use super::site::{Site, StepKind};

/// The change made to a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The step does not happen.
    Drop,
    /// The step is swapped with what follows: a flush comes after the thread's next fence, a fence after the
    /// thread's next stores.
    Delay,
}

/// One mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mutation {
    /// The step.
    pub site: Site,
    /// The change made to it.
    pub change: Change,
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = match (self.change, self.site.kind) {
            (Change::Drop, _) => "dropped",
            (Change::Delay, StepKind::Flush) => "moved past the next fence",
            (Change::Delay, _) => "moved past the next stores",
        };
        write!(f, "{} {change}", self.site)
    }
}

/// A step that a mutant holds back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Delayed {
    Flush {
        thread: u16,
        flush: Flush,
    },
    /// `armed`: the store that it waits for has happened.
    Fence {
        thread: u16,
        armed: bool,
    },
}

impl Change {
    /// Returns the possible changes to a step. A write-back comes before anything is used, and a barrier
    /// between two stores: moving either means dropping it, or nothing.
    #[must_use]
    pub fn of(kind: StepKind) -> &'static [Self] {
        match kind {
            StepKind::Flush | StepKind::Fence => &[Self::Drop, Self::Delay],
            StepKind::WriteBack | StepKind::Barrier => &[Self::Drop],
        }
    }
}

impl Mutation {
    pub(crate) fn drops(self, event: &Event) -> bool {
        self.change == Change::Drop && self.hits(event)
    }

    pub(crate) fn delays(self, event: &Event) -> bool {
        self.change == Change::Delay && self.hits(event)
    }

    /// Returns `true` if the event is the step.
    pub(crate) fn hits(self, event: &Event) -> bool {
        event.site.line() == self.site.line
            && event.site.column() == self.site.column
            && Site::of(event).is_some_and(|site| site == self.site)
    }
}
