//! The three steps of an operation, and the end of one that is dropped between them.

use core::sync::atomic::Ordering::{Acquire, Release};

use crate::error::DurabilityLost;
use crate::media::{Durable, Flushed, Medium, Rmw};
use crate::pool::Pool;

use super::geometry::PAGE;
use super::head::Run;
use super::heap::Block;
use super::op::{Op, Step};
use super::slot::{Entry, LOG_WORDS, Role, SlotState, lines_for};
use super::ticket::TICKET_WORDS;

/// The largest number of empty slabs that one operation gives back.
const EMPTIES_MAX: usize = 4;

impl<M: Medium> Op<'_, M> {
    /// Flushes the staged tickets (step P1). The fence that follows must come before the commit store.
    /// [`prepare`](Self::prepare) does both.
    ///
    /// # Cost
    /// A line per two tickets; a line per slab made; now and then a line of another slot's tickets
    /// (see [`changes`](Self::changes)) or one to give a slab back.
    #[track_caller]
    pub fn stage(&mut self) -> Flushed {
        if self.pool.pm().is_volatile() {
            self.step = Step::Staged;
            return Flushed::nothing();
        }
        let pool = self.pool;
        // This operation's tickets, and those of the slot's last operation, which must become durably void.
        let lines = lines_for(self.state.tickets).max(self.slot.unsettled_lines());
        let tickets = Pool::flush_tickets(self.words, pool.pm(), lines);
        let state = &mut *self.state;
        let names = state.names | state.changes;
        let others = pool.flush_others(self.index, names, state);
        let mut slabs = Flushed::nothing();
        if !state.fresh.is_empty() {
            slabs = pool.flush_fresh(state);
        }
        // Page-table words that an operation cleared without a fence are cleared again.
        if pool.heap.has_empties.load(Acquire) || !state.leaving_slabs.is_empty() {
            slabs = slabs.and(pool.clear_empties(state));
        }
        self.step = Step::Staged;
        tickets.and(others).and(slabs)
    }

    /// Flushes the staged tickets and fences, `filled` included: the end of step P1.
    ///
    /// # Errors
    /// [`DurabilityLost`]; drop the operation then.
    #[track_caller]
    pub fn prepare(&mut self, filled: Flushed) -> Result<Durable, DurabilityLost> {
        let staged = self.stage();
        let durable = self.pool.pm().fence(filled.and(staged))?;
        self.prepared();
        Ok(durable)
    }

    /// Continues after P1's fence: the end of the slot's last operation is durable too, so the blocks it
    /// freed are free.
    fn prepared(&mut self) {
        self.step = Step::Prepared;
        if !self.pool.pm().is_volatile() {
            self.pool.settle_slot(self.slot, &mut self.state);
            if !self.state.settled.is_empty() {
                self.pool.clear_met(&mut self.state.settled);
            }
        }
    }

    /// Sets the allocation bits as the owners' words say now (step P2, after the commit store, under the same
    /// fence).
    ///
    /// Call it before flushing the commit word: it changes bits with atomic read-modify-writes, and on x86
    /// each of these waits for every write-back in progress, as long as a fence does.
    ///
    /// # Cost
    /// A line per slab with a changed block, a line per extent or slab that begins or ends.
    #[track_caller]
    pub fn seal(&mut self) -> Flushed {
        debug_assert!(self.step >= Step::Staged || self.state.tickets == 0, "not staged");
        if self.step == Step::Staged {
            self.prepared();
        }
        let flushed = self.pool.follow_words(&mut self.state);
        self.step = Step::Sealed;
        flushed
    }

    /// Voids the tickets (step P3). Release the locks on the owners' words after it.
    pub fn finish(mut self, durable: Durable) {
        let _ = durable;
        if self.step == Step::Sealed {
            self.complete();
        } // else dropped: decided as recovery would
        let pool = self.pool;
        pool.pm().handover_point();
        drop(self); // any thread can use the slot and its quarantine from here on
        pool.pm().handover_point();
    }

    /// Ends an operation whose commit store has not been executed, staged or not: its tickets change nothing. As
    /// dropping it before it is staged does; dropping it afterwards takes a fence.
    ///
    /// # Cost
    /// No flush, no fence.
    pub fn withdraw(mut self) {
        debug_assert!(self.step <= Step::Staged, "a commit store may have been executed");
        self.step = Step::Open;
        // No fence has made the page-table words of these empty slabs durable: another operation clears them again.
        if !self.state.leaving_slabs.is_empty() {
            let heap = &self.pool.heap;
            let shared = &mut *self.pool.pm().lock(&heap.shared);
            shared.empties.append(&mut self.state.leaving_slabs);
            heap.has_empties.store(true, Release);
        }
    }

    /// Ends an operation of a volatile pool whose reservations are all in use.
    pub(super) fn keep_all(mut self) {
        debug_assert!(self.pool.pm().is_volatile());
        self.state.entries.clear();
        self.step = Step::Finished;
        if !self.state.fresh.is_empty() {
            self.pool.sort_fresh(&mut self.state);
        }
    }

    /// Voids the tickets, once the words and bits are durable, and sorts the blocks. A block that is no
    /// longer live is free when the tickets are durably void.
    fn complete(&mut self) {
        let pool = self.pool;
        let state = &mut *self.state;
        for ticket in 0..state.tickets as usize {
            pool.pm().store(&self.words[LOG_WORDS + ticket * TICKET_WORDS], 0);
        }
        pool.pm().handover_point();
        self.slot.publish(state.names, state.word_pages, state.tickets);
        pool.pm().handover_point();
        let mut entries = core::mem::take(&mut state.entries);
        for entry in entries.drain(..) {
            match entry.role {
                Role::Freed | Role::Retired if entry.live => pool.stay(entry.block),
                Role::Allocated if entry.live => {}
                Role::Reserved => {
                    pool.give_back(entry.block);
                }
                role => state.quarantine.push((entry.block, role == Role::Retired)),
            }
        }
        state.entries = entries;
        if pool.pm().is_volatile() {
            pool.release_all(&mut state.quarantine);
        }
        if !state.fresh.is_empty() {
            pool.sort_fresh(state);
        }
        (state.tickets, state.names, state.changes) = (0, 0, 0);
        (state.word_pages, state.freed_pages) = (0, 0);
        state.settled.clear();
        if self.logged.get() {
            let held = pool.pm().load(&self.words[0]) != 0;
            self.slot.log_held.store(held, Release);
        }
        self.step = Step::Finished;
    }

    /// Ends an operation that was dropped before its end, as its owners' words say.
    ///
    /// Before staging nothing can be committed: its tickets change nothing, durable or not. After staging the
    /// commit may be stored or not, durable or not: it is made durable as it is, with the allocation bits
    /// that follow from it.
    fn roll(&mut self) -> Result<(), DurabilityLost> {
        let pool = self.pool;
        let volatile = pool.pm().is_volatile();
        if self.step > Step::Open && !volatile {
            let mut words = Flushed::nothing();
            for entry in self.state.entries.iter().filter(|e| e.role != Role::Reserved) {
                words = words.and(pool.pm().flush(pool.meta(entry.condition.word)));
            }
            let bits = pool.follow_words_here(&mut self.state);
            pool.pm().fence(words.and(bits))?;
            if self.step == Step::Staged {
                self.prepared();
            }
        } else {
            self.state.entries.iter_mut().for_each(|entry| decide(pool, entry));
        }
        self.complete();
        Ok(())
    }
}

impl<M: Medium> Drop for Op<'_, M> {
    fn drop(&mut self) {
        if self.pool.is_forked() {
            return; // the operation, and the words it names, are the parent's
        }
        if self.step != Step::Finished && self.roll().is_err() {
            // The pool acknowledges nothing more; recovery will decide these tickets.
            self.state.abandoned = true;
            for entry in &mut self.state.entries {
                decide(self.pool, entry);
                if matches!(entry.role, Role::Freed | Role::Retired) && entry.live {
                    self.pool.stay(entry.block); // a recovery in memory may free it
                }
            }
        }
    }
}

/// Decides an entry by its owner's word.
fn decide<M: Medium>(pool: &Pool<M>, entry: &mut Entry) {
    if entry.role != Role::Reserved {
        entry.live = entry.condition.holds(pool.pm().load(pool.meta(entry.condition.word)));
    }
}

impl<M: Medium> Pool<M> {
    /// Decides every entry and sets the allocation bits accordingly. Flushes each changed line once.
    #[track_caller]
    fn follow_words(&self, state: &mut SlotState) -> Flushed {
        let volatile = self.pm().is_volatile();
        state.touched.clear();
        for entry in &mut state.entries {
            decide(self, entry);
            let changed = match entry.role {
                Role::Reserved => false,
                Role::Allocated => entry.live,
                Role::Freed | Role::Retired => !entry.live,
            };
            if changed && !volatile {
                self.set_bit(entry.block, entry.live, &mut state.touched);
            }
        }
        if state.touched.len() > 1 {
            state.touched.sort_unstable();
            state.touched.dedup();
        }
        let mut flushed = Flushed::nothing();
        for &line in &state.touched {
            flushed = flushed.and(self.pm().flush(self.meta(line)));
        }
        flushed
    }

    /// Sets or clears a block's allocation bit; for a slab's first block the slab's page-table word as well.
    fn set_bit(&self, block: Block, live: bool, touched: &mut Vec<u64>) {
        match block {
            Block::Slab { slab, bit } => {
                let slab = self.heap.slab(slab);
                let base = slab.base();
                let mask = 1 << (bit % 64);
                let change = if live { Rmw::Or(mask) } else { Rmw::And(!mask) };
                self.pm().rmw_word(self.meta(base + 8 * (1 + u64::from(bit) / 64)), change);
                touched.push(base);
                if live && slab.is_fresh() {
                    self.set_head(base, self.heap.slab_head(slab.class(), base), touched);
                    slab.set_established();
                }
            }
            Block::Extent { offset, pages } => {
                let run = if live { Run::Extent { pages } } else { Run::None };
                self.set_head(offset, run.encode(offset), touched);
            }
        }
    }

    fn set_head(&self, run: u64, word: u64, touched: &mut Vec<u64>) {
        if let Some(head) = self.heap.head_of(run) {
            self.pm().store(self.meta(head), word);
            touched.push(head & !63);
        }
    }

    /// As [`follow_words`](Self::follow_words), counted as a step of the allocator.
    fn follow_words_here(&self, state: &mut SlotState) -> Flushed {
        self.follow_words(state)
    }

    /// Flushes the tickets of other slots that conflict with this operation. Counted as a step of the
    /// allocator, not of its caller.
    fn flush_others(&self, own: usize, names: u64, state: &mut SlotState) -> Flushed {
        self.flush_met(Some(own), names, state.freed_pages, &mut state.settled)
    }

    /// Flushes the headers of slabs that are not on the medium yet.
    fn flush_fresh(&self, state: &SlotState) -> Flushed {
        let mut flushed = Flushed::nothing();
        for &slab in &state.fresh {
            flushed = flushed.and(self.pm().flush(self.meta(self.heap.slab(slab).base())));
        }
        flushed
    }

    /// Clears the page-table words of a few empty slabs. Their pages are free after the fence.
    pub(super) fn clear_empties(&self, state: &mut SlotState) -> Flushed {
        let heap = &self.heap;
        {
            let shared = &mut *self.pm().lock(&heap.shared);
            let keep = shared.empties.len().saturating_sub(EMPTIES_MAX);
            state.leaving_slabs.extend(shared.empties.drain(keep..));
            heap.has_empties.store(!shared.empties.is_empty(), Release);
        }
        state.touched.clear();
        for &slab in &state.leaving_slabs {
            self.set_head(heap.slab(slab).base(), 0, &mut state.touched);
        }
        state.touched.sort_unstable();
        state.touched.dedup();
        let mut flushed = Flushed::nothing();
        for &line in &state.touched {
            flushed = flushed.and(self.pm().flush(self.meta(line)));
        }
        flushed
    }

    /// Sorts the slabs that the slot made: those with a page-table word leave the list; those without blocks
    /// and without a slot end.
    pub(super) fn sort_fresh(&self, state: &mut SlotState) {
        let heap = &self.heap;
        let mut fresh = core::mem::take(&mut state.fresh);
        fresh.retain(|&slab| {
            let slab_state = heap.slab(slab);
            let attached = state.attached.get(slab_state.class()) == Some(&(slab + 1));
            if !slab_state.is_fresh() {
                if !attached {
                    self.list(&mut self.pm().lock(&heap.shared), slab);
                }
                return false;
            }
            if attached || !slab_state.is_empty() {
                return true;
            }
            self.pm().lock(&heap.shared).end_slab(heap, slab);
            false
        });
        state.fresh = fresh;
    }
}

const _: () = assert!(PAGE.is_multiple_of(64));
