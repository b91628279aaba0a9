//! Following pointers into a pool: two predictable branches, never undefined behaviour.

use crate::arch;
use crate::cell::{PmType, PmU64};
use crate::error::PmError;
use crate::media::Medium;
use crate::ptr::PPtr;

use super::{Pool, superblock};

impl<M: Medium> Pool<M> {
    /// Returns the medium through which every cell of this pool is read and written.
    #[inline(always)]
    pub fn pm(&self) -> &M {
        &self.medium
    }

    /// Returns the pool's present size in bytes.
    #[inline(always)]
    pub fn len(&self) -> u64 {
        self.region.len() as u64
    }

    /// Returns `true` if the pool has no bytes: only in a forked child.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records that the allocator has handed out memory up to `end`.
    pub(crate) fn reached(&self, end: u64) {
        self.region.reached(end as usize);
    }

    /// Follows a pointer.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if it is null, out of bounds or misaligned; [`PmError::Forked`].
    #[inline(always)]
    pub fn get<T: PmType>(&self, ptr: PPtr<T>) -> Result<&T, PmError> {
        let offset = ptr.offset();
        match self.region.follow::<T>(offset) {
            Some(target) => Ok(target),
            None => self.bad_pointer(offset),
        }
    }

    /// Prefetches the first line of `ptr`'s target. A hint, no access: any pointer is allowed.
    #[inline(always)]
    pub fn prefetch<T>(&self, ptr: PPtr<T>) {
        arch::prefetch_read(self.region.base().as_ptr().wrapping_add(ptr.offset() as usize));
    }

    /// Maps the pages of `bytes` bytes from `offset` on at once, for reading: otherwise each page fault costs
    /// a microsecond. A hint, no access: any bytes are allowed.
    pub fn prefetch_pages(&self, offset: u64, bytes: u64) {
        if let (Ok(offset), Ok(bytes)) = (usize::try_from(offset), usize::try_from(bytes)) {
            self.region.make_present(offset, bytes);
        }
    }

    /// Returns `count` words at `offset`.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if they are null, out of bounds or misaligned; [`PmError::Forked`].
    #[inline(always)]
    pub fn words(&self, offset: u64, count: usize) -> Result<&[PmU64], PmError> {
        match self.region.words(offset, count) {
            Some(words) if offset != 0 => Ok(words),
            _ => self.bad_pointer(offset),
        }
    }

    /// Copies the pool's bytes from `offset` on, for backups. Words are read one by one, each whole; writes
    /// that happen meanwhile are copied in part or not at all. The superblock in the copy says that it needs
    /// no journal, if one call copies both of its copies: the first 8192 bytes.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the bytes are out of bounds or not whole words; [`PmError::Forked`].
    pub fn read_image(&self, offset: u64, into: &mut [u8]) -> Result<(), PmError> {
        let words = into.len() / size_of::<PmU64>();
        match self.region.words(offset, words) {
            Some(source) if into.len().is_multiple_of(size_of::<PmU64>()) => {
                self.medium.read_bytes(source, into);
                if self.journal().is_some() {
                    superblock::forget_journal(into, offset);
                }
                Ok(())
            }
            _ => self.bad_pointer(offset),
        }
    }

    /// Returns the pointer to an object in this pool.
    ///
    /// # Panics
    /// If `target` is not in this pool.
    #[inline(always)]
    pub fn pptr<T: PmType>(&self, target: &T) -> PPtr<T> {
        let offset =
            core::ptr::from_ref(target).addr().wrapping_sub(self.region.base().addr().get());
        assert!(offset < self.region.capacity(), "not in this pool");
        PPtr::new(offset as u64)
    }

    /// Inlined, so that the compiler sees that it does not return to the fast path.
    #[inline(always)]
    fn bad_pointer<T>(&self, offset: u64) -> Result<T, PmError> {
        crate::arch::cold_path();
        if self.is_forked() {
            return Err(PmError::Forked);
        }
        Err(PmError::Corrupt { what: "a pointer to no block", offset })
    }
}
