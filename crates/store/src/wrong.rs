//! Wrong steps, which tests use to check that each is noticed.

/// The wrong step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Wrong {
    /// The changes are made before the record is in the log.
    ChangesFirst = 1,
    /// The record is retired before the changes are made.
    RetiredFirst,
    /// No record is written.
    NoRecord,
    /// The keys are unlocked before the record is retired.
    UnlockedFirst,
    /// Reads are not checked.
    NotChecked,
    /// Of the records that were read, only those that are also changed are checked.
    OnlyChangedChecked,
    /// The ranges that were read are not checked.
    RangesNotChecked,
    /// Old values are noted after the changes.
    NotedLate,
    /// A moment begins while commits are unfinished.
    NotAwaited,
    /// A read does not wait for a commit that holds the key.
    ReadInBetween,
    /// The changes of interrupted commits are not made.
    NotFinished,
    /// A record is registered as needed only after it may have been freed.
    RegisteredLate,
    /// The entries about a record are not in its lane.
    SaidElsewhere,
    /// A sweeper removes a record even if it has changed.
    #[cfg(test)]
    SweptBlindly,
}

/// The wrong step of a store, if any.
#[derive(Debug, Default)]
pub(crate) struct Faults(#[cfg(test)] std::sync::atomic::AtomicU8);

impl Faults {
    #[cfg(test)]
    pub(crate) fn set(&self, wrong: Wrong) {
        self.0.store(wrong as u8, std::sync::atomic::Ordering::Relaxed);
    }

    /// Returns `true` if this step goes wrong: only in tests.
    #[inline(always)]
    pub(crate) fn has(&self, wrong: Wrong) -> bool {
        #[cfg(test)]
        return self.0.load(std::sync::atomic::Ordering::Relaxed) == wrong as u8;
        #[cfg(not(test))]
        {
            let _ = (self, wrong);
            false
        }
    }
}
