//! Steps that a test has go wrong, to see that it is noticed.

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Wrong {
    /// The changes are made before the record is in the log.
    ChangesFirst = 1,
    /// The record is gone before the changes are made.
    RetiredFirst,
    /// There is no record.
    NoRecord,
    /// The keys are unlocked before the record is gone.
    UnlockedFirst,
    /// What was read is not checked.
    NotChecked,
    /// Of the records that were read only those are checked that are changed, too.
    OnlyChangedChecked,
    /// The ranges that were read are not checked.
    RangesNotChecked,
    /// What records were is noted after they are changed.
    NotedLate,
    /// A moment begins with commits unfinished.
    NotAwaited,
    /// A read does not wait for a commit that has the key.
    ReadInBetween,
    /// What interrupted commits left to do is not done.
    NotFinished,
    /// A record is needed only after it may be given back.
    RegisteredLate,
    /// What is said of a record is not in its lane.
    SaidElsewhere,
    /// A sweeper removes a record whatever has become of it.
    #[cfg(test)]
    SweptBlindly,
}

/// What goes wrong in a store, if anything does.
#[derive(Debug, Default)]
pub(crate) struct Faults(#[cfg(test)] std::sync::atomic::AtomicU8);

impl Faults {
    #[cfg(test)]
    pub(crate) fn set(&self, wrong: Wrong) {
        self.0.store(wrong as u8, std::sync::atomic::Ordering::Relaxed);
    }

    /// Whether this goes wrong: never, but in tests.
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
