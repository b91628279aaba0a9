//! Scrubbing: finds rot in frames and on the disk, and completes an archive that began later than the buffer.

use std::ops::Range;

use pmindex_core::Medium;

use crate::archive::{ArchiveState, Change};
use crate::buffer::Buffer;
use crate::error::BufferError;
use crate::page::{HEADER, LSN};

/// The number of pages that are copied to the archive together.
const TOGETHER: usize = 256;

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
    /// Among them: pages that were damaged on the disk, had no frame, and were built from the archive and the log;
    /// the next checkpoint writes them again.
    pub rebuilt: u64,
    /// Pages that are damaged on the disk, have no frame, and cannot be built: they are lost, and reading them fails.
    pub lost: Vec<u64>,
}

impl<M: Medium> Buffer<M> {
    /// Verifies these pages, in their frames and on the disk, and repairs them if possible. Other threads may use
    /// the buffer meanwhile. If the [archive](Self::attach_archive) is incomplete, copies the pages into it; one or
    /// more scrubs of ascending ranges that together have all pages, and find none that is lost, make it complete.
    ///
    /// # Errors
    /// The errors of the disk and the pool.
    ///
    /// # Cost
    /// For each page a read of the disk; if it has a frame, a read of that; if it is built from the archive, a look
    /// at the log and at each run.
    pub fn scrub(&self, pages: Range<u64>) -> Result<Scrubbed, BufferError> {
        let mut scrubbed = Scrubbed::default();
        let pages = pages.start.max(1)..pages.end.min(self.shape.pages);
        let copies = matches!(self.archive_state(), ArchiveState::Incomplete);
        let mut images = Vec::new();
        for page in pages.clone() {
            match self.scrub_page(page, &mut scrubbed) {
                Ok(Some(image)) => {
                    scrubbed.whole += 1;
                    if copies {
                        let user = &image[HEADER..][..self.layout.user_words()];
                        images.push(Change::image(page, image[LSN], user));
                    }
                }
                Ok(None) => {}
                Err(BufferError::Damaged { .. }) => scrubbed.lost.push(page),
                Err(error) => return Err(error),
            }
            if images.len() == TOGETHER {
                self.archive_images(&std::mem::take(&mut images))?;
            }
        }
        if copies {
            self.archive_images(&images)?;
            if scrubbed.lost.is_empty() {
                self.note_images(pages)?;
            }
        }
        Ok(scrubbed)
    }

    /// Returns the page's image, if it exists.
    fn scrub_page(
        &self,
        page: u64,
        scrubbed: &mut Scrubbed,
    ) -> Result<Option<Vec<u64>>, BufferError> {
        let (pm, known) = (self.pool.pm(), self.state(page)?);
        let guard = known.latch.lock(pm);
        if known.place().is_none() {
            // No thread writes it to the disk meanwhile, because it has no frame.
            let (rebuilt, oldest) = match self.restore(page) {
                Ok(restored) => restored,
                Err(BufferError::NoPage { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            if rebuilt.archived {
                self.fill(page, self.take_frame()?, &rebuilt.image, oldest)?;
                scrubbed.rebuilt += 1;
            }
            return Ok(Some(rebuilt.image));
        }
        let frame = self.settle(page, &guard)?.frame;
        let words = self.frames.words(&self.pool, frame);
        if self.layout.verify_in(pm, words, page).is_none() {
            self.mend(page, frame)?;
            scrubbed.mended += 1;
        }
        let state = &self.states[frame as usize];
        let is_whole = |image: Vec<u64>| self.layout.verify(&image, page).is_some();
        if state.dirty() == 0 && !self.device.read(page).is_ok_and(is_whole) {
            state.set_dirty(self.lsn_in(frame));
            scrubbed.rewritten += 1;
        }
        self.copy_whole(page, frame).map(Some)
    }
}
