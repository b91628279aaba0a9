//! LSNs, and commits in progress.
//!
//! An LSN consists of the generation of the pool, which is durable before the first LSN of that generation
//! is drawn, and a number. So an LSN that was lost in a crash with its record is never drawn again, and a
//! frame with that LSN is not mistaken for the result of another record.

use std::collections::BTreeSet;

use pmindex_core::PmError;

use crate::record::NUMBER_BITS;

/// The commits that have drawn their LSN and not yet changed their pages.
#[derive(Debug)]
pub(crate) struct Active {
    last: u64,
    running: BTreeSet<u64>,
}

/// Returns the LSN before the first one of a generation.
pub(crate) fn first_of(generation: u64) -> Result<u64, PmError> {
    if generation >> (63 - NUMBER_BITS) != 0 {
        return Err(PmError::BadOption { what: "generation of a pool", value: generation });
    }
    Ok(generation << NUMBER_BITS)
}

impl Active {
    /// Starts with the LSN after this one.
    pub(crate) fn after(last: u64) -> Self {
        Self { last, running: BTreeSet::new() }
    }

    /// Draws an LSN.
    pub(crate) fn begin(&mut self) -> Result<u64, PmError> {
        let next = self.last + 1;
        if next & ((1 << NUMBER_BITS) - 1) == 0 {
            return Err(PmError::BadOption {
                what: "commits of one opening",
                value: 1 << NUMBER_BITS,
            });
        }
        self.last = next;
        self.running.insert(next);
        Ok(next)
    }

    /// Ends a commit: its pages have the changes, or it failed.
    pub(crate) fn end(&mut self, lsn: u64) {
        self.running.remove(&lsn);
    }

    /// Returns the last LSN that was drawn.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Returns `true` if no commit with this LSN or a smaller one is in progress.
    pub(crate) fn is_over(&self, lsn: u64) -> bool {
        self.running.first().is_none_or(|&first| first > lsn)
    }
}
