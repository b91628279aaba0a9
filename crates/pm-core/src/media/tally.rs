//! What a medium whose fences wait has done: counted where it waits, or is about to.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Counts since the pool was opened. A thread that counts here waits for a disk, or holds a lock: a shared count costs
/// nothing beside that.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    fences: AtomicU64,
    rounds: AtomicU64,
    syncs: AtomicU64,
    lines: AtomicU64,
    bytes: AtomicU64,
}

impl Tally {
    /// A fence.
    pub(super) fn fence(&self) {
        self.fences.fetch_add(1, Relaxed);
    }

    /// A round that makes fences durable together with one synchronisation: so many lines, of the log so many
    /// bytes.
    pub(super) fn round(&self, lines: u64, bytes: u64) {
        self.rounds.fetch_add(1, Relaxed);
        self.lines.fetch_add(lines, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.sync();
    }

    /// A synchronisation.
    pub(super) fn sync(&self) {
        self.syncs.fetch_add(1, Relaxed);
    }

    /// Fences, rounds, synchronisations, lines and bytes of logs.
    pub(crate) fn now(&self) -> [u64; 5] {
        [&self.fences, &self.rounds, &self.syncs, &self.lines, &self.bytes]
            .map(|count| count.load(Relaxed))
    }
}
