//! Operation slots: a micro-log and tickets on the medium, and their state in DRAM.
//!
//! ```text
//!  0           128
//!  | micro-log | tickets, two per line ..
//! ```
//!
//! # Finished tickets
//!
//! A finished operation's tickets are void in the cache, and durably void only when a thread flushes and
//! fences them. Until then they are *unsettled*, and a crash would decide them once more. Meanwhile these
//! must not happen:
//!
//! 1. a store that makes an unsettled ticket's condition change sides while its block does not;
//! 2. a change of the block's liveness that the unsettled ticket does not follow;
//! 3. a reuse of the memory its word lies in.
//!
//! So each slot publishes what its unsettled tickets *name*: a 64-bit filter of hashed blocks and words, and
//! one of the words' pages. An operation that is about to do 1, 2 or 3 looks at every slot's filters, and on
//! a match flushes that slot's tickets under the fence it executes anyway, *before* its commit. Operations do
//! this by themselves ([`Op::stage`](crate::Op::stage)), for the blocks and words of their own tickets, the
//! words announced by [`Op::changes`](crate::Op::changes), and the pages of the blocks they free. A change
//! outside operations calls [`Pool::settle`](crate::Pool::settle). The next operation of the same slot
//! settles the whole slot. A false match costs a flush.
//!
//! The filters are stored before the words become reachable for another thread (by a lock's release, or a
//! block's return), and read after; so a matching ticket is never missed.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::cell::Cell;

use crate::cell::PmU64;
use crate::error::PmError;
use crate::media::{Flushed, Medium};
use crate::pool::{IndexId, Pool};

use super::MicroLog;
use super::claim::{Claim, Claimed};
use super::geometry::PAGE;
use super::heap::Block;
use super::ticket::{TICKET_WORDS, TICKETS_PER_LINE};

/// Words of a slot's micro-log.
pub(super) const LOG_WORDS: usize = size_of::<MicroLog>() / 8;

/// A slot's state in DRAM; on lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Slot {
    /// Filter of the words and blocks that unsettled tickets name.
    names: AtomicU64,
    /// Filter of the pages that these words lie in.
    pages: AtomicU64,
    /// The number of ticket lines, from the first on, that may be unsettled.
    lines: AtomicU32,
    /// Counts finished operations.
    round: AtomicU32,
    /// `true` if the micro-log holds the notes of an interrupted operation.
    pub(super) log_held: AtomicBool,
    /// Held by the operation that has the slot.
    pub(super) state: Claim<SlotState>,
}

/// The state that the holder of a slot works with.
#[derive(Debug, Default)]
pub(super) struct SlotState {
    /// The blocks of this operation.
    pub(super) entries: Vec<Entry>,
    /// Tickets written by this operation.
    pub(super) tickets: u32,
    /// The filter of the words and blocks that this operation names or changes; see the module's
    /// documentation.
    pub(super) names: u64,
    pub(super) changes: u64,
    pub(super) word_pages: u64,
    pub(super) freed_pages: u64,
    /// Blocks that the last operation freed: free when its tickets are settled. The flag says that readers
    /// may be in them.
    pub(super) quarantine: Vec<(Block, bool)>,
    /// For each class, the slab this slot takes from, plus 1.
    pub(super) attached: Vec<u32>,
    /// Slabs made by this slot whose page-table word is not written, attached or full.
    pub(super) fresh: Vec<u32>,
    /// Empty slabs whose page-table word this operation clears.
    pub(super) leaving_slabs: Vec<u32>,
    /// Slots whose tickets this operation flushed, and their round at that time.
    pub(super) settled: Vec<(u32, u32)>,
    /// Lines to flush.
    pub(super) touched: Vec<u64>,
    /// `true` if the pool lost its durability in the middle of an operation: its tickets stay, and only a thread that
    /// completes changes in memory uses the slot.
    pub(super) abandoned: bool,
}

/// The role of a block in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Reserved only.
    Reserved,
    /// Becomes live with the commit.
    Allocated,
    /// Stops being live with the commit.
    Freed,
    /// As `Freed`, and readers may be in it.
    Retired,
}

/// A block of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) block: Block,
    pub(super) offset: u64,
    pub(super) role: Role,
    pub(super) condition: super::ticket::Condition,
    /// `true` if the block is live: decided when the operation is sealed.
    pub(super) live: bool,
}

/// Returns the bit of a filter for `value`.
#[inline]
pub(super) fn filter_bit(value: u64) -> u64 {
    1 << (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

/// Returns the filter of the pages of `len` bytes from `start`.
#[inline]
pub(super) fn filter_pages(start: u64, len: u64) -> u64 {
    let pages = start / PAGE..(start + len).div_ceil(PAGE);
    if pages.end - pages.start == 1 {
        return filter_bit(pages.start);
    }
    if pages.end - pages.start >= 64 {
        return u64::MAX;
    }
    pages.fold(0, |filter, page| filter | filter_bit(page))
}

/// Returns the number of lines of `tickets` tickets.
#[inline]
pub(super) fn lines_for(tickets: u32) -> u32 {
    tickets.div_ceil(TICKETS_PER_LINE as u32)
}

impl Slot {
    /// Publishes the filters of the finished operation's void tickets, in addition to those that are
    /// unsettled already (none, unless the operation was dropped before its first fence). Only the holder of
    /// the slot's state may call it.
    #[inline]
    pub(super) fn publish(&self, names: u64, pages: u64, tickets: u32) {
        self.lines.store(self.lines.load(Relaxed).max(lines_for(tickets)), Release);
        self.round.store(self.round.load(Relaxed).wrapping_add(1), Release);
        self.pages.store(self.pages.load(Relaxed) | pages, Release);
        self.names.store(self.names.load(Relaxed) | names, Release);
    }

    /// Clears the filters: every ticket of the slot is durably void, except those of the operation that holds
    /// it.
    #[inline]
    pub(super) fn clear(&self) {
        self.names.store(0, Release);
        self.pages.store(0, Release);
        self.lines.store(0, Release);
    }

    #[inline]
    pub(super) fn unsettled_lines(&self) -> u32 {
        self.lines.load(Acquire)
    }

    #[inline]
    pub(super) fn round(&self) -> u32 {
        self.round.load(Acquire)
    }

    /// Returns `true` if an unsettled ticket may name one of `names`, or a word in one of `pages`.
    #[inline]
    pub(super) fn meets(&self, names: u64, pages: u64) -> bool {
        self.names.load(Acquire) & names != 0 || self.pages.load(Acquire) & pages != 0
    }
}

thread_local! {
    /// The pool and slot that this thread used last.
    static LAST: Cell<(u64, usize)> = const { Cell::new((0, 0)) };
}

/// The number of rounds of looking for a free slot before giving up: some seconds, mostly asleep.
const ROUNDS: u32 = 40_000;
/// The number of rounds without sleep: the thread that has the slot may not be running.
const AWAKE: u32 = 2_000;
/// The sleep of each round after those.
const NAP: core::time::Duration = core::time::Duration::from_micros(50);

impl<M: Medium> Pool<M> {
    /// Returns the words of a slot.
    pub(super) fn slot_words(&self, index: usize) -> Result<&[PmU64], PmError> {
        let geometry = &self.heap.geometry;
        let offset = geometry.slots_offset + index as u64 * geometry.slot_bytes;
        self.words(offset, (geometry.slot_bytes / 8) as usize)
    }

    /// Claims a slot: the one this thread used last, or the first free one. Waits while all are taken, but
    /// not for ever: the thread may hold a slot itself.
    #[inline]
    pub(super) fn claim(&self) -> Result<(usize, &Slot, Claimed<'_, SlotState>), PmError> {
        let (pool, last) = LAST.get();
        if pool == self.heap.limbo.pool_id()
            && let Some(slot) = self.heap.slots.get(last)
        {
            self.pm().yield_point();
            if let Some(state) = slot.state.try_claim()
                && !state.abandoned
                && !self.log_is_held(slot, last)?
            {
                return Ok((last, slot, state));
            }
        }
        self.claim_any()
    }

    #[cold]
    fn claim_any(&self) -> Result<(usize, &Slot, Claimed<'_, SlotState>), PmError> {
        let heap = &self.heap;
        let count = heap.geometry.slot_count as usize;
        for round in 0..ROUNDS {
            for index in 0..count {
                let slot = self.slot_state(index);
                self.pm().yield_point();
                let Some(mut state) = slot.state.try_claim() else { continue };
                if state.abandoned && round > 0 && self.is_recovered_here() {
                    self.take_over(index, slot, &mut state)?;
                }
                // A slot whose log is held serves operations without a log, if no other is free.
                if state.abandoned || round == 0 && self.log_is_held(slot, index)? {
                    continue;
                }
                self.note_slot(index);
                LAST.set((heap.limbo.pool_id(), index));
                return Ok((index, slot, state));
            }
            self.pm().spin();
            if round > AWAKE {
                self.pm().nap(NAP);
            } else if round % 16 == 15 {
                std::thread::yield_now();
            }
        }
        Err(PmError::Busy { slots: count })
    }

    /// Empties the slot of an operation whose fence failed, for a thread that completes changes in memory: the next
    /// opening decides the tickets on the medium, which nothing reaches any more. Blocks that were only reserved are not
    /// handed out again.
    #[cold]
    fn take_over(&self, index: usize, slot: &Slot, state: &mut SlotState) -> Result<(), PmError> {
        let words = self.slot_words(index)?;
        for ticket in words[LOG_WORDS..].chunks_exact(TICKET_WORDS).take(state.tickets as usize) {
            self.pm().store(&ticket[0], 0);
        }
        slot.clear();
        let SlotState { quarantine, attached, fresh, .. } = core::mem::take(state);
        *state = SlotState { quarantine, attached, fresh, ..SlotState::default() };
        Ok(())
    }

    /// Has this thread's next operation claim slot number `index` (modulo the number of slots), unless another thread
    /// has it. For tests: threads that never meet share the first slot, whose next operation settles the last one.
    #[doc(hidden)]
    pub fn use_slot(&self, index: u64) {
        let index = (index % self.heap.geometry.slot_count) as usize;
        self.slot_state(index);
        self.note_slot(index);
        LAST.set((self.heap.limbo.pool_id(), index));
    }

    /// Returns the slot that this thread used last in this pool.
    #[inline]
    pub(super) fn last_slot(&self) -> Option<&Slot> {
        let (pool, slot) = LAST.get();
        if pool == self.heap.limbo.pool_id() { self.heap.slots.get(slot) } else { None }
    }

    /// Returns `true` if the micro-log of a slot still waits for recovery.
    #[inline]
    fn log_is_held(&self, slot: &Slot, index: usize) -> Result<bool, PmError> {
        if !slot.log_held.load(Acquire) {
            return Ok(false);
        }
        let held = self.pm().load(&self.slot_words(index)?[0]) != 0;
        slot.log_held.store(held, Release);
        Ok(held)
    }

    /// Returns the micro-log of a slot.
    pub(super) fn micro_log(&self, index: usize) -> Result<&MicroLog, PmError> {
        let geometry = &self.heap.geometry;
        self.get(crate::ptr::PPtr::new(geometry.slots_offset + index as u64 * geometry.slot_bytes))
    }

    /// Returns slot number `index`.
    #[inline]
    pub(super) fn slot_state(&self, index: usize) -> &Slot {
        match self.heap.slots.get(index) {
            Some(slot) => slot,
            None => self.heap.slots.ensure(index),
        }
    }

    /// Flushes the first `lines` ticket lines of a slot.
    #[inline]
    #[track_caller]
    pub(super) fn flush_tickets(words: &[PmU64], pm: &M, lines: u32) -> Flushed {
        if lines == 1 {
            return pm.flush(&words[LOG_WORDS]); // all of its line
        }
        let end = LOG_WORDS + lines as usize * TICKET_WORDS * TICKETS_PER_LINE;
        pm.flush_words(&words[LOG_WORDS..end.min(words.len())])
    }

    /// Flushes the tickets of every slot except `own` whose unsettled tickets match the filters, and adds
    /// these slots to `settled`.
    #[track_caller]
    pub(super) fn flush_met(
        &self,
        own: Option<usize>,
        names: u64,
        pages: u64,
        settled: &mut Vec<(u32, u32)>,
    ) -> Flushed {
        let mut flushed = Flushed::nothing();
        for index in 0..self.heap.slots_used.load(Acquire) {
            if Some(index) == own {
                continue;
            }
            let slot = self.slot_state(index);
            if !slot.meets(names, pages) {
                continue;
            }
            let Ok(words) = self.slot_words(index) else { continue };
            let round = slot.round();
            let lines = slot.unsettled_lines();
            flushed = flushed.and(Self::flush_tickets(words, self.pm(), lines));
            settled.push((index as u32, round));
        }
        flushed
    }

    /// Clears the filters, after the fence, of the slots that were not used meanwhile.
    pub(super) fn clear_met(&self, settled: &mut Vec<(u32, u32)>) {
        for (index, round) in settled.drain(..) {
            let slot = self.slot_state(index as usize);
            if let Some(state) = slot.state.try_claim()
                && slot.round() == round
                && !state.abandoned
            {
                slot.clear();
            }
        }
    }

    /// Makes it safe to change `word` outside any [`Op`](crate::Op): if a finished operation's ticket names
    /// the word and is not yet durably void, makes it so.
    ///
    /// Call it before the change, under the lock that keeps other threads from the word. An index whose
    /// tickets name only words that operations change never needs it.
    ///
    /// # Cost
    /// Usually one load per slot in use. Otherwise one fence, and the lines of the tickets.
    #[track_caller]
    pub fn settle<W: crate::cell::Word>(
        &self,
        word: &crate::cell::PmCell<W>,
    ) -> Result<(), PmError> {
        let names = filter_bit(self.pptr(word.as_word()).offset());
        let mut settled = Vec::new();
        let flushed = self.flush_met(None, names, 0, &mut settled);
        if !settled.is_empty() {
            self.pm().fence(flushed)?;
            self.clear_met(&mut settled);
        }
        Ok(())
    }

    /// Returns the micro-logs of index `index` that interrupted operations left: those whose state is not 0.
    /// Tickets are decided already. A log is done when its state is durably 0.
    pub fn pending_logs(&self, index: IndexId) -> Result<Vec<&MicroLog>, PmError> {
        let mut found = Vec::new();
        for slot in 0..self.heap.geometry.slot_count as usize {
            let log = self.micro_log(slot)?;
            let state = self.pm().load(&log.state);
            if state != 0 && MicroLog::index_of(state) == index {
                found.push(log);
            }
        }
        Ok(found)
    }
}
