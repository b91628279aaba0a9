//! Counters of a buffer since it was opened.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a buffer since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Metrics { $($(#[$doc])* pub $name: u64,)* }

        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64,)* }

        impl Counters {
            pub(crate) fn read(&self) -> Metrics {
                Metrics { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

metrics! {
    /// Frames that were found whole and up to date (state 4 of figure 4.7).
    valid,
    /// Frames that were found whole, but lacked updates, which came from the log; nothing was read from the
    /// disk (state 2, outdated).
    outdated,
    /// Frames that were found damaged: the page came from the disk and the log (state 1).
    corrupted,
    /// Frames that were found whole, with an update that the log does not have (state 2, dirty). The
    /// protocol never leaves one; such a page is treated as damaged.
    ahead,
    /// Pages that were fetched from the disk.
    fetched,
    /// Updates that were repeated from the log.
    replayed,
    /// Pages that were damaged while the buffer was open, and repaired from the disk and the log.
    mended,
    /// Pages that were damaged on the disk, and built from the archive and the log.
    rebuilt,
    /// Pages that were written to the disk.
    written,
    /// Synchronisations of the disk.
    synced,
    /// Pages of the staging area that were written to the disk again when the buffer was opened.
    restored,
    /// Pages that lost their frame to another page.
    evicted,
    /// Pages that got a copy in DRAM.
    promoted,
    /// Committed transactions that changed something.
    commits,
    /// Groups of commits, each with one fence.
    groups,
}

pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Relaxed);
}
