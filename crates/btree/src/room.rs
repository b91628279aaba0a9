//! The pages that are kept for changes that are certain to come, and the others.
//!
//! A store has committed a transaction before it changes its maps, so a map in pages keeps as many pages as the changes
//! can need at most, before; other operations do without these. An operation that needs a page first counts as one that
//! does, and then looks at how many are kept; a caller that keeps pages first counts them, and then looks at both the
//! operations and the pages in use. Both orders are sequentially consistent, so one of the two sees the other.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// Counts of one map.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pages: AtomicU64,
    /// The puts of operations in progress that have taken, or are about to take, one of the other pages.
    taking: AtomicU64,
}

/// Pages that are kept until this is dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    kept: Arc<Kept>,
    pages: u64,
}

impl Kept {
    /// Keeps pages; the caller must check that they are there, afterwards.
    pub(crate) fn keep(self: &Arc<Self>, pages: u64) -> Pages {
        self.pages.fetch_add(pages, SeqCst);
        Pages { kept: Arc::clone(self), pages }
    }

    /// Returns the number of pages that are kept.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(SeqCst)
    }

    /// Returns the number of puts that may be taking other pages; read before the number of pages in use.
    pub(crate) fn taking(&self) -> u64 {
        self.taking.load(SeqCst)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.kept.pages.fetch_sub(self.pages, SeqCst);
    }
}

/// The pages that an operation may take, from its begin to its end.
#[derive(Debug)]
pub(crate) struct Room<'k> {
    pages: u64,
    /// Those that are kept are for others than the puts of this operation.
    others: Option<(&'k Kept, u64)>,
    is_counted: Cell<bool>,
}

impl<'k> Room<'k> {
    /// All pages.
    pub(crate) fn all(pages: u64) -> Self {
        Self { pages, others: None, is_counted: Cell::new(false) }
    }

    /// All that are not kept, for so many puts.
    pub(crate) fn beside(pages: u64, kept: &'k Kept, puts: u64) -> Self {
        Self { pages, others: Some((kept, puts)), is_counted: Cell::new(false) }
    }

    /// Returns the number of pages that may be in use.
    pub(crate) fn most(&self) -> u64 {
        let Some((kept, puts)) = self.others else { return self.pages };
        if !self.is_counted.replace(true) {
            kept.taking.fetch_add(puts, SeqCst);
        }
        self.pages.saturating_sub(kept.pages())
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let (Some((kept, puts)), true) = (self.others, self.is_counted.get()) {
            kept.taking.fetch_sub(puts, SeqCst); // after: what it took is in use, or not
        }
    }
}

/// Returns the greatest number of pages that puts take in a tree of this height: each splits a page of each
/// level at most. A level that is new has a page for two of its records at most, and so half as many as the level below
/// it has; a new root takes one more.
pub(crate) fn most_pages(puts: u64, height: u64) -> u64 {
    puts.checked_ilog2().map_or(0, |log| puts * (height + 1) + u64::from(log) + 2)
}
