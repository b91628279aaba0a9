//! The entries of frames: which page of each the next opening finds there.
//!
//! An entry is no condition of durability, but of warmth: without it, a page comes from the disk and the log. Wrong it
//! must never be.

use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Flushed, Medium};

use crate::buffer::Buffer;
use crate::error::BufferError;

/// Frames with pages that have no entry yet: a crash loses them.
#[derive(Debug, Default)]
pub(crate) struct Unlisted {
    pub(crate) filled: Vec<Filling>,
    /// Their images are durable.
    durable: Vec<Filling>,
}

/// A page, its frame, and how often the frame had been filled then.
pub(crate) type Filling = (u64, u32, u64);

impl<M: Medium> Buffer<M> {
    /// Stores the entries of frames that were filled, of many with one fence. A frame gets its entry with the
    /// fence after the one that makes its image durable. Both happen when there are many, or in any case with
    /// `all`.
    ///
    /// ```text
    /// step  store                                           durable before
    /// P1    the image, or what became of it meanwhile       P2
    /// P2    the entry of the frame                          nothing
    /// ```
    ///
    /// The frame may have a page's earlier image, from before it lost the frame. Therefore P1 precedes P2.
    pub(crate) fn list(&self, all: bool) -> Result<(), BufferError> {
        let pm = self.pool.pm();
        let (filled, durable) = {
            let mut unlisted = pm.lock(&self.unlisted);
            let count = unlisted.filled.len() + unlisted.durable.len();
            let enough = self.together();
            if count == 0 || !(all || unlisted.filled.len() >= enough) {
                return Ok(());
            }
            (std::mem::take(&mut unlisted.filled), std::mem::take(&mut unlisted.durable))
        };
        let (mut flushed, mut next, mut again) = (Flushed::nothing(), Vec::new(), Vec::new());
        for filling @ (page, frame, _) in durable {
            let Some(_guard) = self.state(page)?.latch.try_lock(pm) else {
                again.push(filling);
                continue;
            };
            if self.is_still_filled(filling) {
                let entry = self.frames.entry(&self.pool, frame)?;
                pm.store(entry, page); // P2
                flushed = flushed.and(pm.flush(entry));
                self.states[frame as usize].listed.store(true, Relaxed);
            }
        }
        for filling @ (page, frame, _) in filled {
            let Some(_guard) = self.state(page)?.latch.try_lock(pm) else {
                again.push(filling);
                continue;
            };
            if self.is_still_filled(filling) {
                flushed = flushed.and(pm.flush_words(self.frames.words(&self.pool, frame))); // P1
                next.push(filling);
            }
        }
        pm.fence(flushed)?; // durable before: P2
        let mut unlisted = pm.lock(&self.unlisted);
        unlisted.durable.extend(next);
        unlisted.filled.extend(again);
        Ok(())
    }

    /// Returns `true` if a frame has what it was filled with then, and no entry. The caller holds the latch.
    fn is_still_filled(&self, (page, frame, nth): Filling) -> bool {
        let state = &self.states[frame as usize];
        let here = self.pages[page as usize].place().is_some_and(|place| place.frame == frame);
        here && state.filled.load(Relaxed) == nth && !state.listed.load(Relaxed)
    }
}
