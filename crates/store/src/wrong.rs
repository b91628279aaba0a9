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
    /// What records were is noted after they are changed.
    NotedLate,
    /// A moment begins with commits unfinished.
    NotAwaited,
    /// A read does not wait for a commit that has the key.
    ReadInBetween,
    /// What interrupted commits left to do is not done.
    NotFinished,
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
