//! Background work, in steps that operations call, or a [`Worker`](crate::Worker).
//!
//! After a crash: the layers in DRAM. Then: entries of the backup; absorbing buffers, checkpoints of their
//! log, buffers that go from one leaf to another. The [buffers](crate::buffer) do their part, and leave to
//! the tree the merges and splits of the leaves that are nearly empty or full then.

use pmindex_core::Medium;
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::OwnedRoute;

use crate::buffer::WriteBuffers;
use crate::leaves::{Held, Locked};
use crate::middle::NONE;
use crate::tree::SpTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Does a bounded part of the work that waits: after a crash the rebuilding of the layers in DRAM,
    /// then entries of the backup, full buffers, checkpoints. Returns whether there may be more.
    ///
    /// Calling it is optional. Operations do the same work when it cannot wait: any operation but a point
    /// read completes the layers, a point read after a crash does a part, a split that finds many
    /// entries waiting puts them into the backup. A thread that calls it takes that off them; while it
    /// is a [`worker`](Self::worker), operations leave it full buffers, too.
    ///
    /// # Errors
    /// Those of recovery: [`PmError::Corrupt`](pmindex_core::PmError::Corrupt), the medium's.
    pub fn step(&self) -> Result<bool, IndexError> {
        if !self.is_ready() {
            return self.rebuild_step();
        }
        let more = self.backup.step(self.pm());
        let Some(buffers) = self.buffers() else { return Ok(more) };
        Ok(self.step_buffers(buffers)? || more)
    }

    /// Does a step of the buffers' work; returns whether there was any.
    fn step_buffers(
        &self,
        buffers: &WriteBuffers<K, V, M, LEAF, BUFFER>,
    ) -> Result<bool, IndexError> {
        if let Some(absorbed) = buffers.absorb_waiting(&self.leaves)? {
            self.split_full(absorbed)?;
            return Ok(true);
        }
        if self.sweep_and_checkpoint(buffers)? || self.reassign_buffer(buffers)? {
            return Ok(true);
        }
        let surplus = buffers.take_surplus(&self.leaves)?;
        Ok(surplus.map(|detached| self.merge_low(detached.low)).is_some())
    }

    /// The work of the buffers that a write does first, if it is due and no worker does it. The caller
    /// holds no lock. If it fails (the pool is full), the log fills up, and then writes go in place.
    #[inline(always)]
    pub(crate) fn maintain_buffers(&self) {
        let Some(buffers) = self.buffers() else { return };
        if buffers.wants_maintenance() {
            let _ = self.sweep_and_checkpoint(buffers);
        }
        if buffers.wants_reassignment() {
            let _ = self.reassign_buffer(buffers);
        }
    }

    /// Sweeps on, and makes a checkpoint, if that is due; returns whether it was.
    #[cold]
    #[inline(never)]
    pub(crate) fn sweep_and_checkpoint(
        &self,
        buffers: &WriteBuffers<K, V, M, LEAF, BUFFER>,
    ) -> Result<bool, IndexError> {
        let swept = buffers.sweep(&self.leaves)?;
        let any = swept.is_some();
        self.merge_nearly_empty(swept.unwrap_or_default());
        Ok(buffers.checkpoint_if_due(&self.leaves, any)? || any)
    }

    /// Gives a buffer to the leaf that asks for one; returns whether it got it.
    fn reassign_buffer(
        &self,
        buffers: &WriteBuffers<K, V, M, LEAF, BUFFER>,
    ) -> Result<bool, IndexError> {
        let detached = buffers.reassign(&self.leaves)?;
        Ok(detached.map(|detached| self.merge_low(detached.low)).is_some())
    }

    /// Merges the leaf with this low key.
    fn merge_low(&self, low: Option<OwnedRoute>) {
        if let Some(low) = low {
            self.merge_beside(&low.route::<K>());
        }
    }

    /// Unlocks Mnodes, and merges those whose Bnodes are nearly empty. The caller holds no other lock.
    pub(crate) fn merge_nearly_empty(&self, locked: Vec<Locked<'_>>) {
        self.merge_all(self.unlock(locked));
    }

    /// Unlocks Mnodes; returns the low keys of those whose Bnodes are nearly empty.
    fn unlock(&self, locked: Vec<Locked<'_>>) -> Vec<OwnedRoute> {
        let lows =
            locked.iter().filter_map(|leaf| self.leaves.low_if_nearly_empty(leaf.node)).collect();
        drop(locked); // LIN
        lows
    }

    /// Merges the leaves with these low keys. The caller holds no lock: any leaf may be met on the way.
    fn merge_all(&self, lows: Vec<OwnedRoute>) {
        for low in lows {
            self.merge_beside(&low.route::<K>());
        }
    }

    /// Splits those of the locked Mnodes whose Bnodes are full; unlocks the others, and merges those whose
    /// Bnodes are nearly empty.
    fn split_full(&self, mut locked: Vec<Locked<'_>>) -> Result<(), IndexError> {
        // Not the last one: the write that fills it splits it, so that ascending keys fill Bnodes.
        let full = |leaf: &mut Locked<'_>| {
            self.leaves.taken(leaf.node).len() == LEAF && self.leaves.middle.next(leaf.node) != NONE
        };
        let full: Vec<Locked<'_>> = locked.extract_if(.., full).collect();
        let lows = self.unlock(locked);
        let split = full.into_iter().try_for_each(|Locked { index, node, guard }| {
            let (bnode, taken) = (self.leaves.bnode_of(node)?, self.leaves.taken(node));
            self.split(Held { index, node, bnode, taken, slot: None, hit: None, guard }, None)
        });
        self.merge_all(lows); // now that nothing is locked, whether all are split or not
        split
    }

    /// Returns `true` if a worker that sleeps now would fall behind.
    pub(crate) fn needs_worker(&self) -> bool {
        self.buffers().is_some_and(|buffers| buffers.is_worker_needed(self.pm()))
    }

    /// Makes a checkpoint of the log now: the next opening scans what is appended after it, and
    /// segments that no buffer needs go back to the pool. `false`: another thread makes one, or there
    /// is no log.
    ///
    /// # Cost
    /// 2 fences, a line for every 4 buffers, 2 fences for every 4 segments that go back. More of them in a pool that
    /// was created small: its blocks and operations are small, so a large checkpoint is written in parts.
    ///
    /// # Errors
    /// The pool's: full, the medium's.
    pub fn make_checkpoint(&self) -> Result<bool, IndexError> {
        let Some(buffers) = self.buffers() else { return Ok(false) };
        self.pool.check_writable()?;
        self.make_ready()?;
        Ok(buffers.checkpoint(&self.leaves)?)
    }

    /// Lets every Bnode absorb its buffer, and merges those that are nearly empty then.
    ///
    /// # Cost
    /// 2 fences for every 16 buffers that have records.
    ///
    /// # Errors
    /// The medium's.
    pub fn drain(&self) -> Result<(), IndexError> {
        let Some(buffers) = self.buffers() else { return Ok(()) };
        self.pool.check_writable()?;
        self.make_ready()?;
        for part in buffers.parts() {
            let absorbed = buffers.absorb_together(&self.leaves, part, |_| true)?;
            self.merge_nearly_empty(absorbed);
        }
        // And those whose Mnodes were locked.
        for buffer in buffers.unabsorbed() {
            self.merge_low(buffers.absorb_by_number(&self.leaves, buffer)?);
        }
        Ok(())
    }

    /// Limits the DRAM of the buffers to `bytes`: `u64::MAX` (the default) is no limit, 0 no buffers.
    ///
    /// Within a limit, the leaves that are written most have buffers; others are written in place. A buffer
    /// counts with what it takes when it is full: 64 bytes, and 64 for every four records of two words (320
    /// for 8-byte keys and values). In the mean they take six tenths of that. Not kept in the pool. Buffers
    /// beyond a new limit go with the next calls of [`step`](Self::step), or, while nothing calls it, when
    /// other leaves need them.
    pub fn set_buffer_budget(&self, bytes: u64) {
        if let Some(buffers) = self.buffers() {
            buffers.set_budget(bytes);
        }
    }

    /// Empties the buffers and the log of an index that closes.
    pub(crate) fn close_buffers(&mut self) -> Result<(), IndexError> {
        self.drain()?;
        if let Some(buffers) = self.buffers_mut() {
            buffers.close()?;
        }
        Ok(())
    }
}
