//! Pools: a mapped file (or anonymous memory) with an allocator and a directory of named indexes.

mod directory;

use std::path::Path;

use crate::alloc::Heap;
use crate::arch;
use crate::cell::{PmType, PmU64};
use crate::error::PmError;
use crate::media::{Counting, Mapped, Medium, Traced};
use crate::mode::Durability;
use crate::ptr::PPtr;
use crate::region::Region;

pub use directory::{IndexEntry, IndexId};

/// A pool of persistent memory.
///
/// Indexes hold it as `Arc<Pool<M>>`. All access to its cells goes through [`pm`](Self::pm).
#[derive(Debug)]
pub struct Pool<M: Medium = Mapped> {
    region: Region,
    medium: M,
    pub(crate) heap: Heap,
    pub(crate) directory: directory::Directory,
}

impl Pool<Mapped> {
    /// A pool in anonymous memory; nothing survives.
    pub fn volatile(len: usize) -> Result<Self, PmError> {
        Self::with_medium(len, Mapped::new(Durability::Volatile, arch::best_flush()))
    }

    /// A pool in anonymous memory that executes every flush and fence: emulated PM.
    pub fn emulated(len: usize) -> Result<Self, PmError> {
        Self::with_medium(len, Mapped::new(Durability::Flush, arch::best_flush()))
    }

    #[doc(hidden)]
    pub fn create(_path: &Path) {}
}

impl Pool<Counting<Mapped>> {
    /// As [`Pool::emulated`], and every store, flush and fence is counted.
    pub fn counting(len: usize) -> Result<Self, PmError> {
        let medium = Mapped::new(Durability::Flush, arch::best_flush());
        Self::with_medium(len, Counting::new(medium))
    }
}

impl Pool<Traced> {
    /// A pool over a traced space, for the crash simulator.
    #[must_use]
    pub fn traced(space: &crate::trace::Space) -> Self {
        let heap = Heap::new(space.file_len());
        Self {
            region: space.region(),
            medium: space.medium(),
            heap,
            directory: directory::Directory::default(),
        }
    }
}

impl<M: Medium> Pool<M> {
    fn with_medium(len: usize, medium: M) -> Result<Self, PmError> {
        let region = Region::anonymous(len)?;
        let heap = Heap::new(len as u64);
        Ok(Self { region, medium, heap, directory: directory::Directory::default() })
    }

    /// The medium through which every cell of this pool is read and written.
    #[inline(always)]
    pub fn pm(&self) -> &M {
        &self.medium
    }

    /// The pool's present size in bytes.
    #[inline(always)]
    pub fn len(&self) -> u64 {
        self.region.len() as u64
    }

    /// Whether the pool has no bytes: never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Follows a pointer.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if it is null, out of bounds or misaligned.
    #[inline(always)]
    pub fn get<T: PmType>(&self, ptr: PPtr<T>) -> Result<&T, PmError> {
        let offset = ptr.offset();
        let fits = offset != 0
            && offset.checked_add(size_of::<T>() as u64).is_some_and(|end| end <= self.len());
        if !fits || !offset.is_multiple_of(align_of::<T>() as u64) {
            return Err(bad_pointer(offset));
        }
        // SAFETY: in bounds and aligned, checked above.
        Ok(unsafe { self.region.at::<T>(offset as usize) })
    }

    /// Fetches the first line of what `ptr` points to. A hint, no access: any pointer is allowed.
    #[inline(always)]
    pub fn prefetch<T>(&self, ptr: PPtr<T>) {
        arch::prefetch_read(self.region.base().as_ptr().wrapping_add(ptr.offset() as usize));
    }

    /// `count` words at `offset`.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if they are null, out of bounds or misaligned.
    #[inline(always)]
    pub fn words(&self, offset: u64, count: usize) -> Result<&[PmU64], PmError> {
        let end = (count as u64).checked_mul(8).and_then(|bytes| bytes.checked_add(offset));
        if offset == 0 || end.is_none_or(|end| end > self.len()) || !offset.is_multiple_of(8) {
            return Err(bad_pointer(offset));
        }
        // SAFETY: in bounds, checked above.
        let start = unsafe { self.region.base().add(offset as usize) };
        // SAFETY: `count` words from `start` are in bounds and aligned; any bytes are valid words.
        Ok(unsafe { core::slice::from_raw_parts(start.as_ptr().cast::<PmU64>(), count) })
    }

    /// The pointer to something in this pool.
    ///
    /// # Panics
    /// If `target` is not in this pool.
    #[inline(always)]
    pub fn pptr<T: PmType>(&self, target: &T) -> PPtr<T> {
        let offset =
            core::ptr::from_ref(target).addr().wrapping_sub(self.region.base().addr().get());
        assert!(offset < self.region.len(), "not in this pool");
        PPtr::new(offset as u64)
    }

    /// Grows the pool by at least `bytes` bytes of zones, if it may grow: the allocator calls this
    /// when no zone has room, and is told of the new end by `extend_heap` before it returns `true`.
    #[allow(dead_code, clippy::unnecessary_wraps, clippy::unused_self, reason = "no growth yet")]
    pub(crate) fn grow_for(&self, bytes: u64) -> Result<bool, PmError> {
        let _ = bytes;
        Ok(false)
    }
}

#[cold]
fn bad_pointer(offset: u64) -> PmError {
    PmError::Corrupt { what: "a pointer that leads nowhere", offset }
}
