//! Reserving addresses and mapping files into them.

use core::ptr::NonNull;

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::sys;

use super::{Ahead, Backing, Mapping, PAGE, Region};

/// Alignment of a mapped file: huge pages fit.
const HUGE: usize = 2 << 20;

/// How a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// Shared, and the kernel vouches that a flushed line is durable (`MAP_SYNC`).
    Sync,
    /// Shared.
    Shared,
    /// Changed pages are copied; the file is never written.
    Private,
}

impl MapKind {
    fn flags(self) -> Result<MapFlags, Errno> {
        match self {
            Self::Sync => sys::MAP_SYNC.ok_or(Errno::OPNOTSUPP),
            Self::Shared => Ok(MapFlags::SHARED),
            Self::Private => Ok(MapFlags::PRIVATE | sys::NO_RESERVE),
        }
    }
}

impl Region {
    /// Asks for huge pages, but for the first 2 MiB: what is small stays small, what is large takes
    /// fewer translations. A hint.
    pub(super) fn advise_huge(&self) {
        let Some(len) = self.capacity.checked_sub(HUGE).filter(|&len| len >= HUGE) else { return };
        // SAFETY: `HUGE` is less than the capacity, which is mapped.
        let target = unsafe { self.base.add(HUGE) };
        // SAFETY: the range is mapped by this region.
        unsafe { sys::advise_huge(target, len) }
    }

    /// Reserves `capacity` bytes of addresses (less if the system refuses, but at least `least`),
    /// none of them usable yet, at a multiple of 2 MiB. In a forked child the region has length 0.
    pub(crate) fn reserve(capacity: usize, least: usize) -> Result<Self, Errno> {
        let page = sys::page().max(PAGE);
        let mut capacity = capacity.next_multiple_of(page);
        loop {
            match Self::reserve_exactly(capacity, page) {
                Err(_) if capacity / 2 >= least => capacity = (capacity / 2).next_multiple_of(page),
                other => return other,
            }
        }
    }

    fn reserve_exactly(capacity: usize, page: usize) -> Result<Self, Errno> {
        let len = capacity.checked_add(page + HUGE).ok_or(Errno::NOMEM)?;
        // SAFETY: a fresh anonymous mapping at an address the kernel chooses.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                core::ptr::null_mut(),
                len,
                ProtFlags::empty(),
                MapFlags::PRIVATE | sys::NO_RESERVE,
            )
        }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let lead = (start.addr().get() + page).next_multiple_of(HUGE) - start.addr().get();
        // SAFETY: `lead` is at most `page + HUGE`, within the mapping.
        let base = unsafe { start.add(lead) };
        let backing = Backing::Map { start, len };
        let mapping = Some(Mapping::new(base));
        let region = Self { base, capacity, backing, ahead: Ahead::of_mapping(), mapping };
        // SAFETY: `lead` is at least a page.
        let prefix = unsafe { base.sub(page) };
        // SAFETY: the page belongs to this mapping, and nothing uses it yet.
        unsafe {
            rustix::mm::mprotect(
                prefix.as_ptr().cast(),
                page,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        }?;
        // SAFETY: as above; the page is anonymous and private, as this advice demands.
        unsafe { sys::wipe_on_fork(prefix, page) }
        Ok(region)
    }

    /// Lets go of the pages of a shared mapping, which the kernel finds again in the file.
    pub(crate) fn let_go(&self, kind: MapKind) {
        if kind == MapKind::Shared && self.mapping.is_some() {
            // SAFETY: the usable bytes are mapped, in this way, from a file.
            unsafe { sys::let_go(self.base, self.len()) }
        }
    }

    /// Whether `len` bytes of the file can be mapped in this way.
    pub(crate) fn probe(fd: BorrowedFd<'_>, len: usize, kind: MapKind) -> Result<(), Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address the kernel chooses.
        let mapped = unsafe {
            rustix::mm::mmap(core::ptr::null_mut(), len, protection, kind.flags()?, fd, 0)
        }?;
        // SAFETY: just mapped, and nothing uses it.
        unsafe { rustix::mm::munmap(mapped, len) }
    }

    /// Maps bytes `len()..end` of a file to the same offsets of the region and makes them usable.
    /// `end` is a multiple of the page size, within the file and the region.
    ///
    /// # Panics
    /// If the region is smaller.
    pub(crate) fn map_file(
        &self,
        fd: BorrowedFd<'_>,
        end: usize,
        kind: MapKind,
        huge: bool,
    ) -> Result<(), Errno> {
        let from = self.len();
        assert!(from <= end && end <= self.capacity, "mapping within the region");
        // What follows on the last page that was mapped is there once the file is as long.
        let from = from.next_multiple_of(sys::page());
        if from >= end {
            self.set_len(end);
            return Ok(());
        }
        // SAFETY: `from` is within the region.
        let target = unsafe { self.base.add(from) };
        let map = || {
            // SAFETY: the target is a part of this region's own reservation that is not usable yet,
            // so nothing is borrowed from it and replacing it disturbs nobody.
            unsafe {
                rustix::mm::mmap(
                    target.as_ptr().cast(),
                    end - from,
                    ProtFlags::READ | ProtFlags::WRITE,
                    kind.flags()? | MapFlags::FIXED,
                    fd,
                    from as u64,
                )
            }
            .map(|_| ())
        };
        match &self.mapping {
            Some(mapping) => mapping.extend(end, map),
            None => map(),
        }?;
        if huge {
            // SAFETY: the range was just mapped.
            unsafe { sys::advise_huge(target, end - from) }
            if kind != MapKind::Private {
                self.ahead.ask_for_huge();
            }
        }
        self.set_len(end);
        Ok(())
    }
}
