//! Huge pages for a part of a file that is being allocated.
//!
//! `fallocate` gives a file of tmpfs small pages, unless its mount says otherwise, and making one
//! huge page of 512 of those takes the kernel a millisecond: it copies them. Where there is but one
//! page, it takes an empty huge page and clears it, in a tenth of that and a quarter of what the
//! 512 pages take. So huge pages come first (`MADV_COLLAPSE`, Linux 6.1), and `fallocate` fills in
//! what is left.

use rustix::fd::BorrowedFd;
use rustix::fs::FallocateFlags;

use crate::sys;

use super::{MapKind, Region};

/// A huge page; the alignment of a mapped file.
pub(super) const HUGE: usize = 2 << 20;

/// Gives bytes `from..to` of a file of tmpfs, which is `to` bytes long and has no pages there yet,
/// huge pages, as many as there are to be had: a hint. What is there afterwards is zero.
pub(crate) fn allocate_huge(fd: BorrowedFd<'_>, from: u64, to: u64) {
    let (Ok(first), Ok(len)) = (usize::try_from(from), usize::try_from(to)) else { return };
    let first = first.next_multiple_of(HUGE);
    if first + HUGE > len || !has_room(fd, to - from) {
        return;
    }
    // A mapping of its own: nobody else's addresses change.
    let Ok(region) = Region::reserve(len, len) else { return };
    if region.map_file(fd, len, MapKind::Shared, false).is_err() {
        return;
    }
    for at in (first..=len - HUGE).step_by(HUGE) {
        let (none, page) = (FallocateFlags::empty(), sys::page() as u64);
        if rustix::fs::fallocate(fd, none, at as u64, page).is_err() {
            return;
        }
        // SAFETY: `at` is within the region.
        let start = unsafe { region.base().add(at) };
        // SAFETY: mapped above.
        if !unsafe { sys::collapse(start, HUGE) } {
            return;
        }
    }
}

/// Whether the file system says that it has so many bytes left: huge pages would be taken one by
/// one until there are none.
fn has_room(fd: BorrowedFd<'_>, bytes: u64) -> bool {
    rustix::fs::fstatvfs(fd).is_ok_and(|of| of.f_bavail.saturating_mul(of.f_frsize) >= bytes)
}

/// How much of the mapping at an address is in huge pages, in KiB.
/// Whether this kernel gives a file huge pages on request.
#[cfg(test)]
pub(crate) fn huge_pages_are_to_be_had() -> bool {
    use rustix::fd::AsFd;

    let file = rustix::fs::memfd_create(c"pages", rustix::fs::MemfdFlags::empty()).unwrap();
    rustix::fs::ftruncate(&file, HUGE as u64).unwrap();
    let region = Region::reserve(HUGE, HUGE).unwrap();
    region.map_file(file.as_fd(), HUGE, MapKind::Shared, true).unwrap();
    // SAFETY: within the region, which is mapped.
    let populated = unsafe { sys::populate(region.base(), HUGE) };
    // SAFETY: as above.
    let granted = populated.is_ok() && unsafe { sys::collapse(region.base(), HUGE) };
    if !granted {
        eprintln!("skipped: this kernel gives files no huge pages on request");
    }
    granted
}

#[cfg(test)]
pub(crate) fn in_huge_pages(address: usize) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut here = false;
    for line in maps.lines() {
        if let Some((from, to)) = line.split(' ').next().and_then(|range| range.split_once('-')) {
            let bound = |s| usize::from_str_radix(s, 16).unwrap();
            here = (bound(from)..bound(to)).contains(&address);
        } else if let Some(size) = line.strip_prefix("ShmemPmdMapped:").filter(|_| here) {
            return size.trim_end_matches("kB").trim().parse().unwrap();
        }
    }
    0
}
