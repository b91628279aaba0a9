//! The metrics of a cache, counted since it was opened.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Declares the counters and their public snapshot.
macro_rules! counters {
    ($($(#[doc = $doc:expr])* $name:ident,)*) => {
        /// The metrics of a cache since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Metrics {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counters {
            pub(super) fn read(&self) -> Metrics {
                Metrics { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Lookups that found their block.
    hits,
    /// Lookups that did not find their block.
    misses,
    /// Blocks that were stored.
    admitted,
    /// Blocks that were compressed when they were stored.
    packed,
    /// Blocks that were not stored: see [`Refusal`](super::Refusal).
    refused,
    /// Segments that were reused.
    reclaimed,
    /// Entries that were copied when their segment was reused.
    copied,
    /// Entries that were evicted when their segment was reused, or for a quota.
    evicted,
    /// Entries that an invalidation or a replacement killed.
    invalidated,
    /// Entries whose checksum was verified, at their first hit.
    verified,
    /// Entries and summaries with a wrong checksum, and damaged places of the table.
    corrupt,
    /// Fences.
    fences,
    /// Segments with entries and without a summary when the cache was opened: those that were filled when a
    /// crash came.
    unsealed,
}

/// Increments a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
