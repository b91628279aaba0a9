//! The queue of buffers that writers hand to workers.
//!
//! A writer that fills a buffer lets the Bnode absorb it, which costs as much as several writes. While
//! a [`Worker`](crate::Worker) does the background work, the writer queues the buffer here instead; the
//! worker absorbs those that wait some at a time, with shared fences. Nothing depends on it: a writer that
//! finds a buffer without room absorbs it, and while too many wait, writers do as if there were no worker.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use pmindex_core::Medium;

/// The largest number of waiting buffers: enough for a worker to sleep for some milliseconds.
const MOST: usize = 4096;

/// The buffers that wait for a worker.
#[derive(Debug, Default)]
pub(super) struct Handoff {
    /// `true` if there are workers, and few buffers wait. On a line that is seldom written.
    open: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    workers: usize,
    waiting: VecDeque<u32>,
}

impl Handoff {
    /// Adds a worker.
    pub(super) fn add_worker(&self, pm: &impl Medium) {
        let mut queue = pm.lock(&self.queue);
        queue.workers += 1;
        self.open.store(true, Relaxed);
    }

    /// Removes a worker.
    pub(super) fn remove_worker(&self, pm: &impl Medium) {
        let mut queue = pm.lock(&self.queue);
        queue.workers -= 1;
        if queue.workers == 0 {
            self.open.store(false, Relaxed);
            queue.waiting.clear();
        }
    }

    /// Returns `true` if a worker is running and not far behind.
    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    /// Queues a buffer.
    #[cold]
    #[inline(never)]
    pub(super) fn push(&self, pm: &impl Medium, buffer: u32) {
        let mut queue = pm.lock(&self.queue);
        if queue.workers > 0 && queue.waiting.len() < MOST {
            queue.waiting.push_back(buffer);
        } else {
            self.open.store(false, Relaxed);
        }
    }

    /// Takes the buffers that have waited longest, `most` at most.
    pub(super) fn take(&self, pm: &impl Medium, most: usize) -> Vec<u32> {
        let mut queue = pm.lock(&self.queue);
        let count = queue.waiting.len().min(most);
        let taken = queue.waiting.drain(..count).collect();
        if queue.workers > 0 && queue.waiting.len() < MOST / 2 {
            self.open.store(true, Relaxed);
        }
        taken
    }

    /// Returns the number of buffers that wait.
    pub(super) fn waiting(&self, pm: &impl Medium) -> usize {
        pm.lock(&self.queue).waiting.len()
    }
}
