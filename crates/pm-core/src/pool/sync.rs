//! Waiting until acknowledged writes survive as much as the medium allows.
//!
//! | mode | action |
//! | --- | --- |
//! | `Flush`, `Fence`, `Msync`, `Journal` | none: the fence of each write has waited |
//! | `Periodic` | waits until the twin has everything |
//! | `Process`, or emulated, in a file on a disk | the whole file is synchronised |
//! | `Process`, or emulated, in tmpfs; `Volatile` | none: there is no medium below |
//!
//! A file without write-back is synchronised as it is at that moment, and the kernel writes later stores in
//! any order. So the guarantee holds until the next write; a write in progress counts as one.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use crate::error::{DurabilityLost, PmError};
use crate::media::Medium;
use crate::mode::Durability;

use super::Pool;

/// Synchronisations of a pool's file. One failure is final: the kernel takes the pages for written from then
/// on, and reports the failure once.
#[derive(Debug, Default)]
pub(super) struct Synced {
    failed: Mutex<bool>,
    count: AtomicU64,
}

impl Synced {
    /// Synchronises, and remembers a failure.
    pub(super) fn note<E>(&self, sync: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut failed = self.failed.lock(); // one at a time: the system tells one caller alone of a failure
        self.count.fetch_add(1, Relaxed);
        let synced = sync();
        *failed |= synced.is_err();
        synced
    }

    /// Returns the number of synchronisations.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Synchronises; refused after a failure.
    fn note_unless_lost<E>(
        &self,
        sync: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), DurabilityLost> {
        let mut failed = self.failed.lock();
        self.count.fetch_add(1, Relaxed);
        *failed = *failed || sync().is_err();
        if *failed { Err(DurabilityLost) } else { Ok(()) }
    }
}

impl<M: Medium> Pool<M> {
    /// Waits until everything acknowledged before this call survives as much as the pool's medium allows:
    ///
    /// * in modes `Flush`, `Fence`, `Msync` and `Journal` a power failure, as it did when it was
    ///   acknowledged: this does nothing;
    /// * in mode `Periodic` a power failure: the twin on the disk has everything when this returns;
    /// * in mode `Process` (or emulated) on a disk a power failure too, **until the next write**: the file is
    ///   synchronised as a whole, and the kernel writes later stores in any order, so a power failure after
    ///   one may leave a pool that does not open. No thread may write during the call or after it,
    ///   [`close`](Self::close) included; a program that keeps writing and must survive power failures needs
    ///   `Journal` or `Msync`;
    /// * on tmpfs the end of the process, and in anonymous memory nothing: there is no medium to wait for.
    ///
    /// [`require`](crate::PoolOptions::require) refuses a pool that gives less than the caller needs.
    ///
    /// # Errors
    /// [`PmError::DurabilityLost`] if the disk failed, now or earlier. This is final, since the kernel takes
    /// for written what it could not write. [`PmError::Forked`].
    ///
    /// # Cost
    /// A comparison; in mode `Periodic` a write to the twin's log, which threads share, and at the start the
    /// wait for the twin in the making; in mode `Process` on a disk an `fsync` of the file.
    pub fn sync(&self) -> Result<(), PmError> {
        if self.is_forked() {
            return Err(PmError::Forked);
        }
        if self.medium.is_poisoned() {
            return Err(DurabilityLost.into());
        }
        if let Some(twin) = self.backing.as_ref().and_then(|backing| backing.twin()) {
            return Ok(twin.sync()?);
        }
        let waits = self.facts.durability > Durability::Process && !self.facts.emulated;
        match &self.backing {
            Some(backing) if !waits && !self.facts.read_only => {
                Ok(backing.synced.note_unless_lost(|| backing.sync_whole())?)
            }
            _ => Ok(()),
        }
    }
}
