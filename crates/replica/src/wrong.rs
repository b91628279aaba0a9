//! Steps that a test has go wrong, to see that it is noticed.

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Messages tell of entries and votes that are not durable yet.
    ToldEarly,
    /// Reads are answered without asking who leads.
    ReadUnconfirmed,
    /// The log is cut before the state has durably what is cut off.
    CutEarly,
    /// The log says that a snapshot is there before its state is durable.
    SwitchedEarly,
    /// A configuration is not written down.
    ConfigurationForgotten,
}

/// What goes wrong in a replica, if anything does.
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
