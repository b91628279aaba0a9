//! Reusing descriptors, and freeing the memory they own.
//!
//! A descriptor may be reused when recovery would skip it (the horizon is past its stamp, or its operation
//! failed and its pointers are durably gone from the words) and no other thread is in it. A descriptor that
//! owns blocks first gives them up: the ones that its outcome makes superfluous are freed, the others belong
//! to the structure. One store does both and retires the descriptor:
//!
//! | step | store                                              | durable before |
//! |------|----------------------------------------------------|----------------|
//! | R1   | tickets: "live as long as the status owns them"    | R2             |
//! | R2   | status `Void`: owns nothing; allocation bits        | reuse of blocks and descriptor |
//!
//! After a crash the descriptor owns all of them (recovery frees them then) or none.

use pmindex_core::{Flushed, Medium, Owner, PmError, Pool};

use crate::entry::Entry;
use crate::layout::Slot;
use crate::mwcas::Recyclers;
use crate::partition::{Decided, Outcome};
use crate::recycle::Memory;
use crate::session::{Session, block_at};
use crate::status::Status;

/// The number of descriptors that give up their blocks in one step.
const BATCH: usize = 8;

impl<M: Medium> Session<'_, M> {
    /// Makes every descriptor usable whose conditions for reuse hold.
    pub(crate) fn reclaim(&mut self) -> Result<(), PmError> {
        let mwcas = self.mwcas;
        let horizon = mwcas.durable_horizon();
        let protected = mwcas.partitions.protected(mwcas.pool.pm(), self.me);
        let mut owners = Vec::new();
        let local = &mut *self.local;
        local.decided.retain(|decided| {
            if !decided.is_reusable(horizon, &protected) {
                return true;
            }
            if decided.owns {
                owners.push(*decided);
            } else {
                local.free.push(decided.slot);
            }
            false
        });
        // Another thread may have moved the horizon past these, after flushing their lines.
        local.changed.retain(|&(stamp, _)| stamp > horizon);
        let mut size = BATCH;
        while !owners.is_empty() {
            let batch = owners.split_off(owners.len().saturating_sub(size));
            match self.give_up(&batch) {
                Ok(()) => self.local.free.extend(batch.iter().map(|decided| decided.slot)),
                Err(PmError::TooManyTickets { .. }) if batch.len() > 1 => {
                    size = batch.len() / 2; // more blocks than the allocator takes at once
                    owners.extend(batch);
                }
                Err(error) => {
                    // They still own their blocks.
                    self.local.decided.extend(owners.into_iter().chain(batch));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// R1 and R2 for several descriptors at once. Two fences.
    fn give_up(&mut self, batch: &[Decided]) -> Result<(), PmError> {
        let pool = &*self.mwcas.pool;
        let memory = Memory::running(self.mwcas);
        let mut op = pool.op()?;
        let mut entries = core::mem::take(&mut self.local.view);
        for decided in batch {
            let slot = self.mwcas.slot(decided.slot)?;
            let took_place = matches!(decided.outcome, Outcome::Committed(_));
            let blocks =
                superfluous(&memory, slot, took_place, &self.mwcas.recyclers, &mut entries)?;
            let owner = owner_of(slot, decided.seq);
            op.changes(slot.status());
            for block in blocks {
                if took_place {
                    op.retire(block_at(block), owner)?; // readers may be in the old value
                } else {
                    op.free(block_at(block), owner)?; // nobody ever saw the new value
                }
            }
        }
        self.local.view = entries;
        op.prepare(Flushed::nothing())?; // R1
        for decided in batch {
            let cell = self.mwcas.slot(decided.slot)?.status();
            let status = Status::unpack(pool.pm().load(cell));
            pool.pm().store(cell, status.void().pack()); // R2
        }
        let mut voided = op.seal(); // before the flushes, which it would wait for
        for decided in batch {
            voided = voided.and(pool.pm().flush(self.mwcas.slot(decided.slot)?.status()));
        }
        let durable = self.fence(voided)?;
        op.finish(durable);
        Ok(())
    }
}

/// Returns what tells the allocator that incarnation `seq` of a descriptor owns a block.
pub(crate) fn owner_of(slot: Slot<'_>, seq: u64) -> Owner<'_> {
    Owner { word: slot.status(), mask: Status::OWNER_MASK, expect: Status::owner_bits(seq) }
}

/// Returns the blocks that an operation's outcome makes superfluous.
pub(crate) fn superfluous<M: Medium>(
    memory: &Memory<'_, M>,
    slot: Slot<'_>,
    took_place: bool,
    recyclers: &Recyclers<M>,
    entries: &mut Vec<Entry>,
) -> Result<Vec<u64>, PmError> {
    let pool = memory.pool();
    let heading = slot.load_heading(pool.pm());
    slot.copy_entries(pool.pm(), heading, entries);
    let mut blocks = Vec::new();
    if !took_place {
        if heading.allocates {
            blocks.extend(entries.iter().filter_map(Entry::freed_by_failure));
        }
        return Ok(blocks);
    }
    let recycler = recyclers.get(heading.recycler).ok_or(PmError::Corrupt {
        what: "a recycler that was not given",
        offset: pool.pptr(slot.heading()).offset(),
    })?;
    for entry in entries.iter() {
        match entry.freed_by_success() {
            Some(block) if entry.target == 0 => blocks.push(block),
            Some(value) => recycler.blocks(memory, value, &mut blocks)?,
            None => {}
        }
    }
    Ok(blocks)
}

/// R1 and R2 for one descriptor, in recovery. Returns how many blocks were freed.
pub(crate) fn give_up_after_crash<M: Medium>(
    pool: &Pool<M>,
    slot: Slot<'_>,
    took_place: bool,
    recyclers: &Recyclers<M>,
) -> Result<u64, PmError> {
    let memory = Memory::recovered(pool);
    let blocks = superfluous(&memory, slot, took_place, recyclers, &mut Vec::new())?;
    let owner = owner_of(slot, slot.load_heading(pool.pm()).seq);
    let mut op = pool.op()?;
    op.changes(slot.status());
    for &block in &blocks {
        op.free(block_at(block), owner)?;
    }
    op.prepare(Flushed::nothing())?; // R1
    let void = slot.load_status(pool.pm()).void();
    pool.pm().store(slot.status(), void.pack()); // R2
    let voided = op.seal().and(pool.pm().flush(slot.status()));
    let durable = pool.pm().fence(voided)?;
    op.finish(durable);
    Ok(blocks.len() as u64)
}
