//! The number of records: known from the start, or counted once.

use std::cell::Cell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use pmindex_core::Medium;
use pmindex_index::IndexError;

const STRIPES: usize = 16;
/// The number of attempts to count during writes; the result of the last one is returned and not kept.
const TRIES: usize = 3;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    /// The change of the number of records since the start, modulo 2^64.
    change: AtomicU64,
    /// The number of writes begun and ended while the number at the start was unknown.
    begun: AtomicU64,
    ended: AtomicU64,
}

/// The number of records at the start, and the changes since, by thread.
#[derive(Debug)]
pub(super) struct Count {
    stripes: [Stripe; STRIPES],
    /// The number at the start plus 1; 0 if not known.
    start: AtomicU64,
}

/// A write that is in progress.
pub(super) struct Busy<'c>(Option<&'c Stripe>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if let Some(stripe) = self.0 {
            stripe.ended.fetch_add(1, AcqRel);
        }
    }
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl Count {
    pub(super) const BYTES: u64 = size_of::<Self>() as u64;

    pub(super) fn new(start: Option<u64>) -> Self {
        let start = start.map_or(0, |records| records.wrapping_add(1));
        Self { stripes: Default::default(), start: AtomicU64::new(start) }
    }

    #[inline(always)]
    fn mine(&self) -> &Stripe {
        let mut mine = MINE.get();
        if mine == usize::MAX {
            mine = THREADS.fetch_add(1, Relaxed);
            MINE.set(mine);
        }
        &self.stripes[mine % STRIPES]
    }

    /// Declares a write that lasts until the returned value is dropped.
    #[inline(always)]
    pub(super) fn begin(&self) -> Busy<'_> {
        if self.start.load(Acquire) != 0 {
            return Busy(None);
        }
        let stripe = self.mine();
        stripe.begun.fetch_add(1, AcqRel);
        Busy(Some(stripe))
    }

    /// Adds `records` (modulo 2^64) to the number of records, within the write that adds them.
    #[inline(always)]
    pub(super) fn add(&self, records: u64) {
        self.mine().change.fetch_add(records, Relaxed);
    }

    fn sum(&self, field: impl Fn(&Stripe) -> &AtomicU64) -> u64 {
        self.stripes.iter().fold(0, |sum, stripe| sum.wrapping_add(field(stripe).load(Acquire)))
    }

    /// Returns the number, if it is known.
    pub(super) fn known(&self) -> Option<u64> {
        let start = self.start.load(Acquire).checked_sub(1)?;
        Some(start.wrapping_add(self.sum(|stripe| &stripe.change)))
    }

    /// Returns the number; `count` counts the records if it is unknown. A count during which no thread wrote
    /// is kept.
    pub(super) fn len(
        &self,
        pm: &impl Medium,
        mut count: impl FnMut() -> Result<u64, IndexError>,
    ) -> Result<u64, IndexError> {
        if let Some(records) = self.known() {
            return Ok(records);
        }
        for turn in 1.. {
            pm.yield_point();
            let ended = self.sum(|stripe| &stripe.ended);
            let quiet = self.sum(|stripe| &stripe.begun) == ended;
            let change = self.sum(|stripe| &stripe.change);
            let records = count()?;
            if quiet && self.sum(|stripe| &stripe.begun) == ended {
                let start = records.wrapping_sub(change).wrapping_add(1);
                let _ = self.start.compare_exchange(0, start, AcqRel, Relaxed);
                return Ok(records);
            }
            if turn == TRIES {
                return Ok(records);
            }
        }
        Ok(0)
    }
}
