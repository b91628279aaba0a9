//! Reclaiming: gives back blocks in quarantine, expired blocks, and empty slabs.

use core::sync::atomic::Ordering::Acquire;

use crate::error::PmError;
use crate::media::{Flushed, Medium};
use crate::pool::Pool;

use super::claim::Claimed;
use super::heap::Block;
use super::slab::Bits;
use super::slot::{Slot, SlotState};

impl<M: Medium> Pool<M> {
    /// Frees the slot's quarantine: its earlier tickets are durably void and the page-table words it cleared
    /// are durable.
    pub(super) fn settle_slot(&self, slot: &Slot, state: &mut SlotState) {
        slot.clear();
        self.pm().handover_point();
        if !state.leaving_slabs.is_empty() {
            let shared = &mut *self.pm().lock(&self.heap.shared);
            for slab in state.leaving_slabs.drain(..) {
                shared.end_slab(&self.heap, slab);
            }
        }
        self.release_all(&mut state.quarantine);
    }

    /// Frees a quarantine whose tickets are durably void, and the blocks that expired meanwhile.
    pub(super) fn release_all(&self, quarantine: &mut Vec<(Block, bool)>) {
        if !quarantine.is_empty() {
            self.release(quarantine);
        }
        for block in self.heap.limbo.expired() {
            self.give_back(block);
        }
    }

    /// Frees blocks whose tickets are durably void: at once, adjacent ones together, or when the readers have
    /// left.
    fn release(&self, quarantine: &mut Vec<(Block, bool)>) {
        let mut retired = Vec::new();
        let mut run: Option<(u32, Bits)> = None;
        for (block, has_readers) in quarantine.drain(..) {
            match block {
                _ if has_readers => retired.push(block),
                Block::Extent { .. } => {
                    self.give_back(block);
                }
                Block::Slab { slab, bit } => {
                    if run.as_mut().is_some_and(|(of, bits)| *of == slab && bits.add(bit)) {
                        continue;
                    }
                    if let Some((slab, bits)) = run.replace((slab, Bits::of(bit))) {
                        self.give_back_bits(slab, bits);
                    }
                }
            }
        }
        if let Some((slab, bits)) = run {
            self.give_back_bits(slab, bits);
        }
        self.heap.limbo.retire(retired);
    }

    /// Gives back everything possible: settles every slot that is not in use, frees blocks in quarantine and
    /// expired blocks, detaches slabs without blocks, and gives empty slabs back. `own` is the slot of the
    /// calling operation.
    pub(super) fn reclaim(&self, own: Option<(usize, &mut SlotState)>) -> Result<(), PmError> {
        let heap = &self.heap;
        if heap.slots_used.load(Acquire) == 0 {
            return Ok(());
        }
        let mut guards: Vec<(usize, Claimed<'_, SlotState>)> = Vec::new();
        let own_index = own.as_ref().map(|(index, _)| *index);
        for index in 0..heap.slots_used.load(Acquire) {
            if Some(index) != own_index
                && let Some(state) = heap.slots.ensure(index).state.try_claim()
                && !state.abandoned
            {
                guards.push((index, state));
            }
        }
        let mut states: Vec<(usize, &mut SlotState)> =
            guards.iter_mut().map(|(index, state)| (*index, &mut **state)).collect();
        states.extend(own);
        let mut flushed = Flushed::nothing();
        for (index, _) in &states {
            let lines = heap.slots.ensure(*index).unsettled_lines();
            flushed = flushed.and(Self::flush_tickets(self.slot_words(*index)?, self.pm(), lines));
        }
        self.pm().fence(flushed)?;
        for (index, state) in &mut states {
            let slot = heap.slots.ensure(*index);
            slot.clear();
            self.release(&mut state.quarantine);
        }
        heap.limbo.advance();
        for block in heap.limbo.expired() {
            self.give_back(block);
        }
        for (index, state) in &mut states {
            self.detach_empty(Some(*index) == own_index, state);
        }
        self.give_back_empties(&mut states)
    }

    /// Detaches the slabs of a slot that have no block.
    fn detach_empty(&self, in_use: bool, state: &mut SlotState) {
        let heap = &self.heap;
        for attached in 0..state.attached.len() {
            let Some(slab) = state.attached[attached].checked_sub(1) else { continue };
            if heap.slab(slab).is_empty() {
                state.attached[attached] = 0;
                if !state.fresh.contains(&slab) {
                    self.list(&mut self.pm().lock(&heap.shared), slab);
                }
            }
        }
        if !in_use || state.tickets == 0 {
            self.sort_fresh(state);
        }
    }

    fn give_back_empties(&self, states: &mut [(usize, &mut SlotState)]) -> Result<(), PmError> {
        let Some((_, state)) = states.last_mut() else { return Ok(()) };
        while self.heap.has_empties.load(Acquire) {
            let cleared = self.clear_empties(state);
            self.pm().fence(cleared)?;
            let shared = &mut *self.pm().lock(&self.heap.shared);
            for slab in state.leaving_slabs.drain(..) {
                shared.end_slab(&self.heap, slab);
            }
        }
        Ok(())
    }

    /// Gives back everything possible: the remains of indexes that are being dropped, blocks whose last
    /// operation is not durably over, retired blocks that no reader can be in, slabs without blocks.
    /// Operations do this bit by bit; call it before measuring, or before a long pause.
    ///
    /// # Errors
    /// [`PmError::DurabilityLost`], [`PmError::ReadOnly`].
    ///
    /// # Cost
    /// A fence, and one more per four empty slabs.
    pub fn trim(&self) -> Result<(), PmError> {
        self.check_may_write()?;
        self.finish_drops()?;
        self.reclaim(None)
    }

    /// Makes every ticket durably void, before a clean shutdown. Retired blocks need nothing: they are free
    /// on the medium.
    pub(crate) fn close_heap(&self) -> Result<(), PmError> {
        self.reclaim(None)
    }
}
