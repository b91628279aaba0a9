//! Facts about an open pool, and its end.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::path::Path;

use crate::error::{DurabilityLost, PmError};
use crate::media::{Medium, Permitted};
use crate::mode::Durability;

use super::Pool;
use super::describe::Origin;

/// This thread recovers an index: see [`Pool::recovery`]. It is the thread's own:
///
/// ```compile_fail,E0277
/// fn elsewhere(pool: &pmindex_core::Pool) {
///     let scope = pool.recovery();
///     std::thread::scope(|threads| threads.spawn(move || drop(scope)).join());
/// }
/// ```
#[derive(Debug)]
#[must_use = "recovery ends when this is dropped"]
pub struct RecoveryScope<'p, M: Medium> {
    pool: &'p Pool<M>,
    _permitted: Permitted,
}

impl<'p, M: Medium> RecoveryScope<'p, M> {
    /// Lets other threads take part in this recovery.
    pub fn pass(&self) -> RecoveryPass<'p, M> {
        RecoveryPass { pool: self.pool }
    }
}

/// Lets a thread take part in another one's recovery.
#[derive(Debug)]
#[must_use]
pub struct RecoveryPass<'p, M: Medium> {
    pool: &'p Pool<M>,
}

impl<'p, M: Medium> RecoveryPass<'p, M> {
    /// Declares that the calling thread recovers, too, until the scope is dropped.
    pub fn enter(&self) -> RecoveryScope<'p, M> {
        self.pool.recovery()
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

    /// Whether one of the two copies of the superblock was damaged when the pool was opened. The other
    /// one holds the same; an opening that may write mends both, and nothing is lost. A crash at the
    /// moment the superblock was written leaves this, and so does a bit that the medium lost.
    pub fn superblock_was_damaged(&self) -> bool {
        self.facts.superblock_damaged
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

    /// What the medium gives to a process that writes to the pool with the usual options, as this opening
    /// found it; the same as [`durability`](Self::durability) if this one writes and asked for nothing
    /// else.
    pub fn medium_durability(&self) -> Durability {
        match &self.facts.origin {
            Origin::Memory => Durability::Volatile,
            Origin::File(medium) => medium.durability,
        }
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

    /// Whether this thread may change this pool. Every operation that writes asks first, before it
    /// stores anything: what the thread stored until then is not taken back when a fence fails.
    ///
    /// # Errors
    /// [`PmError::ReadOnly`], [`PmError::Forked`], [`PmError::Damaged`]; [`PmError::DurabilityLost`]
    /// after a failed write-back.
    ///
    /// # Cost
    /// Some loads.
    #[inline]
    pub fn check_writable(&self) -> Result<(), PmError> {
        self.check_may_write()?;
        self.medium.keep_stores();
        Ok(())
    }

    /// As [`check_writable`](Self::check_writable), in the middle of an operation.
    #[inline]
    pub(crate) fn check_may_write(&self) -> Result<(), PmError> {
        if self.facts.read_only && !self.permit.is_taken() {
            return Err(PmError::ReadOnly);
        }
        if self.is_forked() {
            return Err(PmError::Forked);
        }
        if !self.medium.may_write() {
            return Err(DurabilityLost.into());
        }
        // The private copy of a pool that is open for reading only may be written.
        if self.facts.read_only { Ok(()) } else { self.check_undamaged() }
    }

    /// Declares that this thread recovers an index, until the scope is dropped: meanwhile it, and no
    /// other thread, may write to a pool that is open for reading only, or that lost its disk. The
    /// writes go to a private copy of the pages they change and end with this pool; the file is never
    /// touched.
    pub fn recovery(&self) -> RecoveryScope<'_, M> {
        RecoveryScope { pool: self, _permitted: self.permit.take() }
    }

    /// Does what remains of a change that is decided, or takes back one that is not. If the disk has
    /// failed, or fails meanwhile, it is done in memory, so that the index can be read; on the medium
    /// the next opening does it.
    ///
    /// # Errors
    /// Those of `rest`; [`PmError::DurabilityLost`] if it was done in memory alone.
    #[track_caller]
    pub fn complete(&self, mut rest: impl FnMut() -> Result<(), PmError>) -> Result<(), PmError> {
        if !self.medium.is_poisoned() {
            let done = rest();
            if done.is_ok() || !self.medium.is_poisoned() {
                return done;
            }
        }
        let _recovery = self.recovery();
        rest()?;
        self.medium.keep_stores();
        Err(DurabilityLost.into())
    }

    /// Closes the pool and marks it as closed cleanly, durably. Dropping the last handle does the
    /// same and cannot report an error.
    ///
    /// # Errors
    /// [`PmError::DurabilityLost`], [`PmError::Forked`], [`PmError::Damaged`]. The pool then opens with
    /// recovery; but if only its twin is lost, the pool in memory is closed.
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
        if self.medium.is_poisoned() {
            return Err(DurabilityLost.into()); // the file stays as the failure left it
        }
        self.close_heap()?;
        self.checkpoint()?; // C1, durable before: what says that the file is whole without a journal
        self.update_superblock(|next| {
            next.clean = true;
            next.journal = 0;
        })?; // DUR(close)
        self.close_twin()
    }
}

impl<M: Medium> Drop for Pool<M> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // The file stays as after a crash if this fails; opening it recovers.
            let _ = self.end();
        }
        let Some(backing) = &mut self.backing else { return };
        if let Some(journal) = backing.journal() {
            journal.end(); // its thread stores to the mapping, which goes next
        }
        if let Some(twin) = backing.twin() {
            twin.end(); // its threads read the mapping
        }
        if self.region.len() != 0 {
            backing.ends(); // not a forked child's
        }
    }
}
