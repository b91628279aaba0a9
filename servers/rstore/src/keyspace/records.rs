//! What is asked of the engine: ordered records of bytes with a time at which each expires.

use std::ops::Bound;

/// The time of what never expires; others are milliseconds since 1970.
pub(crate) const NEVER: u64 = 0;

/// Why the engine refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There is no room, or soon would be none.
    Full,
    /// A key or a value is longer than the engine keeps.
    TooLong(String),
    /// Anything else: the medium, or a damaged record.
    Broken(String),
}

/// Called for each record with its key and its value. Returns `false` to end the scan.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;

/// Ordered records. What has expired is not there.
pub(crate) trait Records {
    /// Appends a value to `out`; `false` if there is none.
    fn get_into(&self, key: &[u8], now: u64, out: &mut Vec<u8>) -> Result<bool, Failure>;

    /// When a record expires ([`NEVER`] is possible); `None` if there is none.
    fn expiry(&self, key: &[u8], now: u64) -> Result<Option<u64>, Failure>;

    /// Visits the records of a range in order, or from its end.
    fn scan(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        now: u64,
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure>;

    /// How many records there are, expired ones that were not swept yet included.
    fn len(&self) -> u64;
}
