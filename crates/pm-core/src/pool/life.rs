//! Facts about an open pool, and its end.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::path::Path;

use crate::error::{DurabilityLost, PmError};
use crate::media::Medium;
use crate::mode::Durability;

use super::Pool;

/// An index's recovery is under way: see [`Pool::recovery`].
#[derive(Debug)]
#[must_use = "recovery ends when this is dropped"]
pub struct RecoveryScope<'p, M: Medium> {
    pool: &'p Pool<M>,
}

impl<M: Medium> Drop for RecoveryScope<'_, M> {
    fn drop(&mut self) {
        self.pool.recovering.fetch_sub(1, Release);
    }
}

impl<M: Medium> Pool<M> {
    /// Counts the openings of this pool that could write, from 1. Durable before the pool was
    /// opened: no two openings that changed the file have the same generation.
    pub fn generation(&self) -> u64 {
        self.facts.generation
    }

    /// Whether the pool was closed cleanly before it was opened (true for a new pool).
    pub fn was_clean(&self) -> bool {
        self.facts.was_clean
    }

    /// The pool's identity.
    pub fn uuid(&self) -> u128 {
        self.facts.uuid
    }

    /// The file, or `(memory)`.
    pub fn path(&self) -> &Path {
        &self.facts.path
    }

    /// How a store becomes durable in this pool: detected when it was opened, never assumed.
    /// [`is_emulated`](Self::is_emulated) says whether to believe it of a power failure.
    pub fn durability(&self) -> Durability {
        self.facts.durability
    }

    /// Whether flushes and fences are executed on a medium that is not persistent memory.
    pub fn is_emulated(&self) -> bool {
        self.facts.emulated
    }

    /// Whether the pool was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.facts.read_only
    }

    /// The greatest size the pool can grow to now, in bytes.
    pub fn max_size(&self) -> u64 {
        if self.facts.grow { self.facts.max_size.max(self.len()) } else { self.len() }
    }

    /// Whether this process was forked after the pool was opened.
    pub(crate) fn is_forked(&self) -> bool {
        self.region.len() == 0
    }

    /// Whether this pool may be changed. Every operation that writes asks first ([`Pool::op`] does,
    /// for those that allocate); two loads.
    ///
    /// # Errors
    /// [`PmError::ReadOnly`], [`PmError::Forked`], [`PmError::Damaged`].
    #[inline]
    pub fn check_writable(&self) -> Result<(), PmError> {
        if self.facts.read_only && self.recovering.load(Acquire) == 0 {
            return Err(PmError::ReadOnly);
        }
        if self.is_forked() {
            return Err(PmError::Forked);
        }
        // The private copy of a pool that is open for reading only may be written.
        if self.facts.read_only { Ok(()) } else { self.check_undamaged() }
    }

    /// Declares that an index recovers, until the scope is dropped: meanwhile a pool that is open
    /// for reading only may be written. The writes go to a private copy of the pages they change
    /// and end with this pool; the file is never touched.
    pub fn recovery(&self) -> RecoveryScope<'_, M> {
        self.recovering.fetch_add(1, AcqRel);
        RecoveryScope { pool: self }
    }

    /// Closes the pool and marks it as closed cleanly, durably. Dropping the last handle does the
    /// same and cannot report an error.
    ///
    /// # Errors
    /// [`PmError::DurabilityLost`], [`PmError::Forked`], [`PmError::Damaged`]. The pool then opens with
    /// recovery.
    ///
    /// # Cost
    /// 2 fences, 4 lines, and what the allocator has to put in order.
    pub fn close(self) -> Result<(), PmError> {
        self.end()
    }

    /// Ends without the clean mark, as if the process were killed here: the next opening recovers.
    /// For tests.
    #[doc(hidden)]
    pub fn kill(self) {
        self.ended.store(true, Relaxed);
    }

    /// Once: puts everything in order and sets the clean flag.
    fn end(&self) -> Result<(), PmError> {
        if self.ended.swap(true, AcqRel) || self.facts.read_only {
            return Ok(());
        }
        if self.is_forked() {
            return Err(PmError::Forked);
        }
        self.check_undamaged()?; // the file stays as it is
        self.close_heap()?;
        if self.medium.is_poisoned() {
            return Err(DurabilityLost.into()); // not even the flag may be stored
        }
        self.update_superblock(|next| next.clean = true) // DUR(close)
    }
}

impl<M: Medium> Drop for Pool<M> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // The file stays as after a crash if this fails; opening it recovers.
            let _ = self.end();
        }
    }
}
