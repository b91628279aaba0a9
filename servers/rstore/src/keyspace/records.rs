//! The interface of the engine: ordered records of bytes, each with a time of expiry.

use std::ops::Bound;

/// The expiry of records that never expire; others are milliseconds since 1970.
pub(crate) const NEVER: u64 = 0;

/// A failure of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There is no room, or soon will be none.
    Full,
    /// A key or a value is too long for the engine.
    TooLong(String),
    /// Too much waits to be agreed on; later there is room for it.
    Busy,
    /// A record is damaged.
    Damaged(String),
    /// The medium failed.
    Broken(String),
}

/// Called for each record with its key and its value. Returns `false` to end the scan.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;

/// Ordered records. An expired record does not exist.
pub(crate) trait Records {
    /// Appends a value to `out`; returns `false` if there is none.
    fn get_into(&self, key: &[u8], now: u64, out: &mut Vec<u8>) -> Result<bool, Failure>;

    /// Returns the expiry of a record ([`NEVER`] is possible); `None` if it does not exist.
    fn expiry(&self, key: &[u8], now: u64) -> Result<Option<u64>, Failure>;

    /// Visits the records of a range in ascending or descending order.
    fn scan(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        now: u64,
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure>;

    /// Returns the number of records, including expired ones that were not yet removed.
    fn len(&self) -> u64;
}
