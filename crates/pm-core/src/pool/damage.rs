//! Damage: contents of the pool that no operation of this library leaves there.
//!
//! A pool in which damage was found takes no more writes, by any index: a write depends on what it reads, and
//! would make the damage worse. (A change that is being [rolled back](super::Pool::roll_back) is, since readers would see
//! it.) Reads go on. Damage is noted in DRAM, by the operation that returns
//! [`PmError::Corrupt`] to a user (a racing reader, which has yet to validate what it read, notes nothing):
//! the next opening has to find it again.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::OnceLock;

use crate::error::PmError;
use crate::media::Medium;

use super::Pool;

/// The first damage found.
#[derive(Debug, Default)]
pub(super) struct Damage {
    is_found: AtomicBool,
    first: OnceLock<(&'static str, u64)>,
}

impl<M: Medium> Pool<M> {
    /// Notes damage: from now on a pool that is open for writing takes no writes. Ignores errors other than
    /// [`PmError::Corrupt`].
    #[cold]
    #[inline(never)]
    pub fn note_damage(&self, error: &PmError) {
        if let PmError::Corrupt { what, offset } = error {
            let _ = self.damage.first.set((what, *offset)); // the first one stays
            self.damage.is_found.store(true, Relaxed);
        }
    }

    /// Returns the first damage found, as writes report it; `None` if there is none.
    pub fn damage(&self) -> Option<PmError> {
        let &(what, offset) = self.damage.first.get()?;
        Some(PmError::Damaged { what, offset })
    }

    /// # Errors
    /// [`PmError::Damaged`] if damage was found in the pool.
    #[inline(always)]
    pub(super) fn check_undamaged(&self) -> Result<(), PmError> {
        if self.damage.is_found.load(Relaxed) { self.damage().map_or(Ok(()), Err) } else { Ok(()) }
    }
}
