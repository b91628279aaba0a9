//! Commits: one fence makes everything staged durable, and everything that waits for a fence.
//!
//! ```text
//! a commit
//! step  store                                                    durable before
//! P1    the staged bodies, one record of the log (or one for     the fence, which is the commit (DUR)
//!       each part of them that a record has room for; all
//!       records of a batch but the last are marked as parts);
//!       the lines of records in blocks that are not flushed yet
//! P2    lengths of blocks that are full or that were copied to   P3 of the commit after the next one;
//!       (LIN of what they cover, for opening)                    giving back segments of the log
//! P3    length 0 of victims that were emptied two commits ago    P4
//!                                                                of the next one
//! P4    records in blocks that were void at the last commit      their own length
//! ```
//!
//! The steps of holes wait for the same fences: see [`holes`](crate::holes).
//!
//! So collection and lengths need no fences of their own: each step waits for the fence of the next commit.
//! What a length covers is durably in the log. When a victim is made void, a durable length covers the
//! copies of its live records, and the writes that replaced its other records are durable.

use std::thread;

use pmindex_core::{Flushed, Medium, PmError};
use pmindex_log::{LANES, Position};

use crate::Error;
use crate::blocks::State;
use crate::layout::{LENGTH, length_word};
use crate::partition::Partition;
use crate::record::Parts;
use crate::wrong::Wrong;

/// The tag of a log record with writes.
pub(crate) const WRITES: u64 = 1;
/// That of one with the beginning of a batch, or a piece of its middle. It counts only if the next record begins
/// with the same LSN, and so on to one with the tag [`WRITES`].
pub(crate) const PART: u64 = 2;
/// The lane of the log to which a partition appends.
const LANE: usize = 0;

/// Returns the end of the bodies from `begin` on, at most up to `end`, for which a record has room; at least one.
fn end_of_part(staged: &[u64], begin: usize, end: usize, most: usize) -> usize {
    if end - begin <= most {
        return end;
    }
    let mut at = begin;
    while let Some(parts) = Parts::split(&staged[at..end]) {
        let next = at + parts.words.len();
        if next - begin > most && at > begin {
            break;
        }
        at = next;
    }
    at
}

impl<M: Medium> Partition<M> {
    /// Makes all staged writes durable, with one fence for any number of writes. Send replies after it.
    ///
    /// # Errors
    /// [`Error::Pool`]. If it [is full](Error::is_full), the pool has no room for the log: the staged writes stay
    /// staged, and another commit tries it again. After any other error they may or may not be durable, and the
    /// partition is [broken](Error::Broken).
    ///
    /// # Cost
    /// 1 fence, or none if nothing is staged; the lines of a record of the log, and of the lines of blocks
    /// that the writes filled only in part. More fences when a segment of the log begins or ends, and 2 for
    /// each large value that was replaced.
    ///
    /// # Durability
    /// DUR is its fence.
    pub fn commit(&mut self) -> Result<(), Error> {
        if self.broken {
            return Err(Error::Broken);
        }
        if self.staged.is_empty() && self.pipeline.is_empty() {
            return Ok(());
        }
        self.broken = true; // unless it comes to its end
        self.pool().check_writable()?;
        self.turn()?;
        self.broken = false;
        self.counters.commits += 1;
        Ok(())
    }

    /// Executes one fence, and the steps that it allows.
    pub(crate) fn turn(&mut self) -> Result<(), Error> {
        if self.faults.has(Wrong::LargeFreedEarly) {
            self.free_replaced()?;
        }
        if self.faults.has(Wrong::SealedEarly) {
            self.search_holes()?;
        }
        self.note_thread();
        if self.thread.is_none() {
            self.flush_again()?;
        }
        self.grow_open_length();
        let grown = std::mem::take(&mut self.pipeline.grown);
        let mut flushed = Flushed::nothing();
        for &place in &grown {
            flushed = flushed.and(self.flush_tail(place)?); // P1
        }
        if let Err(error) = self.fence(flushed) {
            if error.is_full() {
                // Nothing of the turn counts: the next commit does it again, with what is staged until then.
                self.pipeline.grown = grown;
                self.broken = false;
            }
            return Err(error);
        } // DUR
        self.settle_holes()?;
        let settled = std::mem::take(&mut self.pipeline.settled);
        for (place, words, lsn) in std::mem::take(&mut self.pipeline.lengths) {
            self.is_covered(place, words, lsn);
        }
        for void in std::mem::take(&mut self.pipeline.void) {
            self.erased(&void)?;
        }
        for place in grown {
            self.store_length(place)?; // P2
        }
        for victim in settled {
            if self.is_pinned(victim.place) {
                self.pipeline.settled.push(victim);
            } else {
                self.void(victim)?; // P3
            }
        }
        let emptied = std::mem::take(&mut self.pipeline.emptied);
        if self.faults.has(Wrong::VoidedEarly) {
            emptied.into_iter().try_for_each(|victim| self.void(victim))?;
        } else {
            self.pipeline.settled.extend(emptied);
        }
        self.search_holes()?;
        self.cut_log()?;
        self.free_replaced()
    }

    /// Appends the staged writes to the log, and fences.
    fn fence(&mut self, flushed: Flushed) -> Result<(), Error> {
        if self.staged.is_empty() {
            self.pool().pm().fence(flushed)?;
            return Ok(());
        }
        let _ = flushed; // the lane's fence is for it, too
        match self.push(false) {
            Err(error) if error.is_full() => {
                // Segments of the log have priority over free blocks.
                self.give_free_back()?;
                self.push(true)?;
            }
            other => other?,
        }
        self.staged.clear();
        self.ends.clear();
        Ok(())
    }

    /// Appends what is staged, all of it or nothing.
    fn push(&mut self, again: bool) -> Result<(), PmError> {
        let (segments, last) = (self.segments.len(), self.segments.back().copied());
        let pushed = self.push_staged(again);
        if pushed.as_ref().is_err_and(PmError::is_full) {
            self.segments.truncate(segments);
            if let Some((back, last)) = self.segments.back_mut().zip(last) {
                *back = last;
            }
            self.log.free_abandoned(LANE)?;
        }
        pushed
    }

    fn push_staged(&mut self, again: bool) -> Result<(), PmError> {
        let most = self.logged;
        let in_parts = self.faults.has(Wrong::BatchInParts);
        let part = if self.faults.has(Wrong::PartsCount) { WRITES } else { PART };
        let mut lane = self.log.lane_at(LANE);
        let (mut begin, mut ends) = (0, self.ends.iter().peekable());
        while let Some(&end) = ends.next() {
            // As many writes as a record has room for.
            let more = ends.peek().is_some_and(|&&next| next - begin <= most);
            if more && !in_parts {
                continue;
            }
            while begin < end {
                let next = end_of_part(&self.staged, begin, end, most);
                let tag = if next == end { WRITES } else { part };
                let appended = lane.push(tag, [&self.staged[begin..next]])?; // P1
                let sequence = appended.position.sequence();
                match self.segments.back_mut() {
                    Some((last, lsn)) if *last == sequence => *lsn = self.lsn,
                    _ => self.segments.push_back((sequence, self.lsn)),
                }
                begin = next;
            }
        }
        if self.faults.has(Wrong::NoRoom) && !again {
            return Err(PmError::Full { wanted: 0, capacity: 0 });
        }
        lane.commit()?; // DUR
        Ok(())
    }

    /// Flushes the last line of a block.
    fn flush_tail(&mut self, place: u32) -> Result<Flushed, PmError> {
        let (from, to) = (self.blocks.at(place).flushed, self.blocks.at(place).used);
        let cells = &self.blocks.cells(place)?[from as usize..to as usize];
        Ok(if cells.is_empty() { Flushed::nothing() } else { self.pool().pm().flush_words(cells) })
    }

    /// Stores the length of a block whose records are durable.
    fn store_length(&mut self, place: u32) -> Result<(), PmError> {
        let block = self.blocks.at(place);
        let used = block.used;
        let word = length_word(self.blocks.identity, block.offset, block.generation, used);
        let (pm, cells) = (self.pool().pm(), self.blocks.cells(place)?);
        pm.store(&cells[LENGTH], word); // P2
        let _ = pm.flush(&cells[LENGTH]);
        self.pipeline.lengths.push((place, used, self.lsn));
        Ok(())
    }

    /// Notes that the length of a block is durable.
    fn is_covered(&mut self, place: u32, words: u32, lsn: u64) {
        let block = self.blocks.at_mut(place);
        block.durable = words;
        if block.uncovered != u64::MAX {
            block.uncovered = if block.used == words { u64::MAX } else { lsn + 1 };
        }
        self.blocks.relist(place);
    }

    /// Makes a block void: it is free after the next fence.
    pub(crate) fn void(&mut self, victim: crate::collect::Victim) -> Result<(), PmError> {
        let place = victim.place;
        let block = self.blocks.at(place);
        let word = length_word(self.blocks.identity, block.offset, block.generation, 0);
        let (pm, cells) = (self.pool().pm(), self.blocks.cells(place)?);
        if !self.faults.has(Wrong::SameGeneration) {
            pm.store(&cells[LENGTH], word); // P3, durable before: P4
            let _ = pm.flush(&cells[LENGTH]);
        }
        self.blocks.at_mut(place).state = State::Void;
        self.pipeline.void.push(victim);
        Ok(())
    }

    /// Notes the thread that flushes.
    pub(crate) fn note_thread(&mut self) {
        self.thread = self.thread.filter(|&thread| thread == thread::current().id());
    }

    /// Flushes again what another thread flushed: a fence orders only the flushes of its own thread.
    #[cold]
    fn flush_again(&mut self) -> Result<(), PmError> {
        self.thread = Some(thread::current().id());
        self.flush_holes_again()?;
        let pm = self.blocks.pool.pm();
        let lengths = self.pipeline.lengths.iter().map(|&(place, ..)| place);
        for place in lengths.chain(self.pipeline.void.iter().map(|victim| victim.place)) {
            let _ = pm.flush(&self.blocks.cells(place)?[LENGTH]);
        }
        for (place, block) in (0..).zip(&self.blocks.list) {
            let from = block.durable / 8 * 8;
            if from < block.flushed && !matches!(block.state, State::Large | State::Damaged) {
                let cells = self.blocks.cells(place)?;
                let _ = pm.flush_words(&cells[from as usize..block.flushed as usize]);
            }
        }
        Ok(())
    }

    /// Returns the first LSN that only the log has.
    pub(crate) fn horizon(&self) -> u64 {
        let waiting = self.pipeline.lengths.iter().map(|&(place, ..)| place);
        let open = waiting.chain(self.pipeline.grown.iter().copied()).chain(self.active);
        let first = open.map(|place| self.blocks.at(place).uncovered).min();
        first.unwrap_or(u64::MAX).min(self.first_in_holes()).min(self.lsn + 1)
    }

    /// Frees the part of the log that the blocks durably contain.
    fn cut_log(&mut self) -> Result<(), PmError> {
        let early = self.faults.has(Wrong::CutEarly);
        let horizon = if early { self.lsn + 1 } else { self.horizon() };
        let mut needed = None;
        while self.segments.len() > 1
            && let Some(&(_, last)) = self.segments.front()
            && last < horizon
        {
            self.segments.pop_front();
            needed = self.segments.front().map(|&(sequence, _)| sequence);
        }
        if let Some(sequence) = needed {
            self.log.release(&[Position::new(sequence, 0); LANES])?;
        }
        Ok(())
    }

    /// Frees large values that were durably replaced.
    fn free_replaced(&mut self) -> Result<(), Error> {
        if self.is_backing_up() {
            self.pipeline.kept.append(&mut self.pipeline.replaced);
            return Ok(());
        }
        self.pipeline.replaced.append(&mut self.pipeline.kept);
        while let Some(place) = self.pipeline.replaced.pop() {
            self.free_large(place)?;
        }
        Ok(())
    }

    /// Returns free blocks to the pool.
    pub(crate) fn give_free_back(&mut self) -> Result<u64, Error> {
        let mut given = 0;
        while let Some(place) = self.free.pop() {
            let offset = self.blocks.at(place).offset;
            self.table.give_back(place, &[offset])?;
            *self.blocks.at_mut(place) = crate::blocks::Block::absent();
            self.unused.push(place);
            self.data_blocks -= 1;
            self.exhausted = false;
            given += 1;
        }
        Ok(given)
    }

    /// Commits until nothing waits for a fence, and the lengths of open blocks are durable: then the next
    /// opening replays nothing.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        for place in [self.active, self.copies].into_iter().flatten() {
            self.grow_length(place);
        }
        // Victims that a backup still reads remain.
        for _ in 0..6 {
            self.commit()?;
        }
        let (pm, root) = (self.blocks.pool.pm(), self.blocks.pool.get(self.root)?);
        if pm.load(&root.covered) != self.lsn && self.horizon() > self.lsn {
            pm.store(&root.covered, self.lsn);
            let flushed = pm.flush(&root.covered);
            pm.fence(flushed)?;
        }
        Ok(())
    }

    /// Commits, and makes the blocks durable, so that the next opening replays nothing.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    ///
    /// # Cost
    /// A few commits.
    pub fn close(mut self) -> Result<(), Error> {
        self.settle()
    }
}
