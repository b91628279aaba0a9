//! The engine, as the interface of the commands.

use std::ops::{Bound, ControlFlow};

use pmindex_rstore::{Error, Partition};

use crate::keyspace::{Failure, NEVER, Records, Visit};

/// Returns the failure that a client sees for an error of the engine.
pub(super) fn failure(error: &Error) -> Failure {
    match error {
        error if error.is_full() => Failure::Full,
        Error::KeyTooLong { .. } | Error::ValueTooLong { .. } | Error::BatchTooLarge { .. } => {
            Failure::TooLong(error.to_string())
        }
        Error::Damaged { .. } => Failure::Damaged(error.to_string()),
        error => Failure::Broken(error.to_string()),
    }
}

impl Records for Partition {
    fn get_into(&self, key: &[u8], now: u64, out: &mut Vec<u8>) -> Result<bool, Failure> {
        match Partition::get_into(self, key, now, out) {
            // No record has a longer key.
            Err(Error::KeyTooLong { .. }) => Ok(false),
            other => other.map_err(|error| failure(&error)),
        }
    }

    fn expiry(&self, key: &[u8], now: u64) -> Result<Option<u64>, Failure> {
        match Partition::expiry(self, key, now) {
            Err(Error::KeyTooLong { .. }) => Ok(None),
            Ok(found) => Ok(found.map(|expires| expires.unwrap_or(NEVER))),
            Err(error) => Err(failure(&error)),
        }
    }

    fn scan(
        &self,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        now: u64,
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        let mut visit = |key: &[u8], value: &[u8]| {
            if visit(key, value) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        Partition::scan(self, from, to, now, reverse, &mut visit).map_err(|error| failure(&error))
    }

    fn len(&self) -> u64 {
        Partition::len(self)
    }
}
