//! A counter of records under one lock, read by threads without the lock.
//!
//! This file names its atomics as `super::primitive`, so that a test can compile it over the atomics of a model
//! checker (`pm-testkit/tests/loom_tally.rs`).
//!
//! ```text
//! writer, with the lock             reader
//! W1  add to `gained` (Release)     R1  load `changes` (Acquire)
//! W2  add 1 to `changes` (Release)  R2  load `gained` (Acquire)
//!                                   R3  count the records, none that is locked
//!                                   R4  load `changes`: as in R1?
//! ```
//!
//! If R4 finds what R1 found, the records of R3 are those of R2:
//!
//! * R1 reads from some W2: R2 finds what that writer gained, or more.
//! * R2 reads from a later writer's W1: that writer has the lock, or has had it, so R3 waits for it, and R4 finds its W2.
//! * R3 counts a record of a later writer: it waited for the lock, and R4 finds that writer's W2.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::primitive::AtomicU64;

/// Records gained since the index was opened (modulo 2^64), and the number of these changes.
#[derive(Debug, Default)]
pub(crate) struct Count {
    gained: AtomicU64,
    changes: AtomicU64,
}

impl Count {
    /// W1, W2: adds `change` (modulo 2^64) records; the lock is held. Returns the number of changes.
    #[inline(always)]
    pub(crate) fn add(&self, change: u64) -> u64 {
        self.gained.store(self.gained.load(Relaxed).wrapping_add(change), Release);
        let count = self.changes.load(Relaxed).wrapping_add(1);
        self.changes.store(count, Release);
        count
    }

    /// R1 and R2, or R4: returns the number of changes, and the records gained by these at least.
    pub(crate) fn load(&self) -> (u64, u64) {
        let changes = self.changes.load(Acquire);
        (changes, self.gained.load(Acquire))
    }
}
