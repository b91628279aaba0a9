//! Counts, and the per-thread cells that hold them.

use core::ops::{Add, Sub};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::threadlist::thread_list;

/// The cost of operations. Subtract an earlier snapshot from a later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Words stored, in any way.
    pub stores: u64,
    /// Lines flushed, non-temporal ones included.
    pub lines: u64,
    /// Lines written with non-temporal stores.
    pub nt_lines: u64,
    /// Lines flushed without a store since their last flush: these flushes do nothing. Counted by
    /// [`Mapped::counting`](super::super::Mapped::counting).
    pub clean: u64,
    /// Lines flushed again by the same thread without a fence in between, because a word was stored after the
    /// first flush: one flush would have been enough. Counted like `clean`.
    pub repeated: u64,
    /// Fences.
    pub fences: u64,
    /// Bytes the medium wrote, in its own access units.
    pub media_written: u64,
    /// Bytes the medium read to complete units that were written in part.
    pub media_read: u64,
}

impl Counts {
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            stores: f(self.stores, other.stores),
            lines: f(self.lines, other.lines),
            nt_lines: f(self.nt_lines, other.nt_lines),
            clean: f(self.clean, other.clean),
            repeated: f(self.repeated, other.repeated),
            fences: f(self.fences, other.fences),
            media_written: f(self.media_written, other.media_written),
            media_read: f(self.media_read, other.media_read),
        }
    }
}

impl Add for Counts {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.zip(other, u64::wrapping_add)
    }
}

impl Sub for Counts {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        self.zip(earlier, u64::wrapping_sub)
    }
}

/// One thread's counts of one medium: only that thread adds, any thread reads.
#[derive(Debug, Default)]
pub(super) struct ThreadCounts {
    stores: AtomicU64,
    lines: AtomicU64,
    nt_lines: AtomicU64,
    clean: AtomicU64,
    repeated: AtomicU64,
    fences: AtomicU64,
    media_written: AtomicU64,
    media_read: AtomicU64,
}

impl ThreadCounts {
    pub(super) fn add(&self, counts: Counts) {
        self.stores.fetch_add(counts.stores, Relaxed);
        self.lines.fetch_add(counts.lines, Relaxed);
        self.nt_lines.fetch_add(counts.nt_lines, Relaxed);
        self.clean.fetch_add(counts.clean, Relaxed);
        self.repeated.fetch_add(counts.repeated, Relaxed);
        self.fences.fetch_add(counts.fences, Relaxed);
        self.media_written.fetch_add(counts.media_written, Relaxed);
        self.media_read.fetch_add(counts.media_read, Relaxed);
    }

    pub(super) fn add_stores(&self, stores: u64) {
        self.stores.fetch_add(stores, Relaxed);
    }

    pub(super) fn fences(&self) -> u64 {
        self.fences.load(Relaxed)
    }

    pub(super) fn snapshot(&self) -> Counts {
        Counts {
            stores: self.stores.load(Relaxed),
            lines: self.lines.load(Relaxed),
            nt_lines: self.nt_lines.load(Relaxed),
            clean: self.clean.load(Relaxed),
            repeated: self.repeated.load(Relaxed),
            fences: self.fences.load(Relaxed),
            media_written: self.media_written.load(Relaxed),
            media_read: self.media_read.load(Relaxed),
        }
    }
}

/// The counts of every thread that ever used a medium.
#[derive(Debug)]
pub(super) struct Registry {
    id: u64,
    threads: Mutex<Vec<Arc<ThreadCounts>>>,
}

thread_list! {
    /// This thread's counts, by medium.
    const MINE: (u64, Arc<ThreadCounts>), kept if |_| true;
}

impl Registry {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Relaxed), threads: Mutex::default() }
    }

    /// Calls `f` with the calling thread's counts.
    pub(super) fn mine<R>(&self, f: impl FnOnce(&Arc<ThreadCounts>) -> R) -> R {
        MINE.with(|mine| {
            if let Some((_, counts)) = mine.iter().find(|(id, _)| *id == self.id) {
                return f(counts);
            }
            mine.retain(|(_, counts)| Arc::strong_count(counts) > 1); // media that are gone
            let counts = Arc::<ThreadCounts>::default();
            self.threads.lock().push(Arc::clone(&counts));
            mine.push((self.id, Arc::clone(&counts)));
            f(&counts)
        })
    }

    /// Returns the sum over all threads.
    pub(super) fn total(&self) -> Counts {
        let threads = self.threads.lock();
        threads.iter().fold(Counts::default(), |sum, thread| sum + thread.snapshot())
    }
}
