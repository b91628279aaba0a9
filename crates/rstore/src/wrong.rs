//! Steps that a test has go wrong, to see that it is noticed.

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// A block is free before the copies of its records are durable.
    VoidedEarly,
    /// Recovery takes the last version that it reads.
    NewestByPlace,
    /// A tombstone is dropped with the index's entry.
    NoTombstones,
    /// A block is used anew with the generation and the length that it had.
    SameGeneration,
    /// The log is cut before the blocks are durable.
    CutEarly,
    /// A large value is durable after its record in the log.
    LargeLate,
    /// A large value is freed before the write that replaces it is durable.
    LargeFreedEarly,
    /// A block is void before the writes are durable from which its records are dead.
    VoidedUncommitted,
    /// Each key of a batch has a record of the log.
    BatchInParts,
    /// Writes do not pay for collection.
    Unpaid,
}

/// What goes wrong in a partition, if anything does.
#[derive(Debug)]
pub(crate) struct Faults(#[cfg(test)] Option<Wrong>);

impl Faults {
    pub(crate) fn of(wrong: Option<Wrong>) -> Self {
        #[cfg(test)]
        return Self(wrong);
        #[cfg(not(test))]
        {
            let _ = wrong;
            Self()
        }
    }

    /// Whether this goes wrong: never, but in tests.
    #[inline(always)]
    pub(crate) fn has(&self, wrong: Wrong) -> bool {
        #[cfg(test)]
        return self.0 == Some(wrong);
        #[cfg(not(test))]
        {
            let _ = (self, wrong);
            false
        }
    }
}
