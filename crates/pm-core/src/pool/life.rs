//! Facts about an open pool, and its end.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::path::Path;

use crate::error::{DurabilityLost, PmError};
use crate::media::{Medium, Permitted};
use crate::mode::Durability;

use super::Pool;
use super::describe::Origin;

/// The scope in which a thread recovers an index: see [`Pool::recovery`]. It belongs to the thread:
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
    /// Returns a pass with which other threads take part in this recovery.
    pub fn pass(&self) -> RecoveryPass<'p, M> {
        RecoveryPass { pool: self.pool }
    }
}

/// Lets a thread take part in another thread's recovery.
#[derive(Debug)]
#[must_use]
pub struct RecoveryPass<'p, M: Medium> {
    pool: &'p Pool<M>,
}

impl<'p, M: Medium> RecoveryPass<'p, M> {
    /// Declares that the calling thread takes part in the recovery until the scope is dropped.
    pub fn enter(&self) -> RecoveryScope<'p, M> {
        self.pool.recovery()
    }
}

impl<M: Medium> Pool<M> {
    /// Returns the number of openings of this pool that could write, from 1. Durable before the pool was
    /// open: no two openings that changed the file have the same generation.
    pub fn generation(&self) -> u64 {
        self.facts.generation
    }

    /// Returns `true` if the pool was closed cleanly before it was opened (true for a new pool).
    pub fn was_clean(&self) -> bool {
        self.facts.was_clean
    }

    /// Returns `true` if one of the two copies of the superblock was damaged when the pool was opened. The other one
    /// holds the same; an opening that may write repairs it, and nothing is lost. A crash while the
    /// superblock is written damages a copy, and so does bit rot.
    pub fn superblock_was_damaged(&self) -> bool {
        self.facts.superblock_damaged
    }

    /// Returns the pool's identity.
    pub fn uuid(&self) -> u128 {
        self.facts.uuid
    }

    /// Returns the path of the file, or `(memory)`.
    pub fn path(&self) -> &Path {
        &self.facts.path
    }

    /// Returns how a store becomes durable in this pool: detected when it was opened, never assumed.
    /// [`is_emulated`](Self::is_emulated) says whether it holds for a power failure.
    pub fn durability(&self) -> Durability {
        self.facts.durability
    }

    /// Returns the durability that the medium provides to a process that writes with the default options, as
    /// this opening detected it. It equals [`durability`](Self::durability) if this opening writes and asked
    /// for nothing else.
    pub fn medium_durability(&self) -> Durability {
        match &self.facts.origin {
            Origin::Memory => Durability::Volatile,
            Origin::File(medium) => medium.durability,
        }
    }

    /// Returns `true` if flushes and fences are executed on a medium that is not persistent memory.
    pub fn is_emulated(&self) -> bool {
        self.facts.emulated
    }

    /// Returns `true` if the pool was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.facts.read_only
    }

    /// Returns the greatest size in bytes that the pool can grow to now.
    pub fn max_size(&self) -> u64 {
        if self.facts.grow { self.facts.max_size.max(self.len()) } else { self.len() }
    }

    /// Returns the number of operations that can allocate, free or log at once: see
    /// [`PoolOptions::slots`](crate::PoolOptions::slots).
    pub fn slots(&self) -> u64 {
        self.heap.geometry().slot_count
    }

    /// Returns `true` if this process was forked after the pool was opened.
    pub(crate) fn is_forked(&self) -> bool {
        self.region.len() == 0
    }

    /// Checks that this process is the one that opened the pool, and not a child that it forked later. What has locks of
    /// its own beside a pool calls it before it waits for one: a thread that held it at the fork may not exist here.
    ///
    /// # Errors
    /// [`PmError::Forked`].
    ///
    /// # Cost
    /// A load.
    #[inline]
    pub fn check_process(&self) -> Result<(), PmError> {
        if self.is_forked() { Err(PmError::Forked) } else { Ok(()) }
    }

    /// Checks whether this thread may change this pool. Every operation that writes calls it first, before
    /// any store: stores before the call are not taken back when a fence fails.
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
        if self.facts.read_only {
            return Ok(());
        }
        match self.check_undamaged() {
            Err(_) if self.rolls_back.is_taken() => Ok(()),
            checked => checked,
        }
    }

    /// Returns `true` if this thread may write to a private copy of the pool: see [`recovery`](Self::recovery).
    pub(crate) fn is_recovered_here(&self) -> bool {
        self.permit.is_taken()
    }

    /// Declares that this thread recovers an index, until the scope is dropped. Meanwhile this thread alone
    /// may write to a pool that is open for reading only, or that lost its disk. The writes go to a private
    /// copy of the pages they change and end with this pool; they never reach the file.
    pub fn recovery(&self) -> RecoveryScope<'_, M> {
        RecoveryScope { pool: self, _permitted: self.permit.take() }
    }

    /// Completes a change that is decided, or rolls back one that is not, by calling `rest`. If the disk has
    /// failed, or fails meanwhile, it does so in memory, so that the index can be read; on the medium the
    /// next opening does it.
    ///
    /// # Errors
    /// Those of `rest`; [`PmError::DurabilityLost`] if only the memory was changed.
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

    /// Rolls back a change that is not decided, by calling `rest`, as [`complete`](Self::complete) does; also if damage
    /// was found in the pool meanwhile, perhaps in another index. Waits longer for a slot than an operation does.
    ///
    /// If that fails, part of the change is still there and the next opening discards it, with what would be written
    /// until then: so the pool takes no more writes, as after damage.
    ///
    /// # Errors
    /// Those of [`complete`](Self::complete).
    #[track_caller]
    pub fn roll_back(&self, mut rest: impl FnMut() -> Result<(), PmError>) -> Result<(), PmError> {
        /// Each is some seconds, unless another error comes.
        const TRIES: usize = 3;
        let _permitted = self.rolls_back.take();
        let mut done = self.complete(&mut rest);
        for _ in 1..TRIES {
            if !matches!(done, Err(PmError::Busy { .. })) {
                break;
            }
            done = self.complete(&mut rest);
        }
        match &done {
            Ok(()) | Err(PmError::DurabilityLost(_)) => {}
            Err(error @ PmError::Corrupt { .. }) => self.note_damage(error),
            Err(_) => {
                let what = "a change that could not be rolled back";
                self.note_damage(&PmError::Corrupt { what, offset: 0 });
            }
        }
        done
    }

    /// Closes the pool and marks it as closed cleanly, durably. Dropping the last handle does the
    /// same and cannot report an error.
    ///
    /// # Errors
    /// [`PmError::DurabilityLost`], [`PmError::Forked`], [`PmError::Damaged`]. The pool then opens with
    /// recovery. If only its twin is lost, the pool in memory is closed cleanly.
    ///
    /// # Cost
    /// 2 fences, 4 lines, and the allocator's unfinished work.
    pub fn close(self) -> Result<(), PmError> {
        self.end()
    }

    /// Ends without the clean mark, like a kill of the process: the next opening recovers. For tests.
    #[doc(hidden)]
    pub fn kill(self) {
        self.ended.store(true, Relaxed);
    }

    /// Completes all unfinished work and sets the clean flag; acts once only.
    fn end(&self) -> Result<(), PmError> {
        if self.ended.swap(true, AcqRel) || self.facts.read_only {
            return Ok(());
        }
        // Asked in both ways: some sandboxes keep the length of a pool in a forked child.
        if self.is_forked() || !self.facts.process.is_current() {
            return Err(PmError::Forked);
        }
        self.check_undamaged()?; // the file stays as it is
        if self.medium.is_poisoned() {
            return Err(DurabilityLost.into()); // the file stays as the failure left it
        }
        self.close_heap()?;
        let copied = self.checkpoint(); // C1, durable before: what says that the file is whole without a journal
        if self.twin().is_none() {
            copied?; // the pool in memory is whole without its twin, whose loss the end reports
        }
        self.update_superblock(|next| {
            next.clean = true;
            next.journal = 0;
        })?; // DUR(close)
        self.settle_twin()
    }
}

impl<M: Medium> Drop for Pool<M> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // If this fails, the file is as after a crash; opening it recovers.
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
