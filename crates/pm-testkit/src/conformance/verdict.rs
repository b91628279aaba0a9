//! The result of a section of the suite: nothing, or what the index did wrong.
//!
//! Sections return a [`Verdict`] instead of panicking, so that the suite's own tests can check *which* fault
//! of an index was found, and `proptest` can shrink.

use std::fmt;

use pmindex_core::{DurabilityLost, PmError};
use pmindex_index::{IndexError, Missing, Occupied};

/// A fault of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    what: String,
}

/// The result of a section.
pub type Verdict<T = ()> = Result<T, Failure>;

impl Failure {
    /// Makes a failure with a description.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }

    /// Adds the place where the failure was found.
    #[must_use]
    pub fn within(self, place: impl fmt::Display) -> Self {
        Self { what: format!("{place}: {}", self.what) }
    }

    /// Returns the description.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Self {
        Self::new(format!("unexpected error: {error}"))
    }
}

impl From<Occupied> for Failure {
    fn from(error: Occupied) -> Self {
        Self::new(error.to_string())
    }
}

impl From<Missing> for Failure {
    fn from(error: Missing) -> Self {
        Self::new(error.to_string())
    }
}

impl From<PmError> for Failure {
    fn from(error: PmError) -> Self {
        Self::new(format!("unexpected error of the pool: {error}"))
    }
}

impl From<DurabilityLost> for Failure {
    fn from(error: DurabilityLost) -> Self {
        Self::new(format!("unexpected error of the medium: {error}"))
    }
}

/// Adds where a failure was found.
pub(crate) trait Within<T> {
    fn within(self, place: impl fmt::Display) -> Verdict<T>;
}

impl<T, E: Into<Failure>> Within<T> for Result<T, E> {
    fn within(self, place: impl fmt::Display) -> Verdict<T> {
        self.map_err(|e| e.into().within(place))
    }
}

/// Formats by `Debug`, cut to a length that a person reads: values may be a mebibyte.
pub(crate) fn brief(value: &dyn fmt::Debug) -> String {
    const MAX: usize = 160;
    let mut text = format!("{value:?}");
    if text.len() > MAX {
        let cut = (0..=MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text = format!("{}... ({} bytes of text)", &text[..cut], text.len());
    }
    text
}

/// Fails unless the two are equal.
pub(crate) fn expect_eq<T: PartialEq + fmt::Debug>(
    what: &dyn fmt::Display,
    found: &T,
    wanted: &T,
) -> Verdict {
    if found == wanted {
        return Ok(());
    }
    Err(Failure::new(format!("{what}: found {}, wanted {}", brief(found), brief(wanted))))
}

/// Fails with a message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Failure::new(format!($($message)+)));
        }
    };
}

/// Fails unless the two are equal; the message names what was compared.
macro_rules! ensure_eq {
    ($found:expr, $wanted:expr, $($message:tt)+) => {
        $crate::conformance::verdict::expect_eq(&format_args!($($message)+), &$found, &$wanted)?
    };
}

pub(crate) use {ensure, ensure_eq};
