//! What writers leave to whoever does the background work.
//!
//! A writer that fills a buffer lets the Bnode absorb it, which costs as much as several writes. While
//! a [`Worker`](crate::Worker) has taken over the background work, the writer notes the buffer here
//! instead and goes on; the worker absorbs those that wait some at a time, with shared fences, and splits
//! the Bnodes that are full then. Nothing depends on it: a buffer without room is absorbed by the writer
//! that finds it so, and while too many wait, writers do as if there were no worker.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use pmindex_core::Medium;
use pmindex_index::{IndexError, Key, Value};

use super::together::{Locked, TOGETHER};
use super::{Buffering, ENTRIES_MAX};
use crate::middle::NONE;
use crate::tree::SpTree;
use crate::write::Held;

/// The most buffers that wait: so many that a worker may sleep for some milliseconds.
const MOST: usize = 4096;

/// Buffers without room, for workers.
#[derive(Debug, Default)]
pub(crate) struct Handoff {
    /// Whether there are workers, and few wait. On a line that is seldom written.
    open: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    workers: usize,
    waiting: VecDeque<u32>,
}

impl Handoff {
    /// A worker takes the background work over.
    pub(crate) fn begin(&self, pm: &impl Medium) {
        let mut queue = pm.lock(&self.queue);
        queue.workers += 1;
        self.open.store(true, Relaxed);
    }

    /// A worker does it no longer.
    pub(crate) fn end(&self, pm: &impl Medium) {
        let mut queue = pm.lock(&self.queue);
        queue.workers -= 1;
        if queue.workers == 0 {
            self.open.store(false, Relaxed);
            queue.waiting.clear();
        }
    }

    /// Whether a worker does the background work, and is not far behind.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    /// Leaves a buffer to a worker.
    #[cold]
    #[inline(never)]
    pub(crate) fn leave(&self, pm: &impl Medium, buffer: u32) {
        let mut queue = pm.lock(&self.queue);
        if queue.workers > 0 && queue.waiting.len() < MOST {
            queue.waiting.push_back(buffer);
        } else {
            self.open.store(false, Relaxed);
        }
    }

    /// Takes the buffers that have waited longest, `most` at most.
    pub(crate) fn take(&self, pm: &impl Medium, most: usize) -> Vec<u32> {
        let mut queue = pm.lock(&self.queue);
        let count = queue.waiting.len().min(most);
        let taken = queue.waiting.drain(..count).collect();
        if queue.workers > 0 && queue.waiting.len() < MOST / 2 {
            self.open.store(true, Relaxed);
        }
        taken
    }

    /// How many wait.
    pub(crate) fn waiting(&self, pm: &impl Medium) -> usize {
        pm.lock(&self.queue).waiting.len()
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Whether the Bnode and the buffer of an Mnode take another record of a new key. Racing: validate.
    #[inline(always)]
    pub(super) fn has_room(&self, buffering: &Buffering<M>, buffer: u32) -> bool {
        let (buffers, state) = (&buffering.buffers, buffering.buffers.state(buffer));
        let taken = self.middle.taken(self.middle.get(state.node()), LEAF).len();
        state.len() < Self::ROOM
            && state.logged() < ENTRIES_MAX
            && taken + buffers.new_keys(buffer) < LEAF
    }

    /// Lets Bnodes absorb buffers that writers left without room, some at a time, and splits those that
    /// are full then. Whoever calls it holds no lock. Returns whether any waited.
    pub(super) fn absorb_left(&self, buffering: &Buffering<M>) -> Result<bool, IndexError> {
        let waiting = buffering.handoff.take(self.pm(), TOGETHER as usize);
        if waiting.is_empty() {
            return Ok(false);
        }
        let full = |buffer| !self.has_room(buffering, buffer);
        let mut held = self.absorb_together(buffering, waiting.into_iter(), full)?;
        // The last one's writer splits it: if keys ascend, the new Bnode gets the new keys only.
        let splits = |locked: &mut Locked<'_>| {
            self.middle.taken(locked.node, LEAF).len() == LEAF
                && self.middle.next(locked.node) != NONE
        };
        let full: Vec<Locked<'_>> = held.extract_if(.., splits).collect();
        self.merge_small(held);
        for Locked { index, node, guard } in full {
            let (bnode, taken) = (self.bnode_of(node)?, self.middle.taken(node, LEAF));
            self.split(Held { index, node, bnode, taken, slot: None, hit: None, guard }, None)?;
        }
        Ok(true)
    }

    /// Whether so many buffers wait that a worker had better not sleep.
    pub(crate) fn has_much_to_do(&self) -> bool {
        let Some(buffering) = self.buffering() else { return false };
        buffering.handoff.waiting(self.pm()) >= TOGETHER as usize || buffering.log.wants()
    }
}
