//! Scrubbing: finds rot in frames and on the disk.

use std::ops::Range;

use pmindex_core::Medium;

use crate::buffer::Buffer;
use crate::error::BufferError;

/// The result of [`Buffer::scrub`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scrubbed {
    /// The pages that were verified and are whole now.
    pub whole: u64,
    /// Among them: pages with a damaged frame, which was repaired from the disk and the log.
    pub mended: u64,
    /// Among them: pages that were damaged on the disk and have a frame; the next checkpoint writes them
    /// again.
    pub rewritten: u64,
    /// Pages that are damaged on the disk and have no frame: they are lost, and reading them fails.
    pub lost: Vec<u64>,
}

impl<M: Medium> Buffer<M> {
    /// Verifies these pages, in their frames and on the disk, and repairs them if possible. Other threads
    /// may use the buffer meanwhile.
    ///
    /// # Errors
    /// The errors of the disk and the pool.
    ///
    /// # Cost
    /// For each page a read of the disk; if it has a frame, a read of that.
    pub fn scrub(&self, pages: Range<u64>) -> Result<Scrubbed, BufferError> {
        let mut scrubbed = Scrubbed::default();
        for page in pages.start.max(1)..pages.end.min(self.shape.pages) {
            match self.scrub_page(page, &mut scrubbed) {
                Ok(true) => scrubbed.whole += 1,
                Ok(false) => {}
                Err(BufferError::Damaged { .. }) => scrubbed.lost.push(page),
                Err(error) => return Err(error),
            }
        }
        Ok(scrubbed)
    }

    /// Returns `true` if the page exists.
    fn scrub_page(&self, page: u64, scrubbed: &mut Scrubbed) -> Result<bool, BufferError> {
        let (pm, known) = (self.pool.pm(), self.state(page)?);
        let guard = known.latch.lock(pm);
        if known.place().is_none() {
            // No thread writes it to the disk meanwhile, because it has no frame.
            return match self.restore(page) {
                Ok(_) => Ok(true),
                Err(BufferError::NoPage { .. }) => Ok(false),
                Err(error) => Err(error),
            };
        }
        let frame = self.settle(page, &guard)?.frame;
        let words = self.frames.words(&self.pool, frame);
        if self.layout.verify_in(pm, words, page).is_none() {
            self.mend(page, frame)?;
            scrubbed.mended += 1;
        }
        let state = &self.states[frame as usize];
        if state.dirty() == 0 && self.layout.verify(&self.device.read(page)?, page).is_none() {
            state.set_dirty(self.lsn_in(frame));
            scrubbed.rewritten += 1;
        }
        Ok(true)
    }
}
