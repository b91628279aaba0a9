//! Growth in place: the addresses are reserved, so nothing moves.
//!
//! ```text
//! step  what                                          durable before
//! G1    fallocate and fsync the file; map it          G2
//! G2    superblock: size (S3, S4; LIN)                any use of the new zones (DUR)
//! ```
//!
//! A crash before G2 leaves a file that is longer than its superblock says, which is legal: the next growth
//! uses the surplus. New zones read as zeros, as unused zones must.

use crate::error::PmError;
use crate::media::Medium;

use super::Pool;

/// The largest automatic growth; otherwise the pool grows by an eighth.
const STEP_MAX: u64 = 256 << 20;

impl<M: Medium> Pool<M> {
    /// Grows the pool to at least `size` bytes, rounded up to whole zones; returns the new size.
    /// Does nothing if it is that large already.
    ///
    /// # Errors
    /// [`PmError::Full`] over [`max_size`](Self::max_size), [`PmError::NoSpace`] if the file system
    /// is full, [`PmError::ReadOnly`], [`PmError::Forked`]. The pool stays as it was.
    ///
    /// # Cost
    /// 2 fences, 4 lines; for a file some system calls (`fallocate`, `fsync`, `mmap`) besides.
    ///
    /// # Durability
    /// Durable on return, and before any of the new space is used.
    pub fn grow(&self, size: u64) -> Result<u64, PmError> {
        self.check_may_write()?;
        let growing = self.pm().lock(&self.growing);
        let (old, shape) = {
            let found = self.pm().lock(&self.superblock);
            (found.superblock.size, found.superblock.shape)
        };
        if size <= old {
            return Ok(old);
        }
        let new = shape.round(size);
        if new > self.facts.max_size {
            return Err(PmError::Full { wanted: new - old, capacity: self.facts.max_size });
        }
        self.extend_region(new)?; // G1, durable before: G2
        self.update_superblock(|next| next.size = new)?; // G2, DUR(grow)
        self.extend_heap(new);
        drop(growing);
        Ok(new)
    }

    /// Grows the pool by at least `bytes` bytes of zones, if it may grow. The allocator calls this when no
    /// zone has room; before this returns `true`, `extend_heap` tells the allocator the new end.
    pub(crate) fn grow_for(&self, bytes: u64) -> Result<bool, PmError> {
        if !self.facts.grow {
            return Ok(false);
        }
        let old = self.len();
        let least = old.saturating_add(bytes);
        let shape = self.pm().lock(&self.superblock).superblock.shape;
        // All zones have the same size: there is room for as many whole ones as fit.
        if shape.round(least) > self.facts.max_size {
            return Ok(false);
        }
        let ample = least.max(old + (old / 8).min(STEP_MAX));
        let target = if shape.round(ample) <= self.facts.max_size { ample } else { least };
        self.grow(target).map(|_| true)
    }
}
