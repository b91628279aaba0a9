//! The thread that copies pages to the base: the twin's making, and checkpoints.

use core::ops::Range;
use std::io;

use parking_lot::MutexGuard;

use crate::alloc::PAGE;

use super::super::base::{GROUP_BYTES, place_of};
use super::super::journal::JournalMoment;
use super::super::sets::PageSet;
use super::{Over, State, Twin};

/// The largest number of passes over the pages fenced meanwhile before fences are logged.
const PASSES: u32 = 4;
/// The number of pages that are copied before they are written, and that the disk takes at a time: as many as a slow
/// one takes in some seconds. Few in tests, whose pools are small.
const CHUNK: usize = if cfg!(test) { 16 } else { 1024 };
/// The number of pages that are copied before another thread of the twin may have the processor.
const SLICE: usize = 64;
const PAGE_BYTES: usize = PAGE as usize;
/// The sixteenths of the log with which a checkpoint begins, and with which fences wait until it is over. A
/// writer is held up if it fills the space between them while a checkpoint is in progress.
const DUE: u64 = 6;
const TIGHT: u64 = 11;

/// The way pages are copied to the base.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// The base is zero, and is no part of a twin yet.
    Anew,
    /// The base is no part of a twin yet.
    Again,
    /// Each page is written when the log is durable up to the moment of its copy.
    Logged,
}

impl Twin {
    /// Makes the twin, and then checkpoints.
    pub(super) fn copy_often(&self) {
        let whole = self.state.lock().whole;
        if !whole && let Err(Over) = self.build() {
            return;
        }
        let mut state = self.state.lock();
        while !state.is_over() {
            if state.wanted <= state.begun {
                state.wait(&self.copy);
                continue;
            }
            state.begun += 1;
            let begun = state.begun;
            // Lines fenced from here on are for the next checkpoint.
            // K1: a batch before the tail has no line outside of these pages.
            let tail = self.log.tail();
            let dirty = core::mem::take(&mut *self.dirty.lock());
            let done = state.unlocked(|| self.advance(tail, &dirty));
            if done.is_ok() {
                state.over = begun;
                self.note_used(&mut state, self.log.used());
                self.changed.notify_all();
            }
        }
    }

    /// Records that `used` bytes of the log are used.
    pub(super) fn note_used(&self, state: &mut State, used: u64) {
        let capacity = self.log.capacity();
        let sixteenths = |count| capacity / 16 * count;
        state.tight = used > sixteenths(TIGHT);
        if used > sixteenths(DUE) && state.whole {
            state.wanted = state.wanted.max(state.begun + 1);
            self.copy.notify_one();
        }
    }

    /// K2 to K4.
    fn advance(&self, tail: u64, dirty: &PageSet) -> Result<(), Over> {
        #[cfg(test)]
        drop(self.checkpoints.lock());
        self.copy_pages(dirty.iter(), How::Logged)?;
        self.tally.sync();
        self.check("synchronising the base", self.base.sync())?; // durable before: K4
        self.tell(JournalMoment::Synchronised);
        let truncated = self.log.truncate(tail).map_err(io::Error::other);
        self.check("ending a checkpoint", truncated)?;
        self.tell(JournalMoment::Truncated);
        Ok(())
    }

    /// B1 to B4.
    fn build(&self) -> Result<(), Over> {
        // A hole that is read takes memory.
        let pages = |part: &Range<u64>| (part.start / PAGE * PAGE..part.end).step_by(PAGE_BYTES);
        let all = self.data.iter().flat_map(pages);
        self.copy_pages(all, How::Anew)?;
        for pass in 1.. {
            let dirty = {
                let mut state = self.state.lock();
                let dirty = core::mem::take(&mut *self.dirty.lock());
                state.logs = pass == PASSES || dirty.len() <= CHUNK; // B2
                if state.logs {
                    drop(state);
                    self.copy_pages(dirty.iter(), How::Logged)?;
                    break;
                }
                dirty
            };
            self.copy_pages(dirty.iter(), How::Again)?;
        }
        self.tally.sync();
        self.check("synchronising the base", self.base.sync())?; // durable before: B4
        self.check("naming the twin", self.base.publish())?;
        let mut state = self.state.lock();
        state.whole = true;
        self.note_used(&mut state, self.log.used());
        self.changed.notify_all();
        Ok(())
    }

    /// Copies these pages to the base.
    fn copy_pages(&self, pages: impl Iterator<Item = u64>, how: How) -> Result<(), Over> {
        let (mut pages, mut bytes) = (pages.peekable(), Vec::with_capacity(CHUNK * PAGE_BYTES));
        let mut sums = self.sums.lock();
        while pages.peek().is_some() {
            let mut copied = Vec::with_capacity(CHUNK);
            bytes.clear();
            let mut chunk = pages.by_ref().take(CHUNK).peekable();
            while chunk.peek().is_some() {
                let work = self.work.lock();
                let slice = copied.len();
                for page in chunk.by_ref().take(SLICE) {
                    let any = self.copy_page(page, &mut bytes);
                    if any || how != How::Anew {
                        copied.push(page);
                    } else {
                        bytes.truncate(copied.len() * PAGE_BYTES);
                    }
                }
                sums.note(&copied[slice..], &bytes[slice * PAGE_BYTES..]);
                MutexGuard::unlock_fair(work); // a thread that waits is next
            }
            let mark = {
                let state = self.state.lock();
                if state.stop {
                    return Err(Over);
                }
                state.fenced
            };
            if how == How::Logged {
                self.await_durable(mark)?; // K2, durable before: K3
            }
            let mut rest = &bytes[..];
            for run in copied.chunk_by(|&page, &next| is_behind(next, page)) {
                let (run_bytes, after) = rest.split_at(run.len() * PAGE_BYTES);
                self.write_base(place_of(run[0]), run_bytes)?;
                rest = after;
            }
            if let ([first, .., last], Some(_)) = (&copied[..], pages.peek()) {
                let pushed = self.base.push(place_of(*first)..place_of(*last) + PAGE);
                self.check("writing to the base", pushed)?;
                self.log.note_progress();
            }
        }
        // Nothing must be durable before: where pages are newer than their checksums, the log has their
        // lines.
        sums.take_changed().try_for_each(|(place, stored)| self.write_base(place, &stored))
    }

    /// Appends a copy of a page to `bytes`; returns `false` if it is all zero.
    fn copy_page(&self, page: u64, bytes: &mut Vec<u8>) -> bool {
        let mut any = 0;
        self.mapping.lines_from(page, PAGE_BYTES, |_, words| {
            any |= words.iter().fold(0, |any, word| any | word);
            bytes.extend_from_slice(words.map(u64::to_le_bytes).as_flattened());
        });
        any != 0
    }

    fn write_base(&self, place: u64, bytes: &[u8]) -> Result<(), Over> {
        self.check("writing to the base", self.base.write(place, bytes))?;
        self.tell(JournalMoment::Copied);
        Ok(())
    }
}

/// Returns `true` if the page `next` is behind the page `page` in the base.
fn is_behind(next: u64, page: u64) -> bool {
    next == page + PAGE && !next.is_multiple_of(GROUP_BYTES)
}
