//! The medium that executes on another one and counts.

use core::cmp::Ordering;
use core::slice::from_ref;
use core::time::Duration;

use parking_lot::Mutex;

use crate::cell::PmU64;
use crate::error::DurabilityLost;
use crate::line::lines_of;
use crate::media::sealed::Sealed;
use crate::media::{Durable, Flushed, Mapped, Medium, Rmw};

use super::counts::{Counts, Registry};
use super::delay::Delay;
use super::lines::Lines;
use super::xpline::Buffer;

/// Executes every access on `M` and counts, for each thread: words stored, lines flushed, those flushed by
/// non-temporal stores, and fences. The counts are the same on every machine:
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
/// Counting takes a lock per flush, so times measured over it are not those of `M`. A delay per
/// flushed line ([`with_delay`](Self::with_delay)) emulates slower media.
#[derive(Debug)]
pub struct Counting<M = Mapped> {
    inner: M,
    registry: Registry,
    buffer: Mutex<Buffer>,
    delay: Option<Delay>,
    lines: Option<Lines>,
    /// The counts that [`reset`](Self::reset) subtracts.
    zero: Mutex<Counts>,
}

impl<M: Medium> Counting<M> {
    /// Counts the accesses that pass through to `inner`.
    #[must_use]
    pub fn new(inner: M) -> Self {
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
    #[must_use]
    pub fn with_delay(mut self, per_line: Duration) -> Self {
        self.delay = (!per_line.is_zero()).then(|| Delay::new(per_line));
        self
    }

    /// Counts the flushes that do nothing, too: every store then takes a lock. To be called before anything
    /// is stored.
    #[must_use]
    pub fn watch_lines(mut self) -> Self {
        self.lines = Some(Lines::default());
        self
    }

    /// Returns the medium that executes.
    pub fn inner(&self) -> &M {
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
}

impl<M: Medium> Sealed for Counting<M> {}

impl<M: Medium> Medium for Counting<M> {
    fn load_word(&self, cell: &PmU64) -> u64 {
        self.inner.load_word(cell)
    }

    #[track_caller]
    fn store_word(&self, cell: &PmU64, value: u64) {
        self.stored(from_ref(cell));
        self.inner.store_word(cell, value);
    }

    #[track_caller]
    fn cas_word(&self, cell: &PmU64, current: u64, new: u64) -> Result<u64, u64> {
        let result = self.inner.cas_word(cell, current, new);
        self.stored(&from_ref(cell)[..usize::from(result.is_ok())]);
        result
    }

    #[track_caller]
    fn rmw_word(&self, cell: &PmU64, op: Rmw) -> u64 {
        self.stored(from_ref(cell));
        self.inner.rmw_word(cell, op)
    }

    #[track_caller]
    fn flush_words(&self, words: &[PmU64]) -> Flushed {
        self.flushed(words, false);
        self.inner.flush_words(words)
    }

    #[track_caller]
    fn fence(&self, flushed: Flushed) -> Result<Durable, DurabilityLost> {
        self.registry.mine(|mine| mine.add(Counts { fences: 1, ..Counts::default() }));
        self.inner.fence(flushed)
    }

    #[track_caller]
    fn in_order(&self) {
        self.inner.in_order();
    }

    #[track_caller]
    fn written_back(&self) {
        self.inner.written_back();
    }

    fn read_words(&self, src: &[PmU64], dst: &mut [u64]) {
        self.inner.read_words(src, dst);
    }

    fn match_byte(&self, src: &[PmU64], byte: u8) -> u64 {
        self.inner.match_byte(src, byte)
    }

    fn match_word(&self, src: &[PmU64], word: u64) -> u64 {
        self.inner.match_word(src, word)
    }

    fn match_less(&self, src: &[PmU64], bound: u64) -> u64 {
        self.inner.match_less(src, bound)
    }

    fn count_less(&self, src: &[PmU64], bound: u64) -> usize {
        self.inner.count_less(src, bound)
    }

    fn cmp_bytes(&self, src: &[PmU64], len: usize, probe: &[u8]) -> Ordering {
        self.inner.cmp_bytes(src, len, probe)
    }

    fn eq_bytes(&self, src: &[PmU64], len: usize, probe: &[u8]) -> bool {
        self.inner.eq_bytes(src, len, probe)
    }

    #[track_caller]
    fn write_words(&self, dst: &[PmU64], src: &[u64]) {
        self.stored(&dst[..dst.len().min(src.len())]);
        self.inner.write_words(dst, src);
    }

    #[track_caller]
    fn stream_words(&self, dst: &[PmU64], src: &[u64]) -> Flushed {
        let count = dst.len().min(src.len());
        self.stored(&dst[..count]);
        self.flushed(&dst[..count], true);
        self.inner.stream_words(dst, src)
    }

    #[track_caller]
    fn store_nt_word(&self, cell: &PmU64, value: u64) -> Flushed {
        self.stored(from_ref(cell));
        self.flushed(from_ref(cell), true);
        self.inner.store_nt_word(cell, value)
    }

    fn tally(&self) -> Option<[u64; 5]> {
        self.inner.tally()
    }

    fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    fn may_write(&self) -> bool {
        self.inner.may_write()
    }

    fn keep_stores(&self) {
        self.inner.keep_stores();
    }

    fn sync_apart(&self, sync: &mut dyn FnMut() -> std::io::Result<()>) -> std::io::Result<()> {
        self.inner.sync_apart(sync)
    }

    fn is_volatile(&self) -> bool {
        self.inner.is_volatile()
    }

    fn yield_point(&self) {
        self.inner.yield_point();
    }

    fn handover_point(&self) {
        self.inner.handover_point();
    }

    fn nap(&self, time: core::time::Duration) {
        self.inner.nap(time);
    }

    fn spin(&self) {
        self.inner.spin();
    }

    fn lock<'a, T>(&self, mutex: &'a parking_lot::Mutex<T>) -> parking_lot::MutexGuard<'a, T> {
        self.inner.lock(mutex)
    }
}
