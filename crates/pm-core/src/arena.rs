//! DRAM nodes: typed, type-stable arenas of cells, addressed by 4-byte indices.
//!
//! The hybrid indexes keep their inner nodes here. A node's memory is only ever a node of the same
//! type, so a reader that holds a stale index reads some node and fails its validation; it cannot
//! read anything else. Nothing here is durable.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use parking_lot::Mutex;

use crate::cell::PmType;
use crate::error::PmError;
use crate::region::Region;

/// A growable array of `T` in DRAM with a free list.
///
/// Address space for `capacity` elements is reserved at once, memory is used as elements are.
#[derive(Debug)]
pub struct Arena<T> {
    region: Region,
    /// Elements ever handed out; indices below it are valid.
    used: AtomicU32,
    free: Mutex<Vec<u32>>,
    capacity: u32,
    element: core::marker::PhantomData<fn() -> T>,
}

impl<T: PmType> Arena<T> {
    /// An empty arena for up to `capacity` elements.
    ///
    /// # Errors
    /// [`PmError::Os`] if there are not so many addresses.
    pub fn new(capacity: u32) -> Result<Self, PmError> {
        const { assert!(size_of::<T>() > 0) };
        // What is more than all addresses is refused as that is.
        let region = Region::anonymous((capacity as usize).saturating_mul(size_of::<T>()))?;
        Ok(Self {
            region,
            used: AtomicU32::new(0),
            free: Mutex::new(Vec::new()),
            capacity,
            element: core::marker::PhantomData,
        })
    }

    /// Takes a free element; its contents are whatever its last user left (zero at first).
    pub fn alloc(&self) -> Result<u32, PmError> {
        if let Some(index) = self.free.lock().pop() {
            return Ok(index);
        }
        self.alloc_fresh(1)
    }

    /// Takes `count` elements in a row that were never handed out; returns the first. They are zero.
    pub fn alloc_fresh(&self, count: u32) -> Result<u32, PmError> {
        let more = |n: u32| n.checked_add(count).filter(|&n| n <= self.capacity);
        let first = self.used.fetch_update(AcqRel, Acquire, more).map_err(|_| PmError::Full {
            wanted: u64::from(count).saturating_mul(size_of::<T>() as u64),
            capacity: self.region.len() as u64,
        })?;
        self.region.reached((first + count) as usize * size_of::<T>());
        Ok(first)
    }

    /// The most elements that there can be.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Elements that were ever handed out: all indices below this.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used.load(Acquire)
    }

    /// The indices that were given back, in no order. Of a quiescent arena.
    #[must_use]
    pub fn free_indices(&self) -> Vec<u32> {
        self.free.lock().clone()
    }

    /// Gives an element back. The caller has made every path to it fail validation.
    pub fn free(&self, index: u32) {
        self.free.lock().push(index);
    }

    /// As [`free`](Self::free), of several at once; the first of them is taken last.
    pub fn free_all(&self, indices: &[u32]) {
        self.free.lock().extend_from_slice(indices);
    }

    /// The element at `index`.
    ///
    /// # Panics
    /// If `index` was never handed out: indices come from DRAM, never from a file.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, index: u32) -> &T {
        assert!(index < self.capacity, "arena index out of range");
        // SAFETY: the index is below `capacity`, for as many elements the region was sized, so the
        // product does not overflow; an element's size is a multiple of its alignment.
        unsafe { self.region.at::<T>(index as usize * size_of::<T>()) }
    }

    /// Fetches the first line of the element at `index`. A hint: any index is allowed.
    #[inline(always)]
    pub fn prefetch(&self, index: u32) {
        let offset = (index as usize).wrapping_mul(size_of::<T>());
        crate::arch::prefetch_read(self.region.base().as_ptr().wrapping_add(offset));
    }

    /// Elements in use.
    #[must_use]
    pub fn len(&self) -> usize {
        // In this order: what is free was in use when it is counted, whatever others do meanwhile.
        let free = self.free.lock().len();
        (self.used.load(Acquire) as usize).saturating_sub(free)
    }

    /// Whether no element is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// DRAM in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.used.load(Acquire) as usize * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::PmU64;

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
