//! DRAM nodes: typed, type-stable arenas of cells, addressed by 4-byte indices.
//!
//! The hybrid indexes keep their inner nodes here. A node's memory always holds a node of the same type, so a
//! reader with a stale index reads another node and fails its validation; it cannot read anything else.
//! Nothing here is durable.

use core::ops::Range;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use parking_lot::Mutex;

use crate::cell::PmType;
use crate::error::PmError;
use crate::region::Region;

/// The least amount of memory that is given back at once.
const LEAST: usize = 128 << 10;
/// The smallest page of any system. Where pages are larger, runs that are not whole pages keep their memory.
const PAGE: usize = 4096;

/// A growable array of `T` in DRAM with a free list.
///
/// Address space for `capacity` elements is reserved at once; memory is used as elements are used.
#[derive(Debug)]
pub struct Arena<T> {
    region: Region,
    /// The number of elements ever handed out; indices below it are valid.
    used: AtomicU32,
    free: Mutex<Free>,
    /// The number of elements whose memory is given back at once: whole pages, at least [`LEAST`] bytes.
    run: u32,
    capacity: u32,
    element: core::marker::PhantomData<fn() -> T>,
}

/// The free elements.
#[derive(Debug)]
struct Free {
    /// Free elements that have memory.
    indices: Vec<u32>,
    /// Runs without memory: all their elements are free, and none of them is in `indices`.
    runs: Vec<u32>,
    /// The number of indices at which runs are looked for again.
    look: usize,
}

impl Free {
    /// Takes an element, preferably one with memory.
    #[inline(always)]
    fn take(&mut self, run: u32) -> Option<u32> {
        self.indices.pop().or_else(|| self.take_run(run))
    }

    /// Takes the first element of a run without memory; the others are free with memory then.
    #[cold]
    #[inline(never)]
    fn take_run(&mut self, run: u32) -> Option<u32> {
        let at = self.runs.pop()?;
        // Look again only later: a thread that takes and frees at a run's edge would pay each time.
        self.look = 2 * run as usize;
        self.indices.extend(elements(at, run).rev());
        self.indices.pop()
    }
}

/// Returns the elements of run number `at`; each run has `run` of them.
fn elements(at: u32, run: u32) -> Range<u32> {
    at * run..(at + 1) * run
}

impl<T: PmType> Arena<T> {
    /// Creates an empty arena for up to `capacity` elements.
    ///
    /// # Errors
    /// [`PmError::Os`] if the system cannot reserve the address space.
    pub fn new(capacity: u32) -> Result<Self, PmError> {
        const { assert!(size_of::<T>() > 0) };
        // A product larger than the address space saturates, and is refused the same way.
        let region = Region::anonymous((capacity as usize).saturating_mul(size_of::<T>()))?;
        let whole = |run: &u32| {
            let bytes = *run as usize * size_of::<T>();
            bytes >= LEAST && bytes.is_multiple_of(PAGE)
        };
        let run = (0..32).map(|n| 1 << n).find(whole).unwrap_or(u32::MAX);
        Ok(Self {
            region,
            used: AtomicU32::new(0),
            free: Mutex::new(Free { indices: Vec::new(), runs: Vec::new(), look: run as usize }),
            run,
            capacity,
            element: core::marker::PhantomData,
        })
    }

    /// Takes a free element. Its contents are those of its last use, or zero: at its first use, and if its
    /// memory was [released](Self::free_and_release) meanwhile.
    pub fn alloc(&self) -> Result<u32, PmError> {
        if let Some(index) = self.free.lock().take(self.run) {
            return Ok(index);
        }
        self.alloc_fresh(1)
    }

    /// Takes `count` consecutive elements that were never handed out; returns the first. They are zero.
    pub fn alloc_fresh(&self, count: u32) -> Result<u32, PmError> {
        let more = |n: u32| n.checked_add(count).filter(|&n| n <= self.capacity);
        let first = self.used.fetch_update(AcqRel, Acquire, more).map_err(|_| PmError::Full {
            wanted: u64::from(count).saturating_mul(size_of::<T>() as u64),
            capacity: self.region.len() as u64,
        })?;
        self.region.reached((first + count) as usize * size_of::<T>());
        Ok(first)
    }

    /// Returns the largest possible number of elements.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns the number of elements that were ever handed out: all indices are below it.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used.load(Acquire)
    }

    /// Returns the free indices, in no order. For a quiescent arena.
    #[must_use]
    pub fn free_indices(&self) -> Vec<u32> {
        let free = self.free.lock();
        let released = free.runs.iter().flat_map(|&at| elements(at, self.run));
        free.indices.iter().copied().chain(released).collect()
    }

    /// Frees an element. The caller has made every path to it fail validation.
    pub fn free(&self, index: u32) {
        self.free.lock().indices.push(index);
    }

    /// As [`free`](Self::free), and gives memory back to the system where at least 128 KiB of consecutive
    /// elements are free. At some moment they begin to read as zeros, also for late readers.
    ///
    /// `leaving` is called with each such element before its memory is released: if the caller keeps a
    /// version in it, this is the time to ensure that the version never comes back.
    ///
    /// # Cost
    /// Now and then O(free elements): when the free elements are half as many again as after the last time
    /// (and a fourth of those in use); and a system call for each run.
    pub fn free_and_release(&self, index: u32, leaving: impl FnMut(&T)) {
        let mut free = self.free.lock();
        free.indices.push(index);
        if free.indices.len() >= free.look {
            self.release(&mut free, leaving);
        }
    }

    /// Releases the runs whose elements are all free.
    #[cold]
    #[inline(never)]
    fn release(&self, free: &mut Free, mut leaving: impl FnMut(&T)) {
        // Only runs whose elements have all been handed out.
        let mut counts = vec![0; (self.used() / self.run) as usize];
        for index in &free.indices {
            if let Some(count) = counts.get_mut((index / self.run) as usize) {
                *count += 1;
            }
        }
        for (at, count) in (0..).zip(&mut counts) {
            if *count == self.run {
                let elements = elements(at, self.run);
                let (start, len) = (elements.start as usize, elements.len());
                elements.for_each(|index| leaving(self.get(index)));
                if self.region.release(start * size_of::<T>(), len * size_of::<T>()) {
                    free.runs.push(at);
                    continue;
                }
            }
            *count = 0;
        }
        let stays = |index: &u32| counts.get((index / self.run) as usize).is_none_or(|&n| n == 0);
        free.indices.retain(stays);
        let (left, run) = (free.indices.len(), self.run as usize);
        free.indices.shrink_to(2 * left + run);
        // Memory that a few writes would take again is not worth the system call.
        let in_use = (self.used() as usize).saturating_sub(left + free.runs.len() * run);
        free.look = left + (left / 2).max(in_use / 4).max(run);
    }

    /// As [`free`](Self::free), for several elements; the first of them is taken last.
    pub fn free_all(&self, indices: &[u32]) {
        self.free.lock().indices.extend_from_slice(indices);
    }

    /// Returns the element at `index`.
    ///
    /// # Panics
    /// If `index` was never handed out: indices come from DRAM, never from a file.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, index: u32) -> &T {
        assert!(index < self.capacity, "arena index out of range");
        // SAFETY: the index is below `capacity`, and the region was sized for that number of elements, so the
        // product does not overflow; an element's size is a multiple of its alignment.
        unsafe { self.region.at::<T>(index as usize * size_of::<T>()) }
    }

    /// Prefetches the first line of the element at `index`. A hint: any index is allowed.
    #[inline(always)]
    pub fn prefetch(&self, index: u32) {
        let offset = (index as usize).wrapping_mul(size_of::<T>());
        crate::arch::prefetch_read(self.region.base().as_ptr().wrapping_add(offset));
    }

    /// Returns the number of elements in use.
    #[must_use]
    pub fn len(&self) -> usize {
        // Lock before the load: a free element was in use before, whatever other threads do meanwhile.
        let free = self.free.lock();
        let free = free.indices.len() + free.runs.len() * self.run as usize;
        (self.used.load(Acquire) as usize).saturating_sub(free)
    }

    /// Returns `true` if no element is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the DRAM in use, in bytes: of elements that were handed out and not released since.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let released = self.free.lock().runs.len() * self.run as usize;
        (self.used.load(Acquire) as usize).saturating_sub(released) * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::PmU64;
    use crate::media::{Mapped, Medium};

    #[test]
    fn elements_are_counted_while_others_take_and_give_them() {
        let arena: Arena<PmU64> = Arena::new(1000).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let taken: Vec<u32> = (0..20).map(|_| arena.alloc().unwrap()).collect();
                    for index in taken.into_iter().chain(arena.alloc_fresh(1)) {
                        arena.free(index);
                    }
                }
                done.store(true, std::sync::atomic::Ordering::Release);
            });
            loop {
                let ended = done.load(Acquire);
                assert!(arena.len() <= 1000);
                if ended {
                    break;
                }
            }
        });
    }

    #[repr(C, align(32))]
    struct Quarter([PmU64; 4]);
    // SAFETY: nothing but words.
    #[diagnostic::do_not_recommend]
    unsafe impl PmType for Quarter {
        const WORDS: usize = 4;
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "miri has no pages to give back")]
    fn memory_goes_where_all_elements_of_a_run_are_free_and_comes_back_as_zeros() {
        let dram = Mapped::dram();
        let run = (LEAST / size_of::<Quarter>()) as u32;
        let arena: Arena<Quarter> = Arena::new(4 * run).unwrap();
        assert_eq!(arena.run, run);
        let mut all: Vec<u32> = (0..3 * run + 9).map(|_| arena.alloc().unwrap()).collect();
        for &i in &all {
            dram.store(&arena.get(i).0[0], u64::from(i) + 1);
        }
        let before = arena.bytes();
        // One element of run 1 stays; the last run was never handed out to its end.
        all.retain(|&i| i != run + 7);
        let mut left = Vec::new();
        for &i in &all {
            arena.free_and_release(i, |element| left.push(dram.load(&element.0[0]) as u32 - 1));
        }
        left.sort_unstable();
        assert_eq!(left, elements(0, run).chain(elements(2, run)).collect::<Vec<_>>());
        assert_eq!(before - arena.bytes(), 2 * LEAST);
        assert_eq!(arena.len(), 1);
        assert_eq!(dram.load(&arena.get(run + 7).0[0]), u64::from(run) + 8, "in use");
        let mut free = arena.free_indices();
        free.sort_unstable();
        assert_eq!(free, all, "each once");
        // Runs with memory are taken first, then others; each once again.
        let with_memory = run as usize + 8;
        let mut taken: Vec<u32> = (0..all.len()).map(|_| arena.alloc().unwrap()).collect();
        for (at, &i) in taken.iter().enumerate() {
            let word = dram.load(&arena.get(i).0[0]);
            assert_eq!(word, if at < with_memory { u64::from(i) + 1 } else { 0 }, "element {i}");
        }
        taken.sort_unstable();
        assert_eq!(taken, all);
        assert_eq!((arena.bytes(), arena.used()), (before, 3 * run + 9));
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "miri has no pages to give back")]
    fn who_takes_and_gives_at_the_edge_of_a_run_makes_it_come_and_go_once() {
        let run = (LEAST / size_of::<Quarter>()) as u32;
        let arena: Arena<Quarter> = Arena::new(2 * run).unwrap();
        let taken: Vec<u32> = (0..2 * run).map(|_| arena.alloc().unwrap()).collect();
        let mut told = 0;
        let mut free = |index| arena.free_and_release(index, |_| told += 1);
        taken.into_iter().for_each(&mut free);
        for _ in 0..100 {
            let (one, other) = (arena.alloc().unwrap(), arena.alloc().unwrap());
            free(one);
            free(other);
        }
        assert_eq!(told, 2 * run, "elements of runs that went");
        assert_eq!(arena.len(), 0);
    }

    #[test]
    fn fresh_elements_are_in_a_row_and_end_with_the_capacity() {
        let arena: Arena<PmU64> = Arena::new(10).unwrap();
        let one = arena.alloc().unwrap();
        arena.free(one);
        assert_eq!(arena.alloc_fresh(6).unwrap(), 1);
        assert_eq!((arena.used(), arena.free_indices()), (7, vec![0]));
        assert!(matches!(arena.alloc_fresh(4), Err(PmError::Full { .. })));
        assert!(matches!(arena.alloc_fresh(u32::MAX), Err(PmError::Full { .. })));
        assert_eq!((arena.alloc_fresh(3).unwrap(), arena.len()), (7, 9));
    }

    #[test]
    fn elements_that_are_given_back_together_are_taken_again_the_last_one_first() {
        let arena: Arena<PmU64> = Arena::new(10).unwrap();
        assert_eq!(arena.alloc_fresh(5).unwrap(), 0);
        arena.free_all(&[3, 1, 4]);
        arena.free_all(&[]);
        assert_eq!(arena.len(), 2);
        let again: Vec<u32> = (0..4).map(|_| arena.alloc().unwrap()).collect();
        assert_eq!(again, [4, 1, 3, 5]);
    }
}
