//! What a cache did, counted since it was opened.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Declares the counters and what is shown of them.
macro_rules! counters {
    ($($(#[doc = $doc:expr])* $name:ident,)*) => {
        /// What a cache did since it was opened.
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
    /// Blocks that were asked for and found.
    hits,
    /// Blocks that were asked for and not found.
    misses,
    /// Blocks that were stored.
    admitted,
    /// Of these, blocks that were compressed.
    packed,
    /// Blocks that were not stored: see [`Refusal`](super::Refusal).
    refused,
    /// Segments that were used anew.
    reclaimed,
    /// Entries that were copied on when their segment was used anew.
    copied,
    /// Entries that were given up when their segment was used anew, or for a quota.
    evicted,
    /// Entries that an invalidation or another block of the same name ended.
    invalidated,
    /// Entries whose checksum was found to be right, at their first hit.
    verified,
    /// Entries and summaries whose checksum was found to be wrong, and damaged places of the table.
    corrupt,
    /// Fences.
    fences,
    /// Segments without a summary that had entries when the cache was opened: the one that was being
    /// filled when a crash came.
    unsealed,
}

/// Counts one more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
