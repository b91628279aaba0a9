//! The word of a version lock and its memory orders.
//!
//! This file names its atomics as `super::primitive`, so that a test can compile it over the
//! atomics of a model checker (`pm-testkit/tests/loom_version.rs`).
//!
//! ```text
//! writer                                    reader
//! W1  CAS even -> odd (Acquire)             R1  load, must be even (Acquire)
//! W2  store data (Release, or relaxed       R2  load data (any order)
//!     behind a release fence)               R3  fence (Acquire)
//! W3  store next even (Release)             R4  load, must be unchanged
//! ```
//!
//! * R1 reads from some W3: the reader sees everything that writer stored (W3 is Release, R1 Acquire).
//! * R2 reads from a later writer's W2: the Release of that store (or the fence before it) and the
//!   acquire fence R3 order that writer's W1 before R4, so R4 does not find the version of R1. This
//!   is why bulk writes begin with a release fence: without it their relaxed stores could be seen
//!   before the odd word is.
//! * W1 reads from the last W3 with Acquire: writers see each other's data.
//!
//! LIN(lock): W1. LIN(read): any moment between R1 and R4 of a read that validates.
//!
//! # Released memory
//!
//! The memory of a node that no thread can reach may become zeros, words in any order, and be used for a node
//! again:
//!
//! ```text
//! F1  after the last W3: the floor is raised above the word
//! F2  zeros
//! F3  the word begins at the floor, if it is zero
//! F4  stores of the new node's data
//! ```
//!
//! * A word is not 0 while its node can be reached, so R4 does not take zeros for the version of R1.
//! * F3 is above that version, too. R2 that reads from F4 is after F3, as it would be after a W3.
//! * R2 that reads from F2 is after the last W3 (the system orders the thread's stores before it removed the
//!   page before later reads of zeros), so R4 finds the value that W3 stored, or a later one.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::primitive::{AtomicU64, fence};

/// `version << 1 | locked`; it never returns to an earlier value.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct VersionWord(pub(crate) AtomicU64);

impl VersionWord {
    /// R1: returns the version, unless a writer holds the lock.
    #[inline(always)]
    pub(crate) fn version(&self) -> Option<u64> {
        let word = self.0.load(Acquire);
        (word & 1 == 0).then_some(word)
    }

    /// R3, R4: whether no writer has locked since [`version`](Self::version) returned `version`.
    #[inline(always)]
    pub(crate) fn is_still(&self, version: u64) -> bool {
        fence(Acquire);
        self.0.load(Relaxed) == version
    }

    /// W1: locks, if no writer has locked since [`version`](Self::version) returned `version`.
    #[inline(always)]
    pub(crate) fn try_lock(&self, version: u64) -> bool {
        debug_assert!(version & 1 == 0, "not a version that a reader was given");
        self.0.compare_exchange(version, version | 1, AcqRel, Relaxed).is_ok()
    }

    /// W3: unlocks a word that holds `locked`, to a value that it never had before.
    #[inline(always)]
    pub(crate) fn unlock(&self, locked: u64) {
        self.0.store(locked.wrapping_add(1), Release);
    }

    /// F1: returns a version, unlocked and not 0, above all that the word ever had; the lock must be free.
    #[inline(always)]
    pub(crate) fn above(&self) -> u64 {
        (self.0.load(Relaxed) | 1).wrapping_add(1)
    }

    /// F3: sets the version to `version` if the word is zero. No thread can reach the node.
    #[inline(always)]
    pub(crate) fn begin_at(&self, version: u64) {
        debug_assert!(version & 1 == 0 && version != 0, "unlocked, and not what zeros are");
        if self.0.load(Relaxed) == 0 {
            self.0.store(version, Release);
        }
    }
}
