//! The production medium: a mapping, in the durability mode that was detected.

use core::cmp::Ordering;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::fence as cpu_fence;

use std::sync::Arc;
use std::time::Duration;

use crate::arch::{self, Level};
use crate::cell::{PmType, PmU64, words_of};
use crate::error::DurabilityLost;
use crate::mode::{Durability, FlushInstruction};
use crate::sys::DriveCache;

use super::counting::Counter;
use super::journal::{Journal, JournalMoment};
use super::twin::Twin;
use super::writeback::{Cutter, Slow, WriteBack};
use super::{Durable, Flushed, Medium, Permit, Rmw, sealed::Sealed};

/// How a flush and a fence are executed: one byte, which each of them tests once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FlushStrategy {
    /// Both only keep the compiler's order.
    NoOp,
    /// As [`Slow`] says: a flush notes pages and a fence writes them back; or a fence is refused. A store passes
    /// through it too, to an undo log or a counter.
    Slow,
    /// As [`Slow`](Self::Slow), but no fence fails, so stores need no undo log, and none is counted.
    SlowInfallible,
    /// No flush, a store fence.
    Fence,
    /// A flush with the medium's instruction, a store fence.
    Flush,
    /// A flush with CLWB, a store fence.
    Clwb,
}

/// A mapped file or anonymous memory.
#[derive(Debug)]
pub struct Mapped {
    strategy: FlushStrategy,
    level: Level,
    durability: Durability,
    instruction: FlushInstruction,
    /// `true` if a non-temporal store is the fastest way to make one word durable.
    streams_words: bool,
    /// Present in modes `Msync`, `Journal` and `Periodic`, and where writes are refused.
    slow: Option<Box<Slow>>,
}

impl Mapped {
    pub(crate) fn new(durability: Durability, instruction: FlushInstruction) -> Self {
        let msync = durability == Durability::Msync;
        let slow =
            msync.then(|| Box::new(Slow::Msync(Box::new(WriteBack::new(DriveCache::none())))));
        let strategy = match durability {
            Durability::Volatile | Durability::Process | Durability::Periodic => {
                FlushStrategy::NoOp
            }
            Durability::Msync | Durability::Journal => FlushStrategy::Slow,
            Durability::Fence => FlushStrategy::Fence,
            Durability::Flush if instruction == FlushInstruction::Clwb => FlushStrategy::Clwb,
            Durability::Flush => FlushStrategy::Flush,
        };
        Self {
            strategy,
            level: Level::detect(),
            durability,
            instruction,
            streams_words: arch::streams_words(),
            slow,
        }
    }

    /// Makes the medium of a file on a drive whose cache may be volatile. If a write-back fails, `cutter`
    /// cuts the mapping off the file, and then only a thread with `permit` may write.
    pub(crate) fn above(mut self, drive: DriveCache, cutter: Cutter, permit: Permit) -> Self {
        if let Some(Slow::Msync(writeback)) = self.slow.as_deref_mut() {
            **writeback = WriteBack::new(drive).with_cutter(cutter, permit);
        }
        self
    }

    /// Returns the medium of DRAM arenas: never flushed, neither counted nor recorded.
    #[must_use]
    pub fn dram() -> Self {
        let instruction = FlushInstruction::Clflush; // never used, and costs no CPUID to find
        Self {
            strategy: FlushStrategy::NoOp,
            level: Level::detect(),
            durability: Durability::Volatile,
            instruction,
            streams_words: false,
            slow: None,
        }
    }

    /// Counts every flush and fence, and adds `per_line` to the time of each flushed line: a program counts, or
    /// emulates a slower medium. Lines, fences and bytes of the medium are counted, stores are not; a
    /// non-temporal store is a store and a flush.
    #[must_use]
    pub fn counted(self, per_line: Duration) -> Self {
        let strategy = if self.strategy == FlushStrategy::Slow {
            FlushStrategy::Slow
        } else {
            FlushStrategy::SlowInfallible
        };
        self.with_counter(strategy, |mapped| Counter::new(mapped).with_delay(per_line))
    }

    /// Counts every store, flush and fence, and the flushes that do nothing: for tests, since each store takes a
    /// lock.
    #[must_use]
    pub fn counting(self) -> Self {
        self.with_counter(FlushStrategy::Slow, |mapped| Counter::new(mapped).watch_lines())
    }

    fn with_counter(self, strategy: FlushStrategy, counter: impl FnOnce(Self) -> Counter) -> Self {
        let Self { level, durability, instruction, streams_words, .. } = self;
        let slow = Some(Box::new(Slow::Counted(Box::new(counter(self)))));
        Self { strategy, level, durability, instruction, streams_words, slow }
    }

    /// Returns the counter of a medium made by [`counting`](Self::counting) or [`counted`](Self::counted).
    #[must_use]
    pub fn counter(&self) -> Option<&Counter> {
        match self.slow.as_deref() {
            Some(Slow::Counted(counter)) => Some(counter),
            _ => None,
        }
    }

    /// Returns the durability that a completed fence provides.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Returns the instruction of a flush.
    #[must_use]
    pub fn instruction(&self) -> FlushInstruction {
        self.instruction
    }

    /// Makes the medium of a private copy of a file: fences fail except for a thread with `permit`.
    pub(crate) fn private(instruction: FlushInstruction, permit: Permit) -> Self {
        let slow = Some(Box::new(Slow::Private { permit }));
        Self { slow, ..Self::new(Durability::Msync, instruction) }
    }

    /// Makes flushes and fences go through PMDK's library.
    #[cfg(feature = "libpmem")]
    pub(crate) fn through(self, pmem: pmindex_pmem_rs::Pmem) -> Self {
        match self.strategy {
            FlushStrategy::Fence | FlushStrategy::Flush | FlushStrategy::Clwb => Self {
                strategy: FlushStrategy::Slow,
                slow: Some(Box::new(Slow::Libpmem(Box::new(pmem)))),
                ..self
            },
            FlushStrategy::NoOp | FlushStrategy::Slow | FlushStrategy::SlowInfallible => self,
        }
    }

    /// Makes a write-back fail after `succeed` more that succeed, as if the device had failed. For tests; has
    /// an effect only in modes `Msync` and `Journal`.
    #[doc(hidden)]
    pub fn fail_write_back_after(&self, succeed: u64) {
        match self.slow.as_deref() {
            Some(Slow::Msync(writeback)) => writeback.fail_after(succeed),
            Some(Slow::Journal(journal)) => journal.fail_after(succeed),
            _ => {}
        }
    }

    /// Calls `watch` at each step of the journal, and at each flush before it, or of the twin, on the thread
    /// that executes it. For tests; has an effect only in modes `Journal` and `Periodic`.
    #[doc(hidden)]
    pub fn watch_journal(&self, watch: impl Fn(JournalMoment) + Send + Sync + 'static) {
        match self.slow.as_deref() {
            Some(Slow::Journal(journal)) => journal.watch(Box::new(watch)),
            Some(Slow::Twin(twin)) => twin.watch(Box::new(watch)),
            _ => {}
        }
    }

    /// Returns the words that have at least reached the disk, page by page, in a pool whose write-back is
    /// [made to fail](Self::fail_write_back_after). For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn disk_image(&self) -> Option<Vec<u64>> {
        match self.slow.as_deref() {
            Some(Slow::Msync(writeback)) => writeback.disk_image(),
            _ => None,
        }
    }

    /// Adds a journal: mode `Journal`.
    pub(crate) fn with_journal(self, journal: Arc<Journal>) -> Self {
        let slow = Some(Box::new(Slow::Journal(journal)));
        Self { strategy: FlushStrategy::Slow, slow, durability: Durability::Journal, ..self }
    }

    /// Adds a twin: mode `Periodic`.
    pub(crate) fn with_twin(self, twin: Arc<Twin>) -> Self {
        let slow = Some(Box::new(Slow::Twin(twin)));
        Self {
            strategy: FlushStrategy::SlowInfallible,
            slow,
            durability: Durability::Periodic,
            ..self
        }
    }

    /// Returns what stores pass through, on a medium whose fences may fail or whose stores are counted.
    #[inline(always)]
    fn observer(&self) -> Option<&Slow> {
        if self.strategy != FlushStrategy::Slow {
            return None;
        }
        crate::arch::cold_path();
        self.slow.as_deref()
    }

    /// Notes that this thread has changed these bits of a word.
    #[inline(always)]
    pub(super) fn changed(&self, cell: &PmU64, old: u64, new: u64, bits: u64) {
        if let Some(observer) = self.observer() {
            observer.changed(cell, old, new, bits);
        }
    }

    /// Flushes by the less common strategies.
    #[inline(never)]
    fn flush_otherwise(&self, words: &[PmU64]) {
        match (self.strategy, &self.slow) {
            (FlushStrategy::Clwb | FlushStrategy::Flush, _) => {
                arch::flush_words(self.instruction, words);
            }
            (FlushStrategy::Slow | FlushStrategy::SlowInfallible, Some(slow)) => slow.flush(words),
            (
                FlushStrategy::NoOp
                | FlushStrategy::Fence
                | FlushStrategy::Slow
                | FlushStrategy::SlowInfallible,
                _,
            ) => {}
        }
    }

    /// Executes the fence of a mode that needs more than an instruction.
    #[cold]
    #[inline(never)]
    fn slow_fence(&self) -> Result<Durable, DurabilityLost> {
        if let Some(slow) = &self.slow {
            slow.fence()?;
        }
        Ok(Durable::new())
    }
}

impl Sealed for Mapped {}

impl Medium for Mapped {
    const IS_MAPPED: bool = true;

    #[inline(always)]
    fn load_word(&self, cell: &PmU64) -> u64 {
        cell.atomic().load(Acquire)
    }

    #[inline(always)]
    fn store_word(&self, cell: &PmU64, value: u64) {
        if let Some(observer) = self.observer() {
            return observer.store(cell, value);
        }
        cell.atomic().store(value, Release);
    }

    #[inline(always)]
    fn cas_word(&self, cell: &PmU64, current: u64, new: u64) -> Result<u64, u64> {
        let found = cell.atomic().compare_exchange(current, new, AcqRel, Acquire);
        if found.is_ok() {
            self.changed(cell, current, new, u64::MAX);
        }
        found
    }

    #[inline(always)]
    fn rmw_word(&self, cell: &PmU64, op: Rmw) -> u64 {
        let old = match op {
            Rmw::Add(n) => cell.atomic().fetch_add(n, AcqRel),
            Rmw::Or(bits) => cell.atomic().fetch_or(bits, AcqRel),
            Rmw::And(mask) => cell.atomic().fetch_and(mask, AcqRel),
            Rmw::Swap(value) => cell.atomic().swap(value, AcqRel),
        };
        if let Some(observer) = self.observer() {
            let (new, bits) = match op {
                Rmw::Add(n) => (old.wrapping_add(n), u64::MAX),
                Rmw::Or(bits) => (old | bits, bits),
                Rmw::And(mask) => (old & mask, !mask),
                Rmw::Swap(value) => (value, u64::MAX),
            };
            observer.changed(cell, old, new, bits);
        }
        old
    }

    #[inline(always)]
    fn flush_words(&self, words: &[PmU64]) -> Flushed {
        if self.strategy == FlushStrategy::Clwb {
            arch::flush_words(FlushInstruction::Clwb, words);
            return Flushed::new();
        }
        crate::arch::cold_path(); // one comparison before the usual instruction
        if self.strategy != FlushStrategy::NoOp {
            self.flush_otherwise(words);
        }
        Flushed::new()
    }

    #[inline(always)]
    fn flush<T: PmType>(&self, target: &T) -> Flushed {
        if self.strategy == FlushStrategy::Clwb {
            arch::flush(FlushInstruction::Clwb, target); // knows the alignment: no loop
            return Flushed::new();
        }
        crate::arch::cold_path();
        if self.strategy != FlushStrategy::NoOp {
            self.flush_otherwise(words_of(target));
        }
        Flushed::new()
    }

    #[inline(always)]
    fn fence(&self, _flushed: Flushed) -> Result<Durable, DurabilityLost> {
        if self.strategy >= FlushStrategy::Fence {
            arch::store_fence();
            return Ok(Durable::new());
        }
        crate::arch::cold_path();
        if self.strategy != FlushStrategy::NoOp {
            return self.slow_fence();
        }
        cpu_fence(Release);
        Ok(Durable::new())
    }

    fn is_poisoned(&self) -> bool {
        self.slow.as_ref().is_some_and(|slow| slow.is_poisoned())
    }

    #[inline(always)]
    fn may_write(&self) -> bool {
        if self.strategy != FlushStrategy::Slow {
            return true;
        }
        crate::arch::cold_path();
        self.slow.as_deref().is_none_or(Slow::may_write)
    }

    #[inline(always)]
    fn spin(&self) {
        if self.strategy != FlushStrategy::Slow {
            return core::hint::spin_loop();
        }
        crate::arch::cold_path();
        self.slow.as_deref().map_or_else(core::hint::spin_loop, Slow::spin);
    }

    #[inline(always)]
    fn keep_stores(&self) {
        if let Some(observer) = self.observer() {
            observer.keep_stores();
        }
    }

    fn sync_apart(&self, sync: &mut dyn FnMut() -> std::io::Result<()>) -> std::io::Result<()> {
        match self.slow.as_deref() {
            Some(slow) => slow.sync_apart(sync),
            None => sync(),
        }
    }

    fn tally(&self) -> Option<[u64; 5]> {
        Some(self.slow.as_deref()?.tally()?.now())
    }

    #[inline(always)]
    fn is_volatile(&self) -> bool {
        self.durability == Durability::Volatile
    }

    #[inline(always)]
    fn read_words(&self, src: &[PmU64], dst: &mut [u64]) {
        arch::bulk::read_words(self.level, src, dst);
    }

    #[inline]
    fn read_vec(&self, src: &[PmU64], len: usize) -> Vec<u8> {
        let src = &src[..src.len().min(len.div_ceil(8))];
        // Straight into the vector: what is loaded in wider parts than it was stored waits.
        let words = src.iter().map(|cell| cell.atomic().load(Relaxed).to_le_bytes());
        let mut bytes = words.collect::<Vec<_>>().into_flattened();
        cpu_fence(Acquire);
        bytes.truncate(len);
        bytes
    }

    #[inline(always)]
    fn match_byte(&self, src: &[PmU64], byte: u8) -> u64 {
        arch::bulk::match_byte(self.level, src, byte)
    }

    #[inline(always)]
    fn match_word(&self, src: &[PmU64], word: u64) -> u64 {
        arch::bulk::match_word(self.level, src, word)
    }

    #[inline(always)]
    fn match_less(&self, src: &[PmU64], bound: u64) -> u64 {
        arch::bulk::match_less(self.level, src, bound)
    }

    #[inline(always)]
    fn count_less(&self, src: &[PmU64], bound: u64) -> usize {
        arch::bulk::count_less(self.level, src, bound)
    }

    #[inline(always)]
    fn cmp_bytes(&self, src: &[PmU64], len: usize, probe: &[u8]) -> Ordering {
        arch::bulk::cmp_bytes(self.level, src, len, probe)
    }

    #[inline(always)]
    fn eq_bytes(&self, src: &[PmU64], len: usize, probe: &[u8]) -> bool {
        arch::bulk::eq_bytes(self.level, src, len, probe)
    }

    #[inline(always)]
    fn write_words(&self, dst: &[PmU64], src: &[u64]) {
        if let Some(observer) = self.observer() {
            return observer.write(dst, src);
        }
        arch::write_words(dst, src);
    }

    #[inline(always)]
    fn stream_words(&self, dst: &[PmU64], src: &[u64]) -> Flushed {
        if self.strategy >= FlushStrategy::Flush {
            if !(self.streams_words && arch::stream_line(dst, src)) {
                arch::stream_words(self.level, self.instruction, dst, src);
            }
            return Flushed::new();
        }
        if let Some(observer) = self.observer() {
            observer.stream(dst, src);
            return Flushed::new();
        }
        self.write_words(dst, src);
        self.flush_words(dst)
    }

    #[inline(always)]
    fn store_nt_word(&self, cell: &PmU64, value: u64) -> Flushed {
        if self.strategy >= FlushStrategy::Flush && self.streams_words {
            arch::stream_word(self.instruction, cell, value);
            return Flushed::new();
        }
        if let Some(observer) = self.observer() {
            observer.stream(core::slice::from_ref(cell), &[value]);
            return Flushed::new();
        }
        self.store_word(cell, value);
        self.flush_words(core::slice::from_ref(cell))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pool, PoolOptions};

    /// Stores, flushes, streams and fences on the words of a block.
    fn work<M: Medium>(pool: &Pool<M>) {
        let mut op = pool.op().expect("a slot");
        let block = op.reserve_bytes(800, 64).expect("room");
        let words = pool.words(block.ptr().offset(), 100).expect("in bounds");
        let pm = pool.pm();
        for round in 1..50 {
            pm.write_words(words, &[round; 30]);
            let flushed =
                pm.flush_words(&words[..30]).and(pm.stream_words(&words[..16], &[round; 16]));
            let flushed = flushed.and(pm.store_nt_word(&words[99], round));
            pm.fence(flushed).expect("it never fails");
        }
    }

    #[test]
    fn flushes_and_fences_count_the_same_whether_stores_are_counted_or_not() {
        for emulate in [false, true] {
            let options = PoolOptions::new().size(8 << 20).emulate_pm(emulate);
            let all = Pool::create_in_memory(&options, Mapped::counting).expect("memory");
            let some = Pool::create_in_memory(&options, |mapped| mapped.counted(Duration::ZERO));
            let some = some.expect("memory");
            let counters = [&all, &some].map(|pool| pool.pm().counter().expect("it counts"));
            for counter in counters {
                counter.reset();
            }
            work(&all);
            work(&some);
            for counter in counters {
                counter.drain();
            }
            let [want, found] = counters.map(Counter::counts);
            assert_eq!((found.lines, found.fences), (want.lines, want.fences));
            assert_eq!(found.media_written, want.media_written);
            assert!(found.lines > 49 * 5 && found.fences >= 49, "{found:?}");
            assert_eq!((found.stores, found.nt_lines), (0, 0));
            assert!(want.stores >= 49 * 47 && want.nt_lines >= 49 * 3, "{want:?}");
            assert_eq!(all.durability(), some.durability());
        }
        assert!(Pool::emulated(8 << 20).expect("memory").pm().counter().is_none());
    }

    #[test]
    fn bytes_are_read_whatever_their_number_and_never_more_than_there_are() {
        let pool = Pool::emulated(8 << 20).expect("memory");
        let mut op = pool.op().expect("a slot");
        let block = op.reserve_bytes(800, 64).expect("room");
        let words = pool.words(block.ptr().offset(), 100).expect("in bounds");
        let bytes: Vec<u8> = (0..800u32).map(|i| (i * 7 + i / 256) as u8).collect();
        pool.pm().write_bytes(words, &bytes);
        for len in 0..=800 {
            assert_eq!(pool.pm().read_vec(words, len), bytes[..len]);
            assert_eq!(pool.pm().read_vec(&words[..10], len), bytes[..len.min(80)]);
        }
    }
}
