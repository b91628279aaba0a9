//! Checkpoints, which shorten the log.
//!
//! A checkpoint takes the last LSN that was drawn, `c`, and waits for the commits up to it. Then, slice by
//! slice, it makes the pages durable that were changed by commits up to `c`:
//!
//! ```text
//! step  action                                                   durable before
//! P1    the frame, flushed (rule H); a copy in the staging area, P2
//!       and the number of copies
//! P2    the pages on the disk, synchronised                      P3, the next P1 of the staging area
//!       the records up to c in the archive, if there is one      P3
//! P3    the horizon = c                                          P4
//! P4    segments of the log are freed
//! ```
//!
//! * **Rule H**: after a crash, a frame whose lines were not written back may have its contents of any
//!   earlier moment, and be whole. As long as the log has the later updates, recovery notices. So the
//!   horizon passes an update only when the frame has it durably, or durably belongs to no page.
//! * **Staging**: the frame of a page may change while the page is written to the disk, so a crash may tear
//!   both. The copy in the staging area does not change until the disk is synchronised; opening writes it
//!   again, if its LSN is after the horizon.
//!
//! P2, and the copy of P1, precede the reuse of a frame whose page the disk lacks. A checkpoint does not repeat
//! them for a page that another thread is writing; before P3 it waits until that thread's frame durably belongs
//! to no page.

use std::sync::atomic::Ordering::{Acquire, Release};

use parking_lot::MutexGuard;
use pmindex_core::{Flushed, Medium};
use pmindex_log::Positions;

use crate::buffer::Buffer;
use crate::error::BufferError;
use crate::frames::{FrameState, NOBODY};
use crate::layout::{checksum, staged_word};
use crate::metrics::{add, count};
use crate::options::Mutant;
use crate::page::LSN;

/// The checkpoints of a buffer.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    current: Option<Checkpoint>,
    /// The horizon that is durable. [`Buffer::horizon`] may be a later one while segments are freed.
    durable: u64,
}

impl Checkpoints {
    pub(crate) fn after(horizon: u64) -> Self {
        Self { current: None, durable: horizon }
    }
}

/// A checkpoint in progress.
#[derive(Debug)]
struct Checkpoint {
    upto: u64,
    tails: Positions,
    /// The frames that are still to be examined; `None` while commits up to `upto` are in progress, or
    /// pages wait for updates from before the opening.
    queue: Option<Vec<u32>>,
}

/// Whether a checkpoint or a recovery has more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// There is more to do: call it again.
    More,
    /// It is complete.
    Done,
}

/// An image, its page, and the state of its frame with the word to set when the disk has the image.
type Outgoing<'b> = (u64, Vec<u64>, &'b FrameState, u64);

impl<M: Medium> Buffer<M> {
    /// Makes a checkpoint: the log keeps nothing from before it.
    ///
    /// # Errors
    /// The errors of the disk and the pool; [`BufferError::Damaged`] if a page is damaged of which the log
    /// has updates.
    ///
    /// # Cost
    /// For each page that has changed since the last checkpoint: its lines, twice, and a write to the disk. For
    /// each slice: a fence and a synchronisation of the disk. At the end: a fence, or those of
    /// [`Log::release`](pmindex_log::Log::release), and two for frames that get their entries. With an archive also
    /// a fence, a look at the log (one more for each 100,000 updates), its records written to the archive, and two synchronisations of that; from time to time
    /// runs of the archive are merged, all of them at worst.
    pub fn checkpoint(&self) -> Result<(), BufferError> {
        while self.checkpoint_step()? == Progress::More {}
        Ok(())
    }

    /// Does a slice of a checkpoint, and begins one if none is in progress. A slice has at most as many
    /// pages as the staging area.
    ///
    /// # Errors
    /// Those of [`checkpoint`](Self::checkpoint).
    pub fn checkpoint_step(&self) -> Result<Progress, BufferError> {
        let pm = self.pool.pm();
        let mut checkpoints = pm.lock(&self.checkpoints);
        let Checkpoints { current, durable } = &mut *checkpoints;
        let checkpoint = current.get_or_insert_with(|| self.begin_checkpoint());
        let Some(queue) = &mut checkpoint.queue else {
            if !pm.lock(&self.active).is_over(checkpoint.upto) {
                pm.spin();
            } else if self.recover_step()? == Progress::Done {
                let frames = 0..self.states.len() as u32;
                let mut queue: Vec<u32> =
                    frames.filter(|&f| self.is_due(f, checkpoint.upto)).collect();
                let page = |&frame: &u32| self.states[frame as usize].page.load(Acquire);
                // Each is read once: threads give frames to other pages meanwhile, and a sort may panic at that.
                queue.sort_by_cached_key(|frame| std::cmp::Reverse(page(frame)));
                checkpoint.queue = Some(queue);
            }
            return Ok(Progress::More);
        };
        if !queue.is_empty() {
            let slice = queue.split_off(queue.len().saturating_sub(self.shape.staging as usize));
            let left = self.clean(&slice, checkpoint.upto)?;
            if left.len() == slice.len() {
                pm.spin(); // somebody holds them all
            }
            queue.extend(left);
            return Ok(Progress::More);
        }
        let (upto, tails) = (checkpoint.upto, checkpoint.tails);
        if upto > *durable {
            // A page that a thread is writing to the disk, to reuse its frame, was not in the queue. The thread
            // has the staging area until the frame belongs to no page.
            drop(pm.lock(&self.staging));
            self.device.check()?; // what was in progress when it failed counts as written
            pm.handover_point(); // pages are written and frames emptied before and after P3
            if self.mutant != Mutant::LateArchive {
                self.archive_log(upto)?; // durable before: P3
            }
            let noted = self.note_horizon(*durable, upto)?; // P3, durable before: P4
            self.horizon.store(upto, Release); // before P4: from then on the log may lack records up to it
            self.log.release_after(&tails, noted)?; // P4
            *durable = upto;
            if self.mutant == Mutant::LateArchive {
                self.archive_log(upto)?;
            }
        }
        *current = None;
        drop(checkpoints);
        self.list(true)?;
        self.list(true)?; // those whose images the first one has made durable
        Ok(Progress::Done)
    }

    /// Records with LSNs after `upto` are at the tails or behind them.
    fn begin_checkpoint(&self) -> Checkpoint {
        let active = self.pool.pm().lock(&self.active);
        Checkpoint { upto: active.last(), tails: self.log.tails(), queue: None }
    }

    fn is_due(&self, frame: u32, upto: u64) -> bool {
        (1..=upto).contains(&self.states[frame as usize].dirty())
    }

    /// Makes frames durable and writes their pages to the disk; returns those whose latch is taken.
    fn clean(&self, frames: &[u32], upto: u64) -> Result<Vec<u32>, BufferError> {
        let pm = self.pool.pm();
        let _alone = pm.lock(&self.staging);
        let (mut held, mut left) = (Vec::new(), Vec::new());
        for &frame in frames {
            let page = self.states[frame as usize].page.load(Acquire);
            if page == NOBODY || !self.is_due(frame, upto) {
                continue;
            }
            let known = self.state(page)?;
            let Some(guard) = known.latch.try_lock(pm) else {
                left.push(frame);
                continue;
            };
            let is_there = known.place().is_some_and(|place| place.frame == frame);
            if is_there && self.is_due(frame, upto) {
                held.push((page, frame, guard));
            }
        }
        let mut images = Vec::new();
        for &(page, frame, _) in &held {
            images.push((page, frame, self.copy_whole(page, frame)?));
        }
        let mut flushed = Flushed::nothing();
        for &(_, frame, _) in held.iter().filter(|_| self.mutant != Mutant::NoRuleH) {
            flushed = flushed.and(pm.flush_words(self.frames.words(&self.pool, frame))); // P1
        }
        let outgoing = self.outgoing(images);
        drop(held);
        pm.handover_point(); // the pages may change, and others wait for the staging area
        self.write_out(&outgoing, flushed)?;
        Ok(left)
    }

    /// Marks these pages as being written. The caller holds their latches.
    fn outgoing(&self, images: Vec<(u64, u32, Vec<u64>)>) -> Vec<Outgoing<'_>> {
        let begin = |(page, frame, image): (u64, u32, Vec<u64>)| {
            let state = &self.states[frame as usize];
            let word = state.begin_write(image[LSN]);
            (page, image, state, word)
        };
        images.into_iter().map(begin).collect()
    }

    /// Writes pages that the disk lacks from their frames to the disk. The caller holds their latches.
    ///
    /// The frames are not flushed, so rule H holds only when they durably belong to no page. The horizon waits
    /// for that as long as the caller holds the staging area, which this returns. `None`: there was nothing to
    /// write.
    pub(crate) fn write_victims(
        &self,
        victims: &[(u64, u32)],
    ) -> Result<Option<MutexGuard<'_, ()>>, BufferError> {
        let is_dirty = |frame: u32| self.states[frame as usize].dirty() != 0;
        if !victims.iter().any(|&(_, frame)| is_dirty(frame)) {
            return Ok(None);
        }
        let alone = self.pool.pm().lock(&self.staging);
        let mut images = Vec::new();
        for &(page, frame) in victims.iter().filter(|&&(_, frame)| is_dirty(frame)) {
            images.push((page, frame, self.copy_whole(page, frame)?));
        }
        // All pages are read before the first is written: a damaged one fails while no frame counts as clean.
        let outgoing = self.outgoing(images);
        for slice in outgoing.chunks(self.shape.staging as usize) {
            self.write_out(slice, Flushed::nothing())?;
        }
        Ok(Some(alone))
    }

    /// Copies a page if it is whole, so that damage does not reach the disk.
    pub(crate) fn copy_whole(&self, page: u64, frame: u32) -> Result<Vec<u64>, BufferError> {
        let words = self.frames.words(&self.pool, frame);
        if let Some(place) = self.state(page)?.place() {
            self.write_back(page, place);
        }
        let mut image = vec![0; words.len()];
        self.pool.pm().read_words(words, &mut image);
        if self.layout.verify(&image, page).is_none() {
            self.mend(page, frame)?;
            self.pool.pm().read_words(words, &mut image);
        }
        Ok(image)
    }

    /// Writes pages to the disk, at most as many as the staging area has. The caller holds the staging
    /// area.
    fn write_out(&self, outgoing: &[Outgoing<'_>], flushed: Flushed) -> Result<(), BufferError> {
        let (pm, mut flushed) = (self.pool.pm(), flushed);
        if outgoing.is_empty() {
            return Ok(());
        }
        if self.mutant == Mutant::NoStaging {
            pm.fence(flushed)?;
        } else {
            for (slot, (_, image, ..)) in (self.shape.frames as u32..).zip(outgoing) {
                let words = self.frames.words(&self.pool, slot);
                flushed = flushed.and(pm.stream_words(words, image)); // P1
            }
            let root = self.pool.get(self.root)?;
            pm.store(&root.staged, staged_word(self.shape.identity, outgoing.len())); // P1
            pm.fence(flushed.and(pm.flush(&root.staged)))?; // durable before: P2
        }
        let mut images: Vec<(u64, &[u64])> =
            outgoing.iter().map(|(page, image, ..)| (*page, &image[..])).collect();
        images.sort_unstable_by_key(|(page, _)| *page);
        for neighbours in images.chunk_by(|one, other| one.0 + 1 == other.0) {
            self.device.write_all(neighbours)?; // P2
        }
        self.device.sync()?; // durable before: P3, and before another page is staged
        for (.., state, word) in outgoing {
            state.written(*word);
        }
        add(&self.counters.written, outgoing.len() as u64);
        count(&self.counters.synced);
        Ok(())
    }

    /// Stores that log records up to this LSN are no longer needed, in the place that does not have the durable
    /// horizon.
    fn note_horizon(&self, durable: u64, upto: u64) -> Result<Flushed, BufferError> {
        let (pm, root) = (self.pool.pm(), self.pool.get(self.root)?);
        let slot = if pm.load(&root.horizon[0]) == durable { 2 } else { 0 };
        pm.store(&root.horizon[slot], upto);
        pm.store(&root.horizon[slot + 1], checksum(*b"hrzn", &[self.shape.identity, upto]));
        Ok(pm.flush_words(&root.horizon[slot..slot + 2]))
    }
}
