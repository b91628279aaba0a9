//! Cutting a region off its file, for good: later stores stay in this process.
//!
//! The kernel atomically replaces the shared mapping by a private one of the same pages at the same
//! addresses: a concurrent store happens before it or after it. The private pages read as the file's until
//! they are stored to.

use core::array::from_fn;
#[cfg(test)]
use core::iter::once;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::cell::PmU64;
use crate::line::LINE;
use crate::process::Process;
use crate::sys;

use super::{MapKind, Region};

/// The mapping of a region, for a thread that may have to cut it off.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    /// The end of the bytes mapped from the file; 0 when the region is gone. Stored under the lock.
    end: AtomicUsize,
    /// Held while the mapping changes.
    cut: Mutex<bool>,
    /// The process that made it: in a forked child a thread of the parent may hold the lock for ever.
    process: Process,
}

// SAFETY: an address; the memory at it is only touched by atomic accesses, and under the lock.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn new(base: NonNull<u8>) -> Arc<Self> {
        let process = Process::current();
        Arc::new(Self { base, end: AtomicUsize::new(0), cut: Mutex::default(), process })
    }

    /// Maps more, up to `end`, unless the region is cut off.
    pub(super) fn extend(
        &self,
        end: usize,
        map: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let cut = self.cut.lock();
        if *cut {
            return Err(Errno::IO);
        }
        map()?;
        self.end.store(end, Release);
        Ok(())
    }

    /// Ends the mapping: the region is dropped.
    pub(super) fn end(&self) {
        // A forked child has no thread that could cut it off.
        let _cut = self.process.is_current().then(|| self.cut.lock());
        self.end.store(0, Release);
    }

    /// Prevents the mapping from changing as long as the result lives.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Sized {
        self.cut.lock()
    }

    /// Returns the mapped word at an address.
    pub(crate) fn word_at(&self, address: usize) -> Option<&PmU64> {
        let offset = address.checked_sub(self.base.addr().get())?;
        let mapped = offset.checked_add(8)? <= self.end.load(Acquire);
        if !mapped || !offset.is_multiple_of(8) {
            return None;
        }
        // SAFETY: in bounds, checked above.
        let word = unsafe { self.base.add(offset) }.cast::<PmU64>();
        // SAFETY: in bounds and aligned, checked above; any bytes are a valid word. The medium that
        // asks and the region belong to one pool, which drops the medium first.
        Some(unsafe { word.as_ref() })
    }

    /// Returns the mapped word at an offset.
    pub(crate) fn word(&self, offset: u64) -> Option<&PmU64> {
        self.word_at(self.base.addr().get().checked_add(usize::try_from(offset).ok()?)?)
    }

    /// Returns the line at this address: see [`lines_at`](Self::lines_at).
    #[cfg(test)]
    pub(crate) fn line_at(&self, address: usize) -> Option<(u64, [u64; 8])> {
        let mut line = None;
        self.lines_at(once(address), |offset, words| line = Some((offset, words)));
        line
    }

    /// Calls `take` with each of the lines at these addresses, as it was at one moment, and its offset in the
    /// file. Unmapped addresses are skipped. A line is read until two readings are the same. Only words that
    /// all returned to their former values in between, each just in time, could make a torn line look whole.
    pub(crate) fn lines_at(
        &self,
        addresses: impl Iterator<Item = usize>,
        mut take: impl FnMut(u64, [u64; 8]),
    ) {
        let mapped = self.end.load(Acquire);
        for address in addresses {
            let Some(offset) = address.checked_sub(self.base.addr().get()) else { continue };
            let within = offset.checked_add(LINE).is_some_and(|end| end <= mapped);
            if !within || !offset.is_multiple_of(LINE) {
                continue;
            }
            // SAFETY: in bounds, checked above.
            let line = unsafe { self.base.add(offset) }.cast::<[PmU64; 8]>();
            // SAFETY: in bounds and aligned, checked above; any bytes are valid words. Those that ask are
            // the pool's medium and its threads, which end before the region goes.
            let line = unsafe { line.as_ref() };
            let mut words: [u64; 8] = from_fn(|i| line[i].atomic().load(Acquire));
            loop {
                let mut changed = 0;
                for (word, cell) in words.iter_mut().zip(line) {
                    let again = cell.atomic().load(Acquire);
                    changed |= again ^ *word;
                    *word = again;
                }
                if changed == 0 {
                    break; // two readings are the same
                }
            }
            take(offset as u64, words);
        }
    }

    /// Reads the lines of `len` bytes from this offset on: see [`lines_at`](Self::lines_at).
    pub(crate) fn lines_from(&self, offset: u64, len: usize, take: impl FnMut(u64, [u64; 8])) {
        let start = self.base.addr().get() + offset as usize;
        self.lines_at((start..start + len).step_by(LINE), take);
    }

    /// Begins to load the line at this offset into the cache.
    pub(crate) fn prefetch(&self, offset: u64) {
        crate::arch::prefetch_read(self.base.as_ptr().wrapping_add(offset as usize).cast());
    }

    /// Returns the bytes that are mapped.
    pub(crate) fn len(&self) -> u64 {
        self.end.load(Acquire) as u64
    }

    /// Copies the words at these addresses, or all words if it is `None`, to their offsets in the file.
    pub(crate) fn copy(&self, addresses: Option<&Range<usize>>, image: &mut Vec<u64>) {
        let (base, end) = (self.base.addr().get(), self.end.load(Acquire));
        image.resize(end / 8, 0);
        let all = base..base + end;
        for address in addresses.unwrap_or(&all).clone().step_by(8) {
            if let Some(word) = self.word_at(address) {
                image[(address - base) / 8] = word.atomic().load(Relaxed);
            }
        }
    }

    /// Returns the file's offset of an address.
    pub(crate) fn offset_of(&self, address: usize) -> u64 {
        address.wrapping_sub(self.base.addr().get()) as u64
    }

    /// Cuts the mapping off its file, whose descriptor this is: later stores do not reach it.
    ///
    /// # Errors
    /// The kernel has no memory for it: the mapping is unchanged.
    pub(crate) fn cut(&self, file: &OwnedFd) -> Result<(), Errno> {
        use rustix::fd::AsFd;
        let mut cut = self.cut.lock();
        let end = self.end.load(Relaxed); // stored under the lock
        if *cut || end == 0 {
            return Ok(());
        }
        // A failed fixed mapping may leave a hole: ask first.
        Region::probe(file.as_fd(), end, MapKind::Private, true)?;
        // SAFETY: the range is mapped from this file by the region, at the same offsets, and stays
        // so until `end`, which waits for the lock; every store to it is atomic.
        unsafe {
            rustix::mm::mmap(
                self.base.as_ptr().cast(),
                end,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED | sys::NO_RESERVE,
                file,
                0,
            )
        }?;
        *cut = true;
        Ok(())
    }
}
