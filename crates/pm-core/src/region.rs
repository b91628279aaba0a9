//! A region: a fixed range of addresses that backs a pool or an arena.
//!
//! A region reserves `capacity` bytes of address space, of which the first [`len`](Region::len) may be
//! touched; growing raises the length and never moves anything. The length is in a word just before the base,
//! on a page of its own:
//!
//! ```text
//! | prefix page: .. length | base: usable bytes .. | reserved ..        |
//! ```
//!
//! For a shared mapping the kernel zeroes that page in a forked child (`MADV_WIPEONFORK`), so a child's pool
//! has length 0, and every pointer into it fails its bounds check: the child cannot disturb its parent, and
//! the check costs nothing extra.

mod ahead;
mod cut;
mod huge;
mod mapping;

use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU64, AtomicUsize};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::cell::{PmType, PmU64};
use crate::error::PmError;
use crate::media::TracedInner;
use crate::sys;

use ahead::Ahead;
pub(crate) use cut::Mapping;
pub(crate) use huge::Found;
pub(crate) use mapping::MapKind;

/// Regions up to this size come from the heap: clearing them costs less than two system calls and page
/// faults, which counts in tests that make many. Larger regions are mostly touched in small part.
const HEAP_MAX: usize = 64 << 10;
/// Alignment of every region, and the size of the page before the base.
const PAGE: usize = 4096;

/// Bits that no offset within a region has: addresses have at most 57 bits.
const FAR: u64 = 0xff << 56;

/// Owned memory at a fixed address, zero at first or backed by a file.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    capacity: usize,
    backing: Backing,
    ahead: Ahead,
    /// The part mapped from a file, for the thread that may have to cut it off.
    mapping: Option<Arc<Mapping>>,
}

/// The source of the memory, which decides how it is freed.
#[derive(Debug)]
enum Backing {
    Heap,
    /// Memory of a traced space, which owns it, lives at least as long, and shares its length word with this
    /// region.
    Lent(Arc<TracedInner>),
    /// Start and length of the whole mapping, the prefix page included. The length shrinks only after a
    /// mapping failed: the addresses beyond may belong to others then.
    Map {
        start: NonNull<u8>,
        len: AtomicUsize,
    },
}

// SAFETY: a region is plain memory that only atomic accesses touch.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// As [`anonymous`](Self::anonymous), but if the system refuses `len` bytes, with fewer, down to `least`.
    pub(crate) fn anonymous_up_to(len: usize, least: usize) -> Result<Self, PmError> {
        most_of(len, least, Self::anonymous)
    }

    /// Maps anonymous memory: zero, all of it usable; physical pages are used when touched.
    pub(crate) fn anonymous(len: usize) -> Result<Self, PmError> {
        let total = len.max(PAGE).checked_next_multiple_of(PAGE).and_then(|n| n.checked_add(PAGE));
        let total = total.ok_or_else(|| os("mapping anonymous memory", Errno::NOMEM))?;
        let len = total - PAGE;
        if len <= HEAP_MAX {
            return Ok(Self::heap(len));
        }
        // SAFETY: a fresh anonymous mapping at an address the kernel chooses.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                core::ptr::null_mut(),
                total,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | sys::NO_RESERVE,
            )
        };
        let start = mapped
            .map_err(|e| os("mapping anonymous memory", e))
            .map(|p| NonNull::new(p.cast::<u8>()))?
            .ok_or_else(|| os("mapping anonymous memory", Errno::NOMEM))?;
        // SAFETY: the mapping is `PAGE + len` bytes long.
        let base = unsafe { start.add(PAGE) };
        let region = Self {
            base,
            capacity: len,
            backing: Backing::Map { start, len: total.into() },
            ahead: Ahead::of_mapping(),
            mapping: None,
        };
        region.advise_huge();
        region.set_len(len);
        Ok(region)
    }

    /// Allocates zeroed heap memory, all of it usable.
    pub(crate) fn heap(len: usize) -> Self {
        let layout = Self::heap_layout(len);
        // SAFETY: the layout's size is not zero: it has the prefix page.
        let start = unsafe { alloc_zeroed(layout) };
        Self::from_heap(start, len)
    }

    fn from_heap(start: *mut u8, len: usize) -> Self {
        let Some(start) = NonNull::new(start) else { handle_alloc_error(Self::heap_layout(len)) };
        // SAFETY: the allocation is `PAGE + len` bytes long.
        let base = unsafe { start.add(PAGE) };
        let (backing, ahead) = (Backing::Heap, Ahead::default());
        let region = Self { base, capacity: len, backing, ahead, mapping: None };
        region.set_len(len);
        region
    }

    /// Returns the memory of a traced space as a region that keeps it alive; its length is that of the
    /// space's file.
    pub(crate) fn lent(space: &Arc<TracedInner>) -> Self {
        let memory = space.memory();
        let (base, capacity) = (memory.base, memory.capacity);
        let backing = Backing::Lent(Arc::clone(space));
        let region = Self { base, capacity, backing, ahead: Ahead::default(), mapping: None };
        region.set_len(space.file_len() as usize);
        region
    }

    fn heap_layout(len: usize) -> Layout {
        Layout::from_size_align(len + PAGE, PAGE).expect("region size fits isize")
    }

    /// Returns the part that is mapped from a file.
    pub(crate) fn mapping(&self) -> Option<&Arc<Mapping>> {
        self.mapping.as_ref()
    }

    /// Returns the usable bytes: 0 in a forked child, if the memory is shared with the parent.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        // Acquire: pairs with the Release in `set_len`, after the new bytes became usable.
        self.bound().load(Acquire) as usize
    }

    /// Returns the bytes of address space.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Declares the first `len` bytes usable.
    ///
    /// # Panics
    /// If the region has fewer.
    fn set_len(&self, len: usize) {
        assert!(len <= self.capacity, "length within the region");
        self.bound().store(len as u64, Release);
    }

    /// Makes fewer bytes usable, if the file is longer than the pool in it.
    ///
    /// # Panics
    /// If `len` is more than are usable.
    pub(crate) fn shorten(&self, len: usize) {
        assert!(len <= self.len(), "shortening");
        self.set_len(len);
    }

    /// Makes more bytes usable, in memory that exists already: a simulated file's.
    ///
    /// # Panics
    /// If the region has fewer.
    pub(crate) fn lengthen(&self, len: usize) {
        assert!(matches!(self.backing, Backing::Lent(_)), "memory that is there");
        self.set_len(len.max(self.len()));
    }

    /// Makes the first `len` bytes usable, of memory that no file backs.
    #[track_caller]
    pub(crate) fn grow_memory(&self, len: usize) -> Result<(), PmError> {
        if len > self.capacity {
            return Err(PmError::Full { wanted: len as u64, capacity: self.capacity as u64 });
        }
        if let Backing::Lent(space) = &self.backing {
            space.grow(len as u64)?;
        }
        self.set_len(len.max(self.len()));
        Ok(())
    }

    /// Records that memory up to `used` is handed out; a thread prepares the pages that are used next.
    #[inline]
    pub(crate) fn reached(&self, used: usize) {
        if let Backing::Map { .. } = self.backing {
            // SAFETY: the usable bytes are mapped until `drop`, which stops the thread first.
            unsafe { self.ahead.reached(used, self.base, self.len()) }
        }
    }

    /// Maps the pages of `len` bytes from `offset` on at once, for reading; bytes out of bounds are ignored.
    /// A hint.
    pub(crate) fn make_present(&self, offset: usize, len: usize) {
        let page = sys::page();
        let start = offset.min(self.len()) & !(page - 1);
        let end = offset.saturating_add(len).min(self.len());
        if matches!(self.backing, Backing::Map { .. }) && start < end {
            // SAFETY: in bounds.
            let first = unsafe { self.base.add(start) };
            // SAFETY: the usable bytes are mapped.
            unsafe { sys::populate_read(first, end - start) }
        }
    }

    /// Gives the memory of `len` bytes from `offset` on back to the system, in whole pages of anonymous
    /// memory: they read as zeros from then on. Returns whether it did; if not, some of them may.
    pub(crate) fn release(&self, offset: usize, len: usize) -> bool {
        let page = sys::page();
        let whole = offset.is_multiple_of(page) && len.is_multiple_of(page);
        let within = offset.checked_add(len).is_some_and(|end| end <= self.len());
        if self.mapping.is_some()
            || !matches!(self.backing, Backing::Map { .. })
            || !(whole && within)
        {
            return false;
        }
        // SAFETY: in bounds, checked above.
        let start = unsafe { self.base.add(offset) };
        // SAFETY: mapped, anonymous and private: only `anonymous` makes such a mapping without a file.
        unsafe { sys::release(start, len) }
    }

    /// Returns the end of the bytes that were touched ahead of their use, or are being touched.
    pub(crate) fn touched_ahead(&self) -> usize {
        self.ahead.end()
    }

    /// Runs `body` while no thread touches pages ahead of their use.
    pub(crate) fn while_no_page_is_touched<R>(&self, body: impl FnOnce() -> R) -> R {
        self.ahead.quiet(body)
    }

    /// Waits until the touching in progress is complete.
    #[cfg(test)]
    pub(crate) fn wait_for_touching(&self) {
        self.ahead.wait();
    }

    /// Returns the word just before the base, which holds the length.
    #[inline(always)]
    fn bound(&self) -> &AtomicU64 {
        // SAFETY: every constructor leaves a page of memory before the base, in the same allocation.
        let word = unsafe { self.base.sub(8) };
        // SAFETY: aligned (the base is, to a page), owned, and only ever used as this atomic.
        unsafe { word.cast::<AtomicU64>().as_ref() }
    }

    /// Returns the start address.
    #[inline(always)]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the `T` at `offset`, if it is in bounds and aligned; offset 0 is allowed.
    pub(crate) fn get<T: PmType>(&self, offset: u64) -> Option<&T> {
        let fits = offset.checked_add(size_of::<T>() as u64).is_some_and(|end| {
            end <= self.len() as u64 && offset.is_multiple_of(align_of::<T>() as u64)
        });
        // SAFETY: in bounds and aligned, checked above.
        fits.then(|| unsafe { self.at::<T>(offset as usize) })
    }

    /// Returns the `T` at `offset`, if it is in bounds, aligned and not null.
    ///
    /// Two branches, both predictable: one tests bits that an aligned offset of a region never has, and that
    /// null minus the alignment has; the other compares with the length.
    #[inline(always)]
    pub(crate) fn follow<T: PmType>(&self, offset: u64) -> Option<&T> {
        const { assert!(size_of::<T>() < 1 << 40) };
        const { assert!(align_of::<T>() <= PAGE, "stronger alignment than a region's") };
        let (size, align) = (size_of::<T>() as u64, align_of::<T>() as u64);
        let before = offset.wrapping_sub(align);
        if before & (FAR | (align - 1)) != 0 {
            return None;
        }
        // Loaded before the length, whose Acquire makes the compiler load everything again.
        let base = self.base;
        // `before` is far from `u64::MAX`: no overflow.
        if before + (align + size) > self.len() as u64 {
            return None;
        }
        const { T::CHECKED };
        // SAFETY: in bounds, checked above.
        let target = unsafe { base.add(offset as usize) }.cast::<T>();
        // SAFETY: in bounds, checked above; aligned, as offset and base are; any bytes are a valid
        // `PmType`; the memory lives as long as `self` and is never borrowed mutably.
        Some(unsafe { target.as_ref() })
    }

    /// Returns `count` words at `offset`, if they are in bounds and aligned; offset 0 is allowed.
    #[inline(always)]
    pub(crate) fn words(&self, offset: u64, count: usize) -> Option<&[PmU64]> {
        if (offset | count as u64) & FAR != 0 || !offset.is_multiple_of(8) {
            return None;
        }
        let base = self.base;
        // Neither summand is near an overflow.
        if offset + 8 * count as u64 > self.len() as u64 {
            return None;
        }
        // SAFETY: in bounds, checked above.
        let start = unsafe { base.add(offset as usize) }.cast::<PmU64>();
        // SAFETY: `count` words from `start` are in bounds and aligned; any bytes are valid words.
        Some(unsafe { core::slice::from_raw_parts(start.as_ptr(), count) })
    }

    /// Returns the `T` at `offset`.
    ///
    /// # Safety
    /// `offset + size_of::<T>()` is within the usable bytes and `offset` is a multiple of `T`'s
    /// alignment. (That the base is one is checked here.)
    #[inline(always)]
    pub(crate) unsafe fn at<T: PmType>(&self, offset: usize) -> &T {
        const { T::CHECKED };
        const { assert!(align_of::<T>() <= PAGE, "stronger alignment than a region's") };
        debug_assert!(
            offset + size_of::<T>() <= self.capacity && offset.is_multiple_of(align_of::<T>())
        );
        // SAFETY: in bounds by the caller's promise.
        let pointer = unsafe { self.base.add(offset) };
        // SAFETY: in bounds and aligned by the caller's promise; any bytes are a valid `PmType`;
        // the memory lives as long as `self` and is never borrowed mutably.
        unsafe { pointer.cast::<T>().as_ref() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.ahead.stop();
        if let Some(mapping) = &self.mapping {
            mapping.end();
        }
        match &self.backing {
            Backing::Heap => {
                // SAFETY: the allocation starts a page before the base.
                let start = unsafe { self.base.sub(PAGE) };
                // SAFETY: allocated by `heap` with this layout.
                unsafe { dealloc(start.as_ptr(), Self::heap_layout(self.capacity)) }
            }
            Backing::Lent(_) => {}
            Backing::Map { start, len } => {
                // SAFETY: this region owns so much of the mapping, and nothing borrows it now.
                let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), len.load(Relaxed)) };
            }
        }
    }
}

/// Calls `make` with `wanted` bytes of address space, then with half of that, and so on until the system has
/// enough, but with at least `least`.
fn most_of<T, E>(
    wanted: usize,
    least: usize,
    make: impl Fn(usize) -> Result<T, E>,
) -> Result<T, E> {
    let mut bytes = wanted.max(least);
    loop {
        match make(bytes) {
            Err(_) if bytes / 2 >= least.max(PAGE) => bytes /= 2,
            other => return other,
        }
    }
}

pub(crate) fn os(what: &'static str, error: Errno) -> PmError {
    PmError::Os { what, source_text: std::io::Error::from(error).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::PmU64;

    #[repr(C, align(64))]
    struct Line([PmU64; 8]);
    // SAFETY: nothing but words.
    #[diagnostic::do_not_recommend]
    unsafe impl PmType for Line {
        const WORDS: usize = 8;
    }

    /// Offsets worth testing: small ones, ends, and those that overflow.
    fn offsets(len: u64) -> impl Iterator<Item = u64> {
        let edges = [0, len, 1 << 31, 1 << 32, 1 << 56, 1 << 63, u64::MAX, u64::MAX - 63];
        edges.into_iter().flat_map(|edge| (-130..130i64).map(move |d| edge.wrapping_add_signed(d)))
    }

    #[test]
    fn following_an_offset_checks_null_bounds_and_alignment() {
        let region = Region::heap(3 * PAGE);
        for len in [3 * PAGE, PAGE, 64, 8, 0] {
            region.set_len(len);
            let len = len as u64;
            for offset in offsets(len) {
                let fits = |size: u64| offset.checked_add(size).is_some_and(|end| end <= len);
                let line = offset % 64 == 0 && fits(64);
                assert_eq!(region.follow::<Line>(offset).is_some(), line && offset != 0);
                assert_eq!(region.get::<Line>(offset).is_some(), line, "{offset:#x} of {len}");
                let found = region.follow::<[PmU64; 3]>(offset);
                assert_eq!(found.is_some(), offset != 0 && offset % 8 == 0 && fits(24));
                if let Some(found) = found {
                    let at = core::ptr::from_ref(found).addr() - region.base().addr().get();
                    assert_eq!(at as u64, offset);
                }
                for count in [0, 1, 7, usize::MAX, usize::MAX / 8, 1 << 60] {
                    let fits = (count as u64).checked_mul(8).is_some_and(fits);
                    let words = region.words(offset, count);
                    // A far offset is refused even for zero words.
                    let far = offset >> 56 != 0;
                    assert_eq!(words.is_some(), offset % 8 == 0 && fits && !far);
                    assert!(words.is_none_or(|words| words.len() == count));
                }
            }
        }
    }
}
