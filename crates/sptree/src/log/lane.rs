//! Appending: lanes, of which each writer has one for itself.
//!
//! ```text
//! step  store                                          durable before
//! P1    the entry, whole lines, non-temporally         return (DUR)
//!       (LIN is the caller's publication after it)
//! ```
//!
//! A lane is claimed by one atomic instruction and released by a plain store; a writer that finds
//! its lane taken goes on to the next one, so nobody waits while there are fewer than
//! [`LANES`] writers. The lane stays claimed until the fence: entries of a segment become durable in
//! their order, and the first that is not whole is the tail.

use std::cell::Cell;
use std::hint::cold_path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use pmindex_core::{Flushed, Medium, PmError, Word};

use super::Log;
use super::entry::{Record, encode, lines_for};
use super::layout::{LANES, LINE_BYTES, LINE_WORDS, Location, MAX_LINES, Tail};
use super::segments::Known;

thread_local! {
    /// The log that this thread last appended to, and its lane there.
    static LAST: Cell<(u64, usize)> = const { Cell::new((0, 0)) };
}

/// A lane. On lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Lane {
    taken: AtomicBool,
    /// The [`Tail`]. Stored by whoever has the lane.
    tail: AtomicU64,
    /// Index and lines of the segment, for whoever has the lane; 0 lines: none.
    segment: AtomicU64,
}

impl Lane {
    pub(super) fn new(tail: Tail) -> Self {
        Self { tail: AtomicU64::new(tail.into_word()), ..Self::default() }
    }

    /// Where the next entry will be.
    pub(super) fn tail(&self) -> Tail {
        Tail::from_word(self.tail.load(Acquire))
    }

    /// The segment that it is in.
    pub(super) fn segment(&self) -> Option<u16> {
        let word = self.segment.load(Relaxed);
        (word != 0).then_some(word as u16)
    }

    #[inline]
    fn try_claim(&self) -> bool {
        !self.taken.load(Relaxed)
            && self.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok()
    }
}

/// Entries that become durable together.
///
/// An entry counts from [`commit`](Self::commit) on. Whoever drops a batch without it abandons its
/// entries: they may or may not be found after a crash, as if their writers had never returned.
#[must_use = "entries are durable only when the batch is committed"]
#[derive(Debug)]
pub struct Batch<'l, M: Medium> {
    log: &'l Log<M>,
    lane: &'l Lane,
    number: usize,
    segment: Option<Known>,
    line: u32,
    flushed: Option<Flushed>,
}

impl<M: Medium> Log<M> {
    /// Claims a lane for some entries.
    #[inline(always)]
    pub fn batch(&self) -> Batch<'_, M> {
        let (id, last) = LAST.get();
        let first = if id == self.id { last } else { 0 };
        let mut number = first;
        loop {
            self.pool.pm().yield_point();
            let lane = &self.lanes[number];
            if lane.try_claim() {
                if number != last || id != self.id {
                    LAST.set((self.id, number));
                }
                let segment = lane.segment().and_then(|index| self.segments.get(index));
                let next = lane.tail().line();
                return Batch { log: self, lane, number, segment, line: next, flushed: None };
            }
            number = (number + 1) % LANES;
            if number == first {
                self.pool.pm().spin();
            }
        }
    }

    /// Appends an entry; durable when it returns. The caller publishes it after that, and lets
    /// nobody else append to the same chain before.
    ///
    /// # Errors
    /// [`PmError::Full`] if there can be no other segment; [`PmError::TooLarge`] for more than
    /// [`max_payload`](Self::max_payload) words. Nothing is changed then.
    ///
    /// # Cost
    /// 1 line (payloads of up to 4 words), 1 fence; now and then a new segment.
    #[inline]
    pub fn append(&self, record: &Record<'_>) -> Result<Appended, PmError> {
        let mut batch = self.batch();
        let appended = batch.push(record)?;
        batch.commit()?;
        Ok(appended)
    }

    /// The most words that an entry says.
    #[must_use]
    pub fn max_payload(&self) -> usize {
        (MAX_LINES as usize / 8 - 1) * LINE_WORDS - super::entry::HEADER
    }
}

/// Where an entry is.
#[derive(Clone, Copy, Debug)]
pub struct Appended {
    /// In the log.
    pub location: Location,
    /// In the pool: the offset of its payload.
    pub payload: u64,
    /// When that was, in segments: what a chain is told that it is the first entry of.
    pub birth: u64,
}

impl<M: Medium> Batch<'_, M> {
    /// Writes an entry.
    ///
    /// # Errors
    /// Those of [`Log::append`]; the entries before it can be committed.
    #[inline(always)]
    pub fn push(&mut self, record: &Record<'_>) -> Result<Appended, PmError> {
        let (pool, log) = (&*self.log.pool, self.log);
        let lines = lines_for(record.payload.len());
        if record.payload.len() > log.max_payload() {
            let (wanted, max) = (record.payload.len() as u64, log.max_payload() as u64);
            return Err(PmError::TooLarge { wanted: 8 * wanted, max: 8 * max });
        }
        let segment = match self.segment {
            Some(segment) if self.line + lines as u32 <= segment.lines => segment,
            _ => self.next_segment(lines as u32)?,
        };
        let line = self.line;
        let offset = segment.offset + u64::from(line) * LINE_BYTES;
        let cells = pool.words(offset, lines * LINE_WORDS)?;
        let written = if lines == 1 {
            let mut words = [0; LINE_WORDS];
            encode(&mut words, record, segment.sequence, line);
            pool.pm().stream_words(cells, &words) // P1
        } else {
            let mut words = vec![0; lines * LINE_WORDS];
            encode(&mut words, record, segment.sequence, line);
            pool.pm().stream_words(cells, &words) // P1
        };
        self.flushed = Some(self.flushed.take().unwrap_or(Flushed::nothing()).and(written));
        self.line += lines as u32;
        let payload = offset + 8 * super::entry::HEADER as u64;
        let location = Location::new(segment.index, line);
        Ok(Appended { location, payload, birth: log.segments.now() })
    }

    /// Goes on to a new segment. The tail moves there: who has published the entries before it, or
    /// will, holds the locks of their chains meanwhile, so a checkpoint waits for them.
    #[cold]
    fn next_segment(&mut self, lines: u32) -> Result<Known, PmError> {
        let log = self.log;
        let segment = log.segments.make(&log.pool, log.root, self.number, lines)?;
        log.note_wants();
        log.note_appended(self.segment.map_or(0, |_| self.line));
        if let Some(before) = self.segment {
            log.segments.leave(before.index); // before: the tail
        }
        (self.segment, self.line) = (Some(segment), 1);
        self.lane.segment.store(u64::from(segment.index) | 1 << 32, Relaxed);
        self.lane.tail.store(Tail::new(segment.sequence, 1).into_word(), Release);
        Ok(segment)
    }

    /// Makes the entries durable.
    ///
    /// # Errors
    /// Those of a fence.
    #[inline(always)]
    pub fn commit(mut self) -> Result<(), PmError> {
        let Some(flushed) = self.flushed.take() else { return Ok(()) };
        self.log.pool.pm().fence(flushed)?; // DUR(append)
        if let Some(segment) = self.segment {
            self.lane.tail.store(Tail::new(segment.sequence, self.line).into_word(), Release);
        }
        Ok(())
    }
}

impl<M: Medium> Drop for Batch<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(flushed) = self.flushed.take() {
            cold_path(); // Abandoned. The next entry goes to the same lines: not before these have arrived.
            let _ = self.log.pool.pm().fence(flushed);
        }
        self.lane.taken.store(false, Release);
    }
}
