//! Memory that the system has back, as the pool's file or memory gives it: see the allocator's `holes`.

use rustix::io::Errno;

use crate::error::PmError;
use crate::media::Medium;

use super::Pool;
use super::file::is_full;

impl<M: Medium> Pool<M> {
    /// Turns bytes that are not in use into zeros, and gives their memory back; returns how many.
    pub(crate) fn punch(&self, offset: u64, bytes: u64) -> u64 {
        match &self.backing {
            Some(backing) => backing.file.punch(offset, bytes),
            None if self.region.release(offset as usize, bytes as usize) => bytes,
            None => 0,
        }
    }

    /// Gets memory for bytes that may have none. A file system that cannot say so finds it when it is
    /// stored to.
    pub(crate) fn fill(&self, offset: u64, bytes: u64) -> Result<(), PmError> {
        let Some(backing) = &self.backing else { return Ok(()) };
        match backing.file.fill(offset, bytes) {
            Err(e) if is_full(e) => Err(PmError::NoSpace { wanted: bytes }),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => Ok(()),
            Err(e) => Err(crate::region::os("allocating blocks of the file again", e)),
        }
    }

    /// Whether the file has fewer blocks than bytes.
    pub(crate) fn may_have_holes(&self) -> bool {
        self.backing.as_ref().is_some_and(|backing| backing.file.may_have_holes())
    }

    /// Does this while no thread makes pages present that are used next.
    pub(crate) fn while_no_page_is_touched<R>(&self, body: impl FnOnce() -> R) -> R {
        self.region.while_no_page_is_touched(body)
    }
}
