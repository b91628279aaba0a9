//! Lanes: each writer claims one, and appends to it alone.
//!
//! ```text
//! step  store                                          durable before
//! P1    the entries, whole lines, non-temporally       the commit returns (DUR)
//!       (LIN is the caller's publication after it)
//!
//! lane dropped without a commit
//! P1    the entries, as above                          P2
//! P2    their checksums, wrong; the last segment's     any entry after that in the same lines
//!       first, each segment's before the one before it
//! ```
//!
//! A lane is claimed by one atomic instruction and released by a plain store. A writer that finds its lane
//! taken tries the next one, so no writer waits while there are fewer than [`LANES`] of them. The lane stays
//! claimed until the fence: entries of a segment become durable in their order, and the first incomplete one
//! is the tail.

use std::cell::Cell;
use std::cmp::Reverse;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use pmindex_core::{DurabilityLost, Flushed, Medium, PmError, Word};

use super::Log;
use super::entry::{encode, lines_for, stream};
use super::layout::{LANES, LINE_BYTES, LINE_WORDS, Location, Position, Positions};
use super::segments::SegmentInfo;

thread_local! {
    /// The log that this thread last appended to, and its lane there.
    static LAST: Cell<(u64, usize)> = const { Cell::new((0, 0)) };
}

/// The state of a lane, claimed or not. On lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct State {
    taken: AtomicBool,
    /// The [`Position`] behind the last committed entry. Only the lane's holder stores it.
    tail: AtomicU64,
    /// Index and lines of the segment, for the lane's holder; 0 lines mean none.
    segment: AtomicU64,
}

impl State {
    pub(super) fn new(tail: Position) -> Self {
        Self { tail: AtomicU64::new(tail.into_word()), ..Self::default() }
    }

    /// Returns the position of the next entry.
    #[inline]
    pub(super) fn tail(&self) -> Position {
        Position::from_word(self.tail.load(Acquire))
    }

    /// Returns the segment of the next entry.
    #[inline]
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

/// A claimed lane: no other thread appends to it until this is dropped.
///
/// Entries count from [`commit`](Self::commit) on; one commit may cover several. Dropping the lane abandons
/// the entries pushed after the last commit: they are never found, unless a crash comes before the drop
/// returns. A lane stays with its thread.
///
/// There are [`LANES`] lanes; claiming one waits while all are taken. So the holder of a lane must not wait
/// for a thread that may want one.
#[must_use = "entries are durable only when they are committed"]
#[derive(Debug)]
pub struct Lane<'l, M: Medium> {
    log: &'l Log<M>,
    state: &'l State,
    number: usize,
    segment: Option<SegmentInfo>,
    line: u32,
    flushed: Option<Flushed>,
    /// A fence covers the flushes of its own thread only.
    thread: PhantomData<*const ()>,
}

/// The place of an entry.
#[derive(Clone, Copy, Debug)]
pub struct Appended {
    /// Its position in its lane.
    pub position: Position,
    /// Its location in the log, as long as its segment lives.
    pub location: Location,
    /// The offset of its payload in the pool.
    pub payload: u64,
}

impl<M: Medium> Log<M> {
    /// Claims a lane.
    #[inline(always)]
    pub fn lane(&self) -> Lane<'_, M> {
        let (id, last) = LAST.get();
        let first = if id == self.id { last } else { 0 };
        let mut number = first;
        loop {
            self.pool.pm().yield_point();
            let state = &self.lanes[number];
            if state.try_claim() {
                if number != last || id != self.id {
                    LAST.set((self.id, number));
                }
                return self.claimed(number);
            }
            number = (number + 1) % LANES;
            if number == first {
                self.pool.pm().spin();
            }
        }
    }

    /// Claims this lane, and waits for it if necessary: for recovery, which appends the outcome of a lane's
    /// entries to the same lane.
    pub fn lane_at(&self, number: usize) -> Lane<'_, M> {
        while !self.lanes[number].try_claim() {
            self.pool.pm().spin();
        }
        self.claimed(number)
    }

    #[inline(always)]
    fn claimed(&self, number: usize) -> Lane<'_, M> {
        let state = &self.lanes[number];
        let segment = state.segment().and_then(|index| self.segments.get(index));
        let (line, thread) = (state.tail().line(), PhantomData);
        Lane { log: self, state, number, segment, line, flushed: None, thread }
    }

    /// Appends an entry; durable when it returns.
    ///
    /// # Errors
    /// Those of [`Lane::push`] and [`Lane::commit`].
    ///
    /// # Cost
    /// 1 line (payloads of up to 6 words), 1 fence; now and then a new segment.
    pub fn append(&self, tag: u64, payload: &[u64]) -> Result<Appended, PmError> {
        let mut lane = self.lane();
        let appended = lane.push(tag, [payload])?;
        lane.commit()?;
        Ok(appended)
    }

    /// Returns the largest number of words in a payload.
    #[inline]
    #[must_use]
    pub fn max_payload(&self) -> usize {
        self.max_payload
    }

    /// Returns the position of a lane's next entry; those before it are durable.
    #[must_use]
    pub fn tail(&self, lane: usize) -> Position {
        self.lanes[lane].tail()
    }

    /// Returns the position of each lane's next entry, lane by lane.
    #[must_use]
    pub fn tails(&self) -> Positions {
        std::array::from_fn(|lane| {
            self.pool.pm().yield_point();
            self.tail(lane)
        })
    }
}

impl<M: Medium> Lane<'_, M> {
    /// Returns the lane's number.
    #[inline]
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Writes an entry: a tag of 48 bits, and the words of the payload, part after part.
    ///
    /// # Errors
    /// [`PmError::Full`] if no other segment can be made; [`PmError::TooLarge`] for more than
    /// [`max_payload`](Log::max_payload) words. Nothing has changed then, and the entries pushed before can
    /// be committed.
    ///
    /// # Cost
    /// The lines of the entry, no fence; now and then a new segment (2 fences, 3 lines).
    #[inline(always)]
    pub fn push<const N: usize>(
        &mut self,
        tag: u64,
        payload: [&[u64]; N],
    ) -> Result<Appended, PmError> {
        self.push_then(tag, payload, |_| {})
    }

    /// As [`push`](Self::push). Calls `turned` if the entry is the first of a new segment, with the number of
    /// lines used in the segment before.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    #[inline(always)]
    pub fn push_then<const N: usize>(
        &mut self,
        tag: u64,
        payload: [&[u64]; N],
        turned: impl FnOnce(u32),
    ) -> Result<Appended, PmError> {
        let (pool, log) = (&*self.log.pool, self.log);
        let words = payload.iter().map(|part| part.len()).sum();
        if words > log.max_payload {
            return Err(log.too_large(words));
        }
        let lines = lines_for(words);
        let segment = match self.segment {
            Some(segment) if self.line + lines as u32 <= segment.lines => segment,
            before => {
                let used = before.map_or(0, |_| self.line);
                let segment = self.next_segment(lines as u32, 1)?;
                turned(used);
                segment
            }
        };
        let line = self.line;
        let offset = segment.offset + u64::from(line) * LINE_BYTES;
        let cells = pool.words(offset, lines * LINE_WORDS)?;
        // Before P1: an entry that a panic interrupts may be whole, and is abandoned with the others.
        self.flushed.get_or_insert_with(Flushed::nothing);
        let written = if lines == 1 {
            let words = encode(tag, payload, segment.sequence, line);
            pool.pm().stream_words(cells, &words) // P1
        } else {
            stream(pool.pm(), cells, (tag, &payload), (segment.sequence, line)) // P1
        };
        self.flushed = Some(self.flushed.take().unwrap_or(Flushed::nothing()).and(written));
        self.line += lines as u32;
        Ok(Appended {
            position: Position::new(segment.sequence, line),
            location: Location::new(segment.index, line),
            payload: offset + 8 * super::entry::HEADER as u64,
        })
    }

    /// Ensures that the next entry, of a payload of `words`, needs no new segment: for callers that have an
    /// operation of the pool in progress when they [`push`](Self::push). If a segment is made, its lines are a
    /// multiple of `part`, unless the pool is too full. Nothing may have been pushed since the last commit.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    ///
    /// # Cost
    /// None; now and then a new segment (2 fences, 3 lines).
    pub fn make_room(&mut self, words: usize, part: u32) -> Result<(), PmError> {
        debug_assert!(self.flushed.is_none(), "what was pushed is committed first");
        let lines = lines_for(words) as u32;
        if self.segment.is_none_or(|segment| self.line + lines > segment.lines) {
            self.next_segment(lines, part)?;
            self.publish();
        }
        Ok(())
    }

    /// Starts a new segment, of a multiple of `part` lines if there is room. The commit moves the tail there.
    #[cold]
    fn next_segment(&mut self, lines: u32, part: u32) -> Result<SegmentInfo, PmError> {
        let log = self.log;
        let segment = log.segments.make(&log.pool, log.root, self.number, (lines, part))?;
        if let Some(before) = self.segment {
            log.segments.leave(before.index); // before: the tail
        }
        (self.segment, self.line) = (Some(segment), 1);
        Ok(segment)
    }

    /// Ends the lane's segment, and returns it if there is one: later entries go to another one. It can be
    /// [freed](Log::free) if its entries are over, also if it is the only one; then the caller must remember the tail's
    /// sequence, and [pass](Log::pass) it at an opening. Nothing may have been pushed since the last
    /// commit.
    pub fn end_segment(&mut self) -> Option<SegmentInfo> {
        debug_assert!(self.flushed.is_none(), "what was pushed is committed first");
        let segment = self.segment.take()?;
        self.log.segments.leave(segment.index);
        self.state.segment.store(0, Relaxed);
        Some(segment)
    }

    /// Makes the pushed entries durable. More may be pushed afterwards.
    ///
    /// # Errors
    /// Those of a fence.
    ///
    /// # Cost
    /// 1 fence, none if nothing was pushed.
    #[inline(always)]
    pub fn commit(&mut self) -> Result<(), PmError> {
        let Some(flushed) = self.flushed.take() else { return Ok(()) };
        self.log.pool.pm().fence(flushed)?; // DUR(commit)
        self.publish();
        Ok(())
    }

    /// As [`commit`](Self::commit); the same fence makes `others` durable, in no order with the entries.
    ///
    /// # Errors
    /// Those of a fence.
    ///
    /// # Cost
    /// 1 fence.
    #[track_caller]
    pub fn commit_with(&mut self, others: Flushed) -> Result<(), PmError> {
        let flushed = self.flushed.take().unwrap_or_else(Flushed::nothing);
        self.log.pool.pm().fence(flushed.and(others))?; // DUR(commit)
        self.publish();
        Ok(())
    }

    /// Leaves the lane's segment and tail to its next holder.
    #[inline(always)]
    fn publish(&self) {
        if let Some(segment) = self.segment {
            self.state.segment.store(u64::from(segment.index) | 1 << 32, Relaxed);
            let tail = Position::new(segment.sequence, self.line);
            self.state.tail.store(tail.into_word(), Release);
        }
    }

    /// Ensures that entries that were pushed but not committed are never found, whatever is appended after
    /// them.
    #[cold]
    fn abandon(&self, pushed: Flushed) -> Result<(), DurabilityLost> {
        let (log, pm, tail) = (self.log, self.log.pool.pm(), self.state.tail());
        pm.fence(pushed)?; // P1, before: P2 in the same lines
        let ours =
            |known: &SegmentInfo| known.lane == self.number && known.sequence >= tail.sequence();
        let mut segments: Vec<SegmentInfo> = log.segments.iter().filter(ours).collect();
        segments.sort_unstable_by_key(|known| Reverse(known.sequence));
        for known in segments {
            let same = known.sequence == tail.sequence();
            let mut line = if same { tail.line().max(1) } else { 1 };
            let mut flushed = Flushed::nothing();
            while let Some(entry) = log.entry_in(&known, line) {
                let sum = &log.lines_of(&known)[line as usize * LINE_WORDS];
                pm.store(sum, !pm.load(sum)); // P2
                flushed = flushed.and(pm.flush(sum));
                line += entry.lines;
            }
            // Durable before: the checksums of the preceding segment, and other entries in these lines.
            pm.fence(flushed)?;
        }
        Ok(())
    }
}

impl<M: Medium> Drop for Lane<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(flushed) = self.flushed.take() {
            let _ = self.abandon(flushed);
        }
        self.state.taken.store(false, Release);
    }
}

impl<M: Medium> Log<M> {
    #[cold]
    fn too_large(&self, words: usize) -> PmError {
        PmError::TooLarge { wanted: 8 * words as u64, max: 8 * self.max_payload as u64 }
    }
}
