//! Faults that a test puts into steps, to show that they are noticed.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Messages announce entries and votes that are not durable yet.
    ToldEarly,
    /// Messages announce entries and votes for which the log had no room.
    ToldUnwritten,
    /// Reads are answered without confirmation of the leader.
    ReadUnconfirmed,
    /// The log is cut before the state durably has the entries that are cut off.
    CutEarly,
    /// It is cut although the state had no room to be made durable.
    CutUndurable,
    /// The log records a snapshot before its state is durable.
    SwitchedEarly,
    /// A piece of a snapshot that comes twice is used twice.
    PieceTwice,
    /// A configuration is not recorded.
    ConfigurationForgotten,
}

/// The fault of a replica, if any.
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

    /// Returns `true` if the replica has this fault: only in tests.
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
