//! Indexes by name: who adds an index adds one line here.

use pmindex_pibench::{Subject, Yardstick};

use crate::error::CliError;

/// A way to make an index to be measured.
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: &'static str,
    /// Makes an empty one.
    pub(crate) make: fn() -> Result<Box<dyn Subject>, CliError>,
}

const ENTRIES: &[Entry] =
    &[Entry { name: Yardstick::NAME, make: || Ok(Box::new(Yardstick::default())) }];

/// All names.
pub(crate) fn names() -> Vec<&'static str> {
    ENTRIES.iter().map(|entry| entry.name).collect()
}

/// The entry of this name.
pub(crate) fn find(name: &str) -> Result<&'static Entry, CliError> {
    ENTRIES
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| CliError::UnknownIndex { name: name.into() })
}
