//! Publishing: makes an operation's descriptor durable, and the descriptor the owner of its new blocks.
//!
//! An operation without new blocks writes entries and status under one fence (P1). It needs none if the
//! descriptor is one line, which becomes durable with the outcome, and no other data must be durable before.
//! An operation with new blocks first makes the entries and the allocator's tickets durable (P0). The tickets
//! say that the blocks are live as long as the status owns them. So the store of the status in P1 takes over
//! all blocks at once, and a crash before it frees them all. The blocks' contents become durable with P1: no
//! pointer leads to them before.

use core::mem::take;

use pmindex_core::{Flushed, LINE, Medium, PmError};

use crate::layout::{Carried, Heading, Places, Slot};
use crate::reclaim::owner_of;
use crate::session::{Later, Prepared, Session};
use crate::status::{State, Status};

impl<'m, M: Medium> Session<'m, M> {
    /// P0 and P1: makes the descriptor durable, and with it everything flushed before.
    pub(crate) fn publish(
        &mut self,
        slot: Slot<'m>,
        seq: u64,
        owns: bool,
        prepared: &mut Prepared<'m, M>,
        carried: Option<(Places, &Carried)>,
    ) -> Result<(), PmError> {
        let pm = self.mwcas.pool.pm();
        let entries = &prepared.entries;
        let (count, recycler, allocates) =
            (entries.len(), prepared.recycler.0, prepared.op.is_some());
        let heading =
            Heading { seq, count, recycler, allocates, carried: carried.map(|(places, _)| places) };
        let undecided = Status::new(State::Undecided, seq, owns, 0).pack();
        slot.write(pm, heading, entries);
        if let Some((_, carried)) = carried {
            slot.write_carried(pm, carried);
        }
        let Some(mut op) = prepared.op.take() else {
            if Status::unpack(pm.load(slot.status())).begins_anew(seq) {
                // Once before owner bits come back: the tickets by which an incarnation with the same bits gave
                // up its blocks must be void, durably, or a crash would make these live again.
                self.mwcas.pool().settle(slot.status())?;
            }
            // P1. The incarnation's bits tell entries of the last incarnation from this status and the
            // reverse. Entries of an operation that a crash prevented may have this incarnation; they have no
            // effect before P1 is over: see `Heading`.
            pm.in_order(); // durable before: the status, on the line of the heading and entry 0
            pm.store(slot.status(), undecided);
            if Slot::is_one_line(count) && prepared.filled.is_empty() && prepared.later.is_empty() {
                return Ok(()); // the line is durable with P2: I7
            }
            let descriptor = slot.flush(pm, count).and(self.flush_filled(prepared)?);
            self.fence(descriptor)?;
            return Ok(());
        };
        // P0: the entries that name the blocks, before the status that owns them.
        let owner = owner_of(slot, seq);
        for block in &prepared.blocks {
            op.allocate(block, owner)?;
        }
        let descriptor = slot.flush(pm, count);
        op.prepare(descriptor)?;
        // P1: one store makes the descriptor the owner of all blocks.
        pm.store(slot.status(), undecided);
        let taken = pm.flush(slot.status()).and(op.seal()).and(self.flush_filled(prepared)?);
        let durable = self.fence(taken)?;
        op.finish(durable);
        Ok(())
    }

    /// Flushes the blocks and records that the operation's pointers will lead to. durable before: P2.
    fn flush_filled(&self, prepared: &mut Prepared<'m, M>) -> Result<Flushed, PmError> {
        let (pool, mut flushed) = (self.mwcas.pool(), Flushed::nothing());
        let mut done = 0..0;
        for &(offset, words) in &prepared.filled {
            // Consecutive records of a batch share lines.
            let line = LINE as u64;
            let lines = offset / line..(offset + 8 * words as u64).div_ceil(line);
            for new in lines.clone().filter(|line| !done.contains(line)) {
                flushed = flushed.and(pool.pm().flush_words(pool.words(new * line, 1)?));
            }
            done = lines;
        }
        for Later { offset, words, fill } in take(&mut prepared.later) {
            flushed = flushed.and(fill(pool.pm(), pool.words(offset, words)?));
        }
        Ok(flushed)
    }
}
