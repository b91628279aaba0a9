//! Maintenance of the buffers and their log: the sweep, checkpoints, buffers that wait for a worker.
//!
//! # The sweep
//!
//! A buffer that is absorbed when it is full, and no sooner, has entries as old as it takes to fill it.
//! Where keys are scattered, some leaves take three times as long as others, and all segments since
//! then stay. So the sweep passes the buffers in the order of their numbers, another one with every
//! [`PASS`](WriteBuffers::PASS) lines that are appended; a buffer whose first entry is older than
//! [`AGE`](WriteBuffers::AGE) lines for each buffer is absorbed as it is. No entry is older than that by
//! more than a round, which bounds the log.
//!
//! Those few are cheap. A full buffer is absorbed by the write that fills it, alone, and every line of
//! its Bnode is waited for; those of a sweep are absorbed together, by the operation after it has become
//! due: their lines come at once, and two fences are enough for all.
//!
//! An Mnode that is locked, or changes, is skipped until the next round.

use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};
use pmindex_record::{OwnedRoute, Slot};

use super::WriteBuffers;
use super::table::ENTRIES_MAX;
use crate::leaves::{Leaves, Locked};
use crate::log::{Heads, lines_for};

/// Buffers that are absorbed together.
const TOGETHER: u32 = 16;
/// The number of chains ahead of a checkpoint's walk whose lines are prefetched.
const AHEAD: u32 = 8;

const fn at_least_one(count: usize) -> u64 {
    if count == 0 { 1 } else { count as u64 }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    WriteBuffers<K, V, M, LEAF, BUFFER>
{
    /// Lines of an entry.
    const LINES: u64 = lines_for(Slot::<K, V>::WORDS) as u64;
    /// Lines appended from one buffer that the sweep passes to the next: two sevenths of what fills one.
    const PASS: u64 = Self::LINES * at_least_one(Self::ROOM * 2 / 7);
    /// The greatest age of an entry, in lines for each buffer: six sevenths of what fills one. The
    /// fewer, the smaller the log, and the more lines of Bnodes are written for each record.
    const AGE: u64 = Self::LINES * at_least_one(Self::ROOM * 6 / 7);

    /// Returns `true` if the log wants a sweep or a checkpoint that no worker makes.
    #[inline(always)]
    pub(crate) fn wants_maintenance(&self) -> bool {
        self.log.wants() && !self.worker_keeps_up()
    }

    /// Returns `true` if a leaf wants a buffer that no worker gives it.
    #[inline(always)]
    pub(crate) fn wants_reassignment(&self) -> bool {
        self.budget.is_wanted() && !self.worker_keeps_up()
    }

    /// Returns `true` if a worker maintains the log, and is not far behind.
    fn worker_keeps_up(&self) -> bool {
        self.handoff.is_open() && !self.log.is_behind()
    }

    /// Returns `true` if a worker takes full buffers.
    #[cfg(test)]
    pub(crate) fn has_worker(&self) -> bool {
        self.handoff.is_open()
    }

    /// Returns the number of buffers that wait for a worker.
    #[cfg(test)]
    pub(crate) fn waiting(&self, pm: &M) -> usize {
        self.handoff.waiting(pm)
    }

    /// Adds a worker, to which writers hand full buffers.
    pub(crate) fn add_worker(&self, pm: &M) {
        self.handoff.add_worker(pm);
    }

    /// Removes a worker.
    pub(crate) fn remove_worker(&self, pm: &M) {
        self.handoff.remove_worker(pm);
    }

    /// Returns `true` if a worker that sleeps now would fall behind.
    pub(crate) fn is_worker_needed(&self, pm: &M) -> bool {
        self.handoff.waiting(pm) >= TOGETHER as usize || self.log.wants()
    }

    /// Lets Bnodes absorb buffers that writers handed over, some at a time. The caller holds no lock.
    /// `None`: none waits.
    pub(crate) fn absorb_waiting<'t>(
        &'t self,
        leaves: &'t Leaves<K, V, M, LEAF>,
    ) -> Result<Option<Vec<Locked<'t>>>, PmError> {
        let waiting = self.handoff.take(leaves.pm(), TOGETHER as usize);
        if waiting.is_empty() {
            return Ok(None);
        }
        let full = |buffer| !self.has_room(leaves, buffer);
        self.absorb_together(leaves, waiting.into_iter(), full).map(Some)
    }

    /// Sweeps on by some buffers, if that is due. The caller holds no lock. `None`: it is not.
    pub(crate) fn sweep<'t>(
        &'t self,
        leaves: &'t Leaves<K, V, M, LEAF>,
    ) -> Result<Option<Vec<Locked<'t>>>, PmError> {
        let (log, table) = (&self.log, &self.table);
        let due = log.take_appended(Self::PASS, TOGETHER);
        let indices = table.indices();
        let count = indices.count();
        if due == 0 || count == 0 {
            return Ok(None);
        }
        let first = Some(self.swept.load(Relaxed)).filter(|&n| n < count).unwrap_or(0);
        let end = count.min(first + due);
        self.swept.store(end, Relaxed); // two at once: both here, or one for nothing
        let age = Self::AGE * table.live();
        let is_old = |buffer| table.birth(buffer).is_some_and(|birth| log.age(birth) >= age);
        let passed = (first..end).map(|n| indices.nth(n));
        let passed: Vec<u32> = passed.inspect(|&buffer| table.prefetch(buffer)).collect();
        let old = passed.into_iter().filter(|&buffer| is_old(buffer));
        self.absorb_together(leaves, old, is_old).map(Some)
    }

    /// Returns the numbers of all buffers, in parts that are absorbed together.
    pub(crate) fn parts(&self) -> impl Iterator<Item = impl Iterator<Item = u32>> {
        let indices = self.table.indices();
        let count = indices.count();
        let part = move |first| (first..count.min(first + TOGETHER)).map(move |n| indices.nth(n));
        (0..count).step_by(TOGETHER as usize).map(part)
    }

    /// Returns the numbers of all buffers with entries that their Bnodes have not absorbed.
    pub(crate) fn unabsorbed(&self) -> impl Iterator<Item = u32> {
        self.table.indices().all().filter(|&buffer| !self.table.is_absorbed(buffer))
    }

    /// Makes the checkpoint that is due after a sweep; returns whether it was.
    pub(crate) fn checkpoint_if_due(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        swept: bool,
    ) -> Result<bool, PmError> {
        let due = self.log.note_wants();
        if swept {
            self.log.want(); // the next operation sweeps on
        }
        if due {
            self.make_due_checkpoint(leaves).inspect_err(|_| {
                self.log.note_failed();
                if swept {
                    self.log.want();
                }
            })?;
        }
        Ok(due)
    }

    fn make_due_checkpoint(&self, leaves: &Leaves<K, V, M, LEAF>) -> Result<bool, PmError> {
        if self.log.is_tight() {
            self.absorb_older(leaves)?;
        }
        self.checkpoint(leaves)
    }

    /// Makes a checkpoint of the log now. `false`: another thread makes one.
    pub(crate) fn checkpoint(&self, leaves: &Leaves<K, V, M, LEAF>) -> Result<bool, PmError> {
        self.log.checkpoint(|heads| {
            self.visit_chains(leaves, heads);
            Ok(())
        })
    }

    /// Ends the log of an index that closes: the buffers are empty.
    pub(crate) fn close(&mut self) -> Result<(), PmError> {
        self.log.end_lanes();
        self.log.checkpoint(|_| Ok::<(), PmError>(()))?;
        Ok(())
    }

    /// Lets Bnodes absorb the buffers that have entries in the older half of the log.
    fn absorb_older(&self, leaves: &Leaves<K, V, M, LEAF>) -> Result<(), PmError> {
        let older = self.log.older_half();
        for buffer in self.table.indices().all() {
            if self.table.birth(buffer).is_some_and(|birth| birth <= older) {
                self.absorb_by_number(leaves, buffer)?;
            }
        }
        Ok(())
    }

    /// Absorbs the buffer of this number, if an Mnode has it; returns the Mnode's low key, if its Bnode is
    /// nearly empty then.
    pub(crate) fn absorb_by_number(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        buffer: u32,
    ) -> Result<Option<OwnedRoute>, PmError> {
        let Some(Locked { node, guard, .. }) = self.lock_owner(leaves, buffer) else {
            return Ok(None);
        };
        self.absorb(leaves, node)?;
        let low = leaves.low_if_nearly_empty(node);
        drop(guard);
        Ok(low)
    }

    /// Locks the Mnode that has the buffer of this number, if there is one.
    pub(super) fn lock_owner<'t>(
        &self,
        leaves: &'t Leaves<K, V, M, LEAF>,
        buffer: u32,
    ) -> Option<Locked<'t>> {
        let index = self.table.state(buffer).node();
        let node = leaves.middle.get(index);
        let guard = node.lock.lock(leaves.pm());
        let owns = leaves.middle.buffer(node) == Some(buffer);
        owns.then_some(Locked { index, node, guard })
    }

    /// A Bnode is gone: the log should be smaller by what it keeps for one buffer.
    pub(crate) fn note_merged(&self) {
        self.log.note_ended(Self::AGE);
    }

    /// Tells a checkpoint of every chain. Each is read at a version that validates: all that was
    /// appended to it is published. A buffer that is added meanwhile begins a chain after the tails.
    fn visit_chains(&self, leaves: &Leaves<K, V, M, LEAF>, heads: &mut Heads) {
        let (pm, middle, table) = (leaves.pm(), &leaves.middle, &self.table);
        let indices = table.indices(); // after the tails
        let count = indices.count();
        heads.reserve(table.live());
        for n in 0..count {
            // Each chain is two lines, far apart.
            if n + AHEAD < count {
                let ahead = indices.nth(n + AHEAD);
                table.prefetch(ahead);
                if table.is_own(ahead) {
                    middle.prefetch_lock(ahead);
                }
            }
            let buffer = indices.nth(n);
            // A buffer that goes to another Mnode meanwhile begins a chain after the tails.
            let node = middle.get(table.state(buffer).node());
            loop {
                let version = node.lock.begin_read(pm);
                if middle.buffer(node) != Some(buffer) {
                    break;
                }
                let id = middle.dram.load(&node.bnode);
                let (chain, birth) = (table.chain(buffer), table.birth(buffer));
                if node.lock.validate(pm, version) {
                    if let Some(birth) = birth {
                        heads.add(id, chain, birth);
                    }
                    break;
                }
                pm.spin();
            }
        }
    }

    /// Recovers some more of the log; returns whether there may be more.
    pub(crate) fn recover_step(&self) -> bool {
        self.log.recover_step()
    }

    /// Fetches the chains of Bnodes that are about to be restored. A hint.
    pub(crate) fn prefetch_chains(&self, bnodes: impl Iterator<Item = u64>) {
        self.log.prefetch_recovered(bnodes, ENTRIES_MAX);
    }

    /// Notes that every chain is restored: checkpoints may be made.
    pub(crate) fn end_recovery(&self) {
        self.log.set_restored();
    }
}
