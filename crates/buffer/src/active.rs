//! LSNs, and commits under way.
//!
//! An LSN is the generation of the pool, which is durable before the first one is drawn, and a number. So
//! one that a crash took away with its record is never drawn again: a frame that has it is not
//! mistaken for one that another record led to.

use std::collections::BTreeSet;

use pmindex_core::PmError;

use crate::record::NUMBER_BITS;

/// Commits between the drawing of their LSN and the change of their pages.
#[derive(Debug)]
pub(crate) struct Active {
    last: u64,
    running: BTreeSet<u64>,
}

/// The LSN before the first one of a generation.
pub(crate) fn first_of(generation: u64) -> Result<u64, PmError> {
    if generation >> (63 - NUMBER_BITS) != 0 {
        return Err(PmError::BadOption { what: "generation of a pool", value: generation });
    }
    Ok(generation << NUMBER_BITS)
}

impl Active {
    /// LSNs after this one.
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

    /// The pages have it, or there is no such commit.
    pub(crate) fn end(&mut self, lsn: u64) {
        self.running.remove(&lsn);
    }

    /// The last LSN that was drawn.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Whether no commit of this LSN or an earlier one is under way.
    pub(crate) fn is_over(&self, lsn: u64) -> bool {
        self.running.first().is_none_or(|&first| first > lsn)
    }
}
