//! The sweep: buffers are absorbed before their entries keep much of the log.
//!
//! A buffer that is absorbed when it is full, and no sooner, has entries as old as it takes to fill it.
//! Where keys are scattered, some leaves take three times as long as others, and all segments since
//! then stay. So buffers are passed one after the other, in the order of their numbers, another one with
//! every [`PASS`](SpTree::PASS) lines that are appended; and one whose first entry has become as old as
//! [`AGE`](SpTree::AGE) lines for each buffer is absorbed as it is. Older by a round than that is no
//! entry, which bounds the log.
//!
//! Those few are cheap. A buffer that is full is absorbed by whoever fills it, alone, and every line of
//! its Bnode is waited for; those of a sweep are absorbed together, by the operation after it has become
//! due: their lines come at once, and two fences are enough for all.
//!
//! Whatever is skipped (an Mnode that somebody has locked, or changes) has its turn in the next round.

use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::Medium;
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{OwnedRoute, Slot};

use super::Buffering;
use crate::log::lines_for;
use crate::middle::Mnode;
use crate::tree::SpTree;

/// Buffers that are absorbed together.
const TOGETHER: u32 = 16;

const fn at_least_one(count: usize) -> u64 {
    if count == 0 { 1 } else { count as u64 }
}

/// A buffer to be absorbed, and its Mnode at a version.
struct Due<'t> {
    node: &'t Mnode,
    buffer: u32,
    version: u64,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Lines of an entry.
    const LINES: u64 = lines_for(Slot::<K, V>::WORDS) as u64;
    /// How many lines are appended from one buffer that is passed to the next: two sevenths of what fills
    /// one.
    const PASS: u64 = Self::LINES * at_least_one(Self::ROOM * 2 / 7);
    /// How old an entry may become: as many lines for each buffer as six sevenths of what fills one. The
    /// fewer, the smaller the log, and the more lines of Bnodes are written for each record.
    const AGE: u64 = Self::LINES * at_least_one(Self::ROOM * 6 / 7);

    /// Sweeps on by some buffers, if it is due. Whoever calls it holds no lock. Returns whether it was.
    pub(super) fn sweep(&self, buffering: &Buffering<M>) -> Result<bool, IndexError> {
        let (log, buffers) = (&buffering.log, &buffering.buffers);
        let due = log.take_appended(Self::PASS, TOGETHER);
        let count = buffers.count();
        if due == 0 || count == 0 {
            return Ok(false);
        }
        let first = Some(buffering.swept.load(Relaxed)).filter(|&n| n < count).unwrap_or(0);
        let end = count.min(first + due);
        buffering.swept.store(end, Relaxed); // two at once: both here, or one for nothing
        let age = Self::AGE * buffers.live();
        let is_old = |buffer| buffers.birth(buffer).is_some_and(|birth| log.age(birth) >= age);
        self.absorb_together(buffering, first..end, is_old)?;
        Ok(true)
    }

    /// Lets Bnodes absorb all buffers, some at a time, except those whose Mnodes somebody has locked.
    pub(super) fn sweep_all(&self, buffering: &Buffering<M>) -> Result<(), IndexError> {
        let count = buffering.buffers.count();
        for first in (0..count).step_by(TOGETHER as usize) {
            let some = first..count.min(first + TOGETHER);
            self.absorb_together(buffering, some, |_| true)?;
        }
        Ok(())
    }

    /// Lets Bnodes absorb those of these buffers that are `wanted`, with the same two fences, and merges
    /// those that are nearly empty then. Whoever calls it holds no lock.
    fn absorb_together(
        &self,
        buffering: &Buffering<M>,
        some: std::ops::Range<u32>,
        wanted: impl Fn(u32) -> bool,
    ) -> Result<(), IndexError> {
        let (pm, buffers) = (self.pm(), &buffering.buffers);
        // Each of these steps waits for one miss, at once for all.
        let some: Vec<u32> = some.map(|n| buffers.nth(n)).collect();
        for &buffer in &some {
            buffers.prefetch(buffer);
        }
        let mut found: Vec<Due<'_>> = Vec::with_capacity(some.len());
        for &buffer in some.iter().filter(|&&buffer| wanted(buffer)) {
            let index = buffers.state(buffer).node();
            self.middle.prefetch(index);
            found.push(Due { node: self.middle.get(index), buffer, version: 0 });
        }
        found.retain_mut(|due| {
            due.version = due.node.lock.begin_read(pm);
            // What it looked like before the version was read was a hint.
            let still = self.middle.buffer(due.node) == Some(due.buffer) && wanted(due.buffer);
            let bnode = self.middle.dram.load(&due.node.bnode);
            if still {
                self.prefetch_absorption(buffers, due.node, (bnode, due.buffer));
            }
            still
        });
        // Locks are only tried, in any order.
        let mut held = Vec::with_capacity(found.len());
        for Due { node, buffer, version } in found {
            if let Some(guard) = node.lock.try_upgrade(pm, version) {
                held.push((node, buffer, guard));
            }
        }
        self.absorb_all(held.iter().map(|&(node, buffer, _)| (node, buffer)))?;
        let small: Vec<OwnedRoute> =
            held.iter().filter_map(|(node, ..)| self.low_if_small(node)).collect();
        drop(held); // LIN
        for low in small {
            self.merge_beside(&low.route::<K>());
        }
        Ok(())
    }
}
