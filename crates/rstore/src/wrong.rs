//! Faults that a test puts into steps, to show that they are noticed.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// A block is freed before the copies of its records are durable.
    VoidedEarly,
    /// Recovery takes the version that it reads last.
    NewestByPlace,
    /// A tombstone is dropped with the index's entry.
    NoTombstones,
    /// A block is reused with its old generation and length.
    SameGeneration,
    /// The log is cut before the blocks are durable.
    CutEarly,
    /// A large value is durable after its record in the log.
    LargeLate,
    /// A large value is freed before the write that replaces it is durable.
    LargeFreedEarly,
    /// A block is made void before the writes that replaced its records are durable.
    VoidedUncommitted,
    /// Each key of a batch gets a log record of its own.
    BatchInParts,
    /// The records of a batch that has several count without the last one.
    PartsCount,
    /// What is staged fits into the log only at the second attempt, which does no harm.
    NoRoom,
    /// Writes neither pay for collection nor fill holes.
    Unpaid,
    /// A write takes a hole before the seal of the hole is durable.
    FilledEarly,
    /// A record is sealed before the write is durable that replaced it.
    SealedEarly,
    /// A record in a hole is opened before its log entry is durable.
    OpenedEarly,
    /// A tombstone is dropped before the seals of the older versions of its key are durable.
    ForgottenEarly,
}

/// The fault of a partition, if any.
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

    /// Returns `true` if the partition has this fault: only in tests.
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
