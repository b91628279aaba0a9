//! Reserving address space and mapping files into it.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::sys;

use super::huge::{self, HUGE, Mount};
use super::{Ahead, Backing, Mapping, PAGE, Region, most_of};

/// The way a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// Shared, and the kernel guarantees that a flushed line is durable (`MAP_SYNC`).
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
    /// Asks for huge pages, except for the first 2 MiB: small pools stay small, large ones need fewer address
    /// translations. A hint.
    pub(super) fn advise_huge(&self) {
        let Some(len) = self.capacity.checked_sub(HUGE).filter(|&len| len >= HUGE) else { return };
        // SAFETY: `HUGE` is less than the capacity, which is mapped.
        let target = unsafe { self.base.add(HUGE) };
        // SAFETY: the range is mapped by this region.
        unsafe { sys::advise_huge(target, len) }
    }

    /// Reserves `capacity` bytes of address space (less if the system refuses, but at least `least`), none of
    /// them usable yet, at a multiple of 2 MiB, so that huge pages fit. In a forked child the region has
    /// length 0.
    pub(crate) fn reserve(capacity: usize, least: usize) -> Result<Self, Errno> {
        most_of(capacity, least, Self::reserve_exactly)
    }

    fn reserve_exactly(capacity: usize) -> Result<Self, Errno> {
        let page = sys::page().max(PAGE);
        let capacity = capacity.checked_next_multiple_of(page).ok_or(Errno::NOMEM)?;
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
        let backing = Backing::Map { start, len: len.into() };
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

    /// Drops the pages of a shared mapping, which the kernel finds again in the file.
    pub(crate) fn let_go(&self, kind: MapKind) {
        if kind == MapKind::Shared && self.mapping.is_some() {
            // SAFETY: the usable bytes are mapped, in this way, from a file.
            unsafe { sys::let_go(self.base, self.len()) }
        }
    }

    /// Whether `len` bytes of the file can be mapped in this way, for reading or also for writing.
    pub(crate) fn probe(
        fd: BorrowedFd<'_>,
        len: usize,
        kind: MapKind,
        write: bool,
    ) -> Result<(), Errno> {
        let access = if write { ProtFlags::WRITE } else { ProtFlags::empty() };
        let protection = ProtFlags::READ | access;
        // SAFETY: a fresh mapping at an address the kernel chooses.
        let mapped = unsafe {
            rustix::mm::mmap(core::ptr::null_mut(), len, protection, kind.flags()?, fd, 0)
        }?;
        // SAFETY: just mapped, and nothing uses it.
        unsafe { rustix::mm::munmap(mapped, len) }
    }

    /// Returns `true` if the addresses up to `end` certainly belong to this region.
    fn owns(&self, end: usize) -> bool {
        match &self.backing {
            Backing::Map { start, len } => {
                end <= start.addr().get() + len.load(Relaxed) - self.base.addr().get()
            }
            Backing::Heap | Backing::Lent(_) => false,
        }
    }

    /// Repairs the reservation after a mapping of `len` bytes from `from` on failed. The kernel may have
    /// removed the reservation first, and another mapping may have the addresses by now. Reserves them again,
    /// or gives up these addresses and all behind them for good.
    fn reserve_again(&self, from: usize, len: usize) {
        // SAFETY: `from` is within the region.
        let target = unsafe { self.base.add(from) };
        let kept = sys::NO_REPLACE.is_some_and(|no_replace| {
            let flags = MapFlags::PRIVATE | sys::NO_RESERVE | no_replace;
            let protection = ProtFlags::empty();
            // SAFETY: replaces no mapping.
            let mapped = unsafe {
                rustix::mm::mmap_anonymous(target.as_ptr().cast(), len, protection, flags)
            };
            // A kernel that does not know the flag treats the address as a hint.
            mapped.is_ok_and(|mapped| mapped == target.as_ptr().cast())
        });
        if let Backing::Map { start, len } = &self.backing
            && !kept
        {
            len.store(target.addr().get() - start.addr().get(), Relaxed);
        }
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
        // The rest of the last mapped page becomes valid when the file is long enough.
        let from = from.next_multiple_of(sys::page());
        if from >= end {
            self.set_len(end);
            return Ok(());
        }
        // SAFETY: `from` is within the region.
        let target = unsafe { self.base.add(from) };
        let flags = kind.flags()? | MapFlags::FIXED;
        if !self.owns(end) {
            return Err(Errno::NOMEM);
        }
        let map = || {
            // SAFETY: the target is a part of this region's own reservation that is not usable yet,
            // so nothing is borrowed from it and replacing it affects no one.
            let mapped = unsafe {
                rustix::mm::mmap(
                    target.as_ptr().cast(),
                    end - from,
                    ProtFlags::READ | ProtFlags::WRITE,
                    flags,
                    fd,
                    from as u64,
                )
            };
            if let Err(refused) = mapped {
                self.reserve_again(from, end - from);
                return Err(refused);
            }
            Ok(())
        };
        match &self.mapping {
            Some(mapping) => mapping.extend(end, map),
            None => map(),
        }?;
        let suited = huge::suit(fd, kind);
        if !suited && kind == MapKind::Shared {
            // SAFETY: the range was just mapped.
            unsafe { sys::advise_single_pages(target, end - from) }
        }
        if suited && huge {
            // SAFETY: the range was just mapped.
            unsafe { sys::advise_huge(target, end - from) }
            self.ahead.ask_for_huge(|| Mount::of(fd, kind));
        }
        self.set_len(end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    const LEN: usize = 8 << 20;

    /// Returns the bytes of `len` from `start` that are mapped.
    fn mapped(start: usize, len: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let bound = |s: &str| usize::from_str_radix(s, 16).unwrap();
        maps.lines()
            .filter_map(|line| line.split(' ').next()?.split_once('-'))
            .map(|(from, to)| (bound(from).max(start), bound(to).min(start + len)))
            .map(|(from, to)| to.saturating_sub(from))
            .sum()
    }

    /// Makes a foreign mapping in the middle of a hole, if the place is free.
    fn stranger(at: NonNull<u8>, len: usize) -> Result<*mut u8, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: it replaces no mapping.
        let mapped =
            unsafe { rustix::mm::mmap_anonymous(at.as_ptr().cast(), len, ProtFlags::READ, flags) }?;
        Ok(mapped.cast())
    }

    /// Returns a file that the kernel refuses to map only after it has removed the old mapping.
    fn unmappable() -> std::os::unix::net::UnixDatagram {
        std::os::unix::net::UnixDatagram::unbound().unwrap()
    }

    fn file() -> rustix::fd::OwnedFd {
        let file = rustix::fs::memfd_create(c"pages", rustix::fs::MemfdFlags::empty()).unwrap();
        rustix::fs::ftruncate(&file, LEN as u64).unwrap();
        file
    }

    fn region() -> (Region, usize) {
        let region = Region::reserve(LEN, LEN).unwrap();
        let base = region.base().addr().get();
        (region, base)
    }

    #[test]
    fn a_mapping_that_fails_leaves_no_hole_in_the_reservation() {
        let (region, base) = region();
        let refused = region.map_file(unmappable().as_fd(), LEN / 2, MapKind::Shared, false);
        assert!(refused.is_err() && region.len() == 0);
        assert_eq!(mapped(base, LEN), LEN, "the reservation is whole");
        assert_eq!(stranger(region.base(), LEN / 2), Err(Errno::EXIST));
        // The reservation is still usable.
        region.map_file(file().as_fd(), LEN, MapKind::Shared, false).unwrap();
        assert_eq!(region.words(0, LEN / 8).map(<[_]>::len), Some(LEN / 8));
        drop(region);
        assert_eq!(mapped(base, LEN), 0);
    }

    #[test]
    fn a_region_leaves_alone_what_somebody_else_mapped_into_its_hole() {
        let (region, base) = region();
        region.map_file(file().as_fd(), LEN / 4, MapKind::Shared, false).unwrap();
        // What happens if another thread is faster than the region after a mapping that failed.
        // SAFETY: within the region.
        let hole = unsafe { region.base().add(LEN / 4) };
        // SAFETY: a part of the reservation that is not usable.
        unsafe { rustix::mm::munmap(hole.as_ptr().cast(), LEN / 4) }.unwrap();
        // SAFETY: within the region.
        let middle = unsafe { hole.add(LEN / 8) };
        let theirs = stranger(middle, sys::page()).unwrap();
        region.reserve_again(LEN / 4, LEN / 4);
        let mapped_now = region.map_file(file().as_fd(), LEN / 2, MapKind::Shared, false);
        assert_eq!(mapped_now, Err(Errno::NOMEM), "these addresses are lost");
        // SAFETY: theirs, readable.
        assert_eq!(unsafe { theirs.read_volatile() }, 0);
        assert!(region.words(0, LEN / 32).is_some() && region.len() == LEN / 4);
        drop(region);
        assert_eq!(mapped(base, LEN / 4), 0, "what the region had");
        assert_eq!(mapped(middle.addr().get(), sys::page()), sys::page(), "what it had not");
        // SAFETY: theirs, and behind it the rest of the reservation, which has no owner.
        unsafe { rustix::mm::munmap(hole.as_ptr().cast(), LEN - LEN / 4) }.unwrap();
    }
}
