//! Looking after the log: checkpoints, and buffers that are old.

use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::OwnedRoute;

use super::Buffering;
use crate::log::{Chain, Heads};
use crate::middle::{Mnode, NONE};
use crate::tree::SpTree;

/// How many chains ahead of a checkpoint's walk their lines are fetched.
const AHEAD: u32 = 8;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Sweeps on and makes a checkpoint, if that is due, and sees to who has a buffer. Whoever calls it
    /// holds no lock. A log that cannot be looked after now (the pool is full) fills up, and then writes
    /// go past the buffers.
    #[inline(always)]
    pub(crate) fn tend(&self) {
        let Some(buffering) = self.buffering() else { return };
        let wants = buffering.log.wants();
        if (wants || buffering.budget.is_wanted()) && !buffering.is_attended() {
            if wants {
                let _ = self.tend_if_due(buffering);
            }
            if buffering.budget.is_wanted() {
                let _ = self.reassign(buffering);
            }
        }
    }

    /// A step of background work: the sweep and a checkpoint, if they are due; else a buffer that goes to
    /// another leaf, or is one too many. Returns whether there was any of it.
    pub(crate) fn tend_step(&self) -> Result<bool, IndexError> {
        let Some(buffering) = self.buffering() else { return Ok(false) };
        if self.absorb_left(buffering)? || self.tend_if_due(buffering)? {
            return Ok(true);
        }
        Ok(self.reassign(buffering)? || self.take_surplus(buffering)?)
    }

    /// Sweeps on, and makes a checkpoint, if that is due.
    #[cold]
    #[inline(never)]
    fn tend_if_due(&self, buffering: &Buffering<M>) -> Result<bool, IndexError> {
        let swept = self.sweep(buffering)?;
        let due = buffering.log.note_wants();
        if swept {
            buffering.log.want(); // the next operation sweeps on
        }
        if !due {
            return Ok(swept);
        }
        if buffering.log.is_tight() {
            self.absorb_older(buffering)?;
        }
        buffering.log.checkpoint(|heads| {
            self.visit_chains(buffering, heads);
            Ok::<(), PmError>(())
        })?;
        Ok(true)
    }

    /// Makes a checkpoint of the log now: the next opening scans what is appended after it, and
    /// segments that no buffer needs go back to the pool. `false`: another thread makes one.
    ///
    /// # Cost
    /// 2 fences, a line for every 4 buffers, 2 fences for every 4 segments that go back.
    ///
    /// # Errors
    /// The pool's: full, the medium's.
    pub fn make_checkpoint(&self) -> Result<bool, IndexError> {
        let Some(buffering) = self.buffering() else { return Ok(false) };
        self.pool.check_writable()?;
        self.make_ready()?;
        Ok(buffering.log.checkpoint(|heads| {
            self.visit_chains(buffering, heads);
            Ok::<(), PmError>(())
        })?)
    }

    /// Lets Bnodes absorb the buffers that have entries in the older half of the log.
    fn absorb_older(&self, buffering: &Buffering<M>) -> Result<(), PmError> {
        let older = buffering.log.older_half();
        for buffer in buffering.buffers.indices() {
            if buffering.buffers.birth(buffer).is_some_and(|birth| birth <= older) {
                self.absorb_by_number(buffering, buffer)?;
            }
        }
        Ok(())
    }

    /// Absorbs the buffer of this number, if it is one; the Mnode's low key, if its Bnode is nearly
    /// empty then.
    fn absorb_by_number(
        &self,
        buffering: &Buffering<M>,
        buffer: u32,
    ) -> Result<Option<OwnedRoute>, PmError> {
        let node = self.middle.get(buffering.buffers.state(buffer).node());
        let guard = node.lock.lock(self.pm());
        if self.middle.buffer(node) != Some(buffer) {
            return Ok(None);
        }
        self.absorb(node, buffer)?;
        let low = self.low_if_small(node);
        drop(guard);
        Ok(low)
    }

    /// The low key of a locked Mnode, if its Bnode is nearly empty and not the first.
    pub(super) fn low_if_small(&self, node: &Mnode) -> Option<OwnedRoute> {
        let small = self.middle.taken(node, LEAF).len() <= LEAF / 4;
        let inner = self.middle.prev(node) != NONE;
        (small && inner).then(|| self.middle.low_route(node))
    }

    /// Tells a checkpoint of every chain. Each is read at a version that validates, so whoever has
    /// appended to it has published that.
    fn visit_chains(&self, buffering: &Buffering<M>, heads: &mut Heads) {
        let (pm, buffers) = (self.pm(), &buffering.buffers);
        let count = buffers.count();
        heads.reserve(buffers.live());
        for n in 0..count {
            // Each chain is two lines, far apart.
            if n + AHEAD < count {
                let ahead = buffers.nth(n + AHEAD);
                buffers.prefetch(ahead);
                if buffers.is_own(ahead) {
                    self.middle.prefetch_lock(ahead);
                }
            }
            let buffer = buffers.nth(n);
            // A buffer that goes to another Mnode meanwhile begins a chain after the tails.
            let node = self.middle.get(buffers.state(buffer).node());
            loop {
                let version = node.lock.begin_read(pm);
                if self.middle.buffer(node) != Some(buffer) {
                    break;
                }
                let id = self.middle.dram.load(&node.bnode);
                let chain: Chain = buffers.chain(buffer);
                let birth = buffers.birth(buffer);
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

    /// Lets every Bnode absorb its buffer, and merges those that are nearly empty then.
    ///
    /// # Cost
    /// 2 fences for every 16 buffers that have something.
    ///
    /// # Errors
    /// The medium's.
    pub fn drain(&self) -> Result<(), IndexError> {
        let Some(buffering) = self.buffering() else { return Ok(()) };
        self.pool.check_writable()?;
        self.make_ready()?;
        self.sweep_all(buffering)?;
        // And those that somebody had locked.
        for buffer in buffering.buffers.indices() {
            if !buffering.buffers.is_settled(buffer)
                && let Some(low) = self.absorb_by_number(buffering, buffer)?
            {
                self.merge_beside(&low.route::<K>());
            }
        }
        Ok(())
    }

    /// At the end: nothing in the buffers, nothing in the log.
    pub(crate) fn close_buffers(&mut self) -> Result<(), IndexError> {
        self.drain()?;
        if Self::BUFFERED
            && let Some(buffering) = self.buffering.as_deref_mut()
        {
            buffering.log.end_lanes();
            buffering.log.checkpoint(|_| Ok::<(), PmError>(()))?;
        }
        Ok(())
    }
}
