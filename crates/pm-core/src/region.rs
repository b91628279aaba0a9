//! A region: a fixed range of addresses that backs a pool or an arena.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags};

use crate::error::PmError;
use crate::media::TracedInner;

/// Regions up to this size come from the heap: no system call when a test makes many.
const HEAP_MAX: usize = 1 << 20;
/// Alignment of every region.
const ALIGN: usize = 4096;

/// Owned, zero-initialised or file-backed memory at a fixed address.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
    backing: Backing,
}

/// Who gives the memory back.
#[derive(Debug)]
enum Backing {
    /// This region, to the heap.
    Heap,
    /// This region, to the system.
    Mapping,
    /// Nobody here: the memory of a traced space, which lives at least as long.
    #[allow(dead_code, reason = "held to keep the memory alive")]
    Lent(Arc<TracedInner>),
}

// SAFETY: a region is plain memory that only atomic accesses touch.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Anonymous memory; pages are used when touched.
    pub(crate) fn anonymous(len: usize) -> Result<Self, PmError> {
        let len = len.max(ALIGN).next_multiple_of(ALIGN);
        if len <= HEAP_MAX {
            return Ok(Self::heap(len));
        }
        // SAFETY: a fresh anonymous mapping at an address the kernel chooses.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                core::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        Self::from_mmap("mapping anonymous memory", mapped, len)
    }

    fn from_mmap(
        what: &'static str,
        mapped: rustix::io::Result<*mut core::ffi::c_void>,
        len: usize,
    ) -> Result<Self, PmError> {
        match mapped.map(|p| NonNull::new(p.cast::<u8>())) {
            Ok(Some(base)) => Ok(Self { base, len, backing: Backing::Mapping }),
            Ok(None) => Err(PmError::Os { what, source_text: "null mapping".into() }),
            Err(e) => Err(PmError::Os { what, source_text: e.to_string() }),
        }
    }

    /// Zeroed heap memory.
    pub(crate) fn heap(len: usize) -> Self {
        let layout = Self::heap_layout(len);
        // SAFETY: the layout's size is not zero (`anonymous` rounds up to a page).
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        Self { base, len, backing: Backing::Heap }
    }

    /// The memory of a traced space, kept alive by this region.
    pub(crate) fn lent(space: &Arc<TracedInner>) -> Self {
        let memory = space.memory();
        Self { base: memory.base, len: memory.len, backing: Backing::Lent(Arc::clone(space)) }
    }

    fn heap_layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGN).expect("region size fits isize")
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The start address.
    #[inline(always)]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The `T` at `offset`.
    ///
    /// # Safety
    /// `offset + size_of::<T>()` is within the region and `offset` is a multiple of `T`'s
    /// alignment.
    #[inline(always)]
    pub(crate) unsafe fn at<T: crate::cell::PmType>(&self, offset: usize) -> &T {
        debug_assert!(
            offset + size_of::<T>() <= self.len && offset.is_multiple_of(align_of::<T>())
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
        match self.backing {
            // SAFETY: allocated in `heap` with this layout.
            Backing::Heap => unsafe {
                dealloc(self.base.as_ptr(), Self::heap_layout(self.len));
            },
            Backing::Mapping => {
                // SAFETY: this region owns the mapping, and nothing borrows it any more.
                let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
            }
            Backing::Lent(_) => {}
        }
    }
}
