//! The admission of changes: lengths, bytes and room are checked here, before any of them is staged or proposed.
//!
//! A server alone and the leader of a group ask the same function, with other bounds. What a leader proposes is
//! agreed on before the replicas apply it, and cannot be refused then: so it must fit into the engine of each.

use pmindex_rstore::Partition;

use crate::keyspace::{Change, Failure, NEVER};

/// The bytes that one command or transaction may write at most, anywhere.
pub(crate) const MOST_WRITTEN: usize = 128 << 20;

/// What is admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The share of the capacity that may be live, in percent.
    pub(crate) percent: u64,
    /// The bytes that earlier changes add, which were admitted and are not applied yet.
    pub(crate) ahead: u64,
    /// The bytes of the changes.
    pub(crate) written: usize,
}

impl Bounds {
    /// A server alone fills its engine as far as that allows.
    pub(super) const ALONE: Self = Self { percent: 95, ahead: 0, written: MOST_WRITTEN };
}

/// Returns the bytes that the changes add to the engine at most, or why they are refused. `taken` returns the bytes
/// that the record of a key takes before these changes, with those that were admitted earlier.
pub(crate) fn admit<'c>(
    engine: &Partition,
    changes: impl Iterator<Item = (&'c Vec<u8>, &'c Change)> + Clone,
    bounds: Bounds,
    taken: impl Fn(&[u8]) -> Result<u64, pmindex_rstore::Error>,
) -> Result<u64, Failure> {
    let bytes = |(key, change): (&Vec<u8>, &Change)| {
        key.len() + change.as_ref().map_or(0, |stored| stored.value.len())
    };
    let written: usize = changes.clone().map(bytes).sum();
    if written > bounds.written {
        let most = bounds.written;
        let what = format!("a change of {written} bytes is too large; the limit is {most}");
        return Err(Failure::TooLong(what));
    }
    let writes = changes.map(|(key, change)| {
        let value = change.as_ref().map(|stored| &stored.value[..]);
        let expiry = change.as_ref().map(|stored| stored.expires);
        (&key[..], value, expiry.filter(|expires| *expires != NEVER))
    });
    let admitted = engine.admit(writes, (bounds.percent, bounds.ahead), taken);
    admitted.map_err(|error| super::engine::failure(&error))
}
