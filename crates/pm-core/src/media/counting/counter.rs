//! The counter of a medium, and the medium that executes beneath it.

use core::slice::from_ref;
use core::time::Duration;

use parking_lot::Mutex;

use crate::cell::PmU64;
use crate::error::DurabilityLost;
use crate::line::lines_of;
use crate::media::{Flushed, Mapped, Medium};

use super::counts::{Counts, Registry};
use super::delay::Delay;
use super::lines::Lines;
use super::xpline::Buffer;

/// Counts what a medium of [`Mapped::counting`] or [`Mapped::counted`] does, for each thread: words stored,
/// lines flushed, those flushed by non-temporal stores, and fences. The counts are the same on every machine:
///
/// * a line counts as flushed each time it is, by a flush or a non-temporal store, on whichever
///   thread, even where a flush is a no-op (persistent caches), and twice if flushed twice;
/// * every word of a copy is a store; a compare-and-exchange counts if it succeeds; no
///   read-modify-write counts as a fence;
/// * loads and prefetches cost nothing: they are private to the cache.
///
/// Flushed lines then pass a model of the medium's internal access unit (256-byte units behind a 16 KiB
/// write-combining buffer, least recently written first), which counts bytes written to and read from the
/// medium itself. Lines that the cache would evict by itself are not modelled.
///
/// Counting takes a lock per flush, so times measured over it are not those of the medium.
#[derive(Debug)]
pub struct Counter {
    inner: Mapped,
    registry: Registry,
    buffer: Mutex<Buffer>,
    delay: Option<Delay>,
    lines: Option<Lines>,
    /// The counts that [`reset`](Self::reset) subtracts.
    zero: Mutex<Counts>,
}

impl Counter {
    /// Counts the accesses that pass through to `inner`.
    pub(crate) fn new(inner: Mapped) -> Self {
        Self {
            inner,
            registry: Registry::new(),
            buffer: Mutex::default(),
            delay: None,
            lines: None,
            zero: Mutex::default(),
        }
    }

    /// Adds a delay to each flushed line: emulated write latency.
    pub(crate) fn with_delay(mut self, per_line: Duration) -> Self {
        self.delay = (!per_line.is_zero()).then(|| Delay::new(per_line));
        self
    }

    /// Counts the flushes that do nothing, too: every store then takes a lock. To be called before anything
    /// is stored.
    pub(crate) fn watch_lines(mut self) -> Self {
        self.lines = Some(Lines::default());
        self
    }

    /// Returns the medium that executes.
    pub(crate) fn inner(&self) -> &Mapped {
        &self.inner
    }

    /// Returns the counts of all threads since the last [`reset`](Self::reset). Media bytes are those that
    /// left the medium's buffer: [`drain`](Self::drain) first to include the rest.
    pub fn counts(&self) -> Counts {
        self.registry.total() - *self.zero.lock()
    }

    /// Returns the counts of the calling thread since the medium was made.
    pub fn thread_counts(&self) -> Counts {
        self.registry.mine(|mine| mine.snapshot())
    }

    /// Empties the medium's buffer and resets the counts.
    pub fn reset(&self) {
        self.drain();
        *self.zero.lock() = self.registry.total();
    }

    /// Empties the medium's buffer into the medium.
    pub fn drain(&self) {
        let cost = self.buffer.lock().drain();
        self.registry.mine(|mine| mine.add(cost));
    }

    fn stored(&self, words: &[PmU64]) {
        self.registry.mine(|mine| mine.add_stores(words.len() as u64));
        if let Some(lines) = &self.lines {
            lines.note_store(words);
        }
    }

    fn flushed(&self, words: &[PmU64], non_temporal: bool) {
        let mut counts = Counts::default();
        let mut buffer = self.buffer.lock();
        for line in lines_of(words.as_ptr().addr(), size_of_val(words)) {
            counts = counts + buffer.write(line);
            counts.lines += 1;
        }
        drop(buffer);
        if non_temporal {
            counts.nt_lines = counts.lines;
        }
        self.registry.mine(|mine| {
            if let Some(watched) = &self.lines {
                for line in lines_of(words.as_ptr().addr(), size_of_val(words)) {
                    counts = counts + watched.note_flush(mine, line);
                }
            }
            mine.add(counts);
        });
        if let Some(delay) = self.delay {
            delay.spin(counts.lines);
        }
    }

    /// Stores a word.
    pub(crate) fn store(&self, cell: &PmU64, value: u64) {
        self.stored(from_ref(cell));
        self.inner.store_word(cell, value);
    }

    /// Notes that this thread has changed these bits of a word.
    pub(crate) fn changed(&self, cell: &PmU64, old: u64, new: u64, bits: u64) {
        self.stored(from_ref(cell));
        self.inner.changed(cell, old, new, bits);
    }

    /// Copies words with ordinary stores.
    pub(crate) fn write(&self, dst: &[PmU64], src: &[u64]) {
        self.stored(&dst[..dst.len().min(src.len())]);
        self.inner.write_words(dst, src);
    }

    /// Copies words with non-temporal stores.
    pub(crate) fn stream(&self, dst: &[PmU64], src: &[u64]) {
        let count = dst.len().min(src.len());
        self.stored(&dst[..count]);
        self.flushed(&dst[..count], true);
        let _ = self.inner.stream_words(dst, src); // the fence comes with a token of its own
    }

    /// Flushes words.
    pub(crate) fn flush(&self, words: &[PmU64]) {
        self.flushed(words, false);
        let _ = self.inner.flush_words(words); // the fence comes with a token of its own
    }

    /// Returns the fence.
    pub(crate) fn fence(&self) -> Result<(), DurabilityLost> {
        self.registry.mine(|mine| mine.add(Counts { fences: 1, ..Counts::default() }));
        self.inner.fence(Flushed::new()).map(drop)
    }
}
