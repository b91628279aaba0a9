//! Memory given back to the system, on the side of the pool's file or memory: see the allocator's `holes`.

use rustix::io::Errno;

use crate::error::PmError;
use crate::media::Medium;

use super::Pool;
use super::file::is_full;

impl<M: Medium> Pool<M> {
    /// Turns unused bytes into zeros and gives their memory back; returns how many bytes.
    pub(crate) fn punch(&self, offset: u64, bytes: u64) -> u64 {
        match &self.backing {
            Some(backing) => backing.file.punch(offset, bytes),
            None if self.region.release(offset as usize, bytes as usize) => bytes,
            None => 0,
        }
    }

    /// Allocates memory for bytes that may have none. If the file system cannot do that, it allocates it at
    /// the first store.
    pub(crate) fn fill(&self, offset: u64, bytes: u64) -> Result<(), PmError> {
        let Some(backing) = &self.backing else { return Ok(()) };
        match backing.file.fill(offset, bytes) {
            Err(e) if is_full(e) => Err(PmError::NoSpace { wanted: bytes }),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => Ok(()),
            Err(e) => Err(crate::region::os("allocating blocks of the file again", e)),
        }
    }

    /// Returns `true` if the file's blocks have fewer bytes than the file.
    pub(crate) fn may_have_holes(&self) -> bool {
        self.backing.as_ref().is_some_and(|backing| backing.file.may_have_holes())
    }

    /// Returns the end of the memory that was touched ahead of its use so far.
    pub(crate) fn touched_ahead(&self) -> u64 {
        self.region.touched_ahead() as u64
    }

    /// Runs `body` while no thread touches pages ahead of their use.
    pub(crate) fn while_no_page_is_touched<R>(&self, body: impl FnOnce() -> R) -> R {
        self.region.while_no_page_is_touched(body)
    }
}
