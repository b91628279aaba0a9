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
use pmindex_record::Slot;

use super::Buffering;
use super::together::TOGETHER;
use crate::log::lines_for;
use crate::tree::SpTree;

const fn at_least_one(count: usize) -> u64 {
    if count == 0 { 1 } else { count as u64 }
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
        let some = (first..end).map(|n| buffers.nth(n));
        let some: Vec<u32> = some.inspect(|&buffer| buffers.prefetch(buffer)).collect();
        let old = some.into_iter().filter(|&buffer| is_old(buffer));
        self.merge_small(self.absorb_together(buffering, old, is_old)?);
        Ok(true)
    }

    /// A Bnode is gone: the log is to be smaller by what is kept of it for one buffer.
    pub(crate) fn note_merged(&self) {
        if let Some(buffering) = self.buffering() {
            buffering.log.note_ended(Self::AGE);
        }
    }

    /// Lets Bnodes absorb all buffers, some at a time, except those whose Mnodes somebody has locked.
    pub(super) fn sweep_all(&self, buffering: &Buffering<M>) -> Result<(), IndexError> {
        let count = buffering.buffers.count();
        for first in (0..count).step_by(TOGETHER as usize) {
            let some = first..count.min(first + TOGETHER);
            let some = some.map(|n| buffering.buffers.nth(n));
            self.merge_small(self.absorb_together(buffering, some, |_| true)?);
        }
        Ok(())
    }
}
