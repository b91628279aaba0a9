//! Huge pages for a pool in a file.
//!
//! # Which files
//!
//! `MADV_HUGEPAGE` is for tmpfs and DAX alone. In a file on a disk it makes the kernel keep the file in
//! pieces of 2 MiB, and write a whole piece when one word of it changes.
//!
//! `MADV_COLLAPSE` (Linux 6.1) is for tmpfs alone, and only under conditions. Asked to collapse a huge page
//! that `fallocate` gave the file and that nothing has touched, Linux 6.18 reports success, and later stores
//! to it never reach the file: the kernel clears the page when it is accessed in another way. So a page is
//! collapsed if
//!
//! * the mount gives no huge pages by itself (`huge=never` or `advise`);
//! * each small page of it is present in this mapping: it was touched;
//! * none of it is huge already;
//! * a [trial](Mount::trial) on a scratch file of the same mount, made once for each mapping, gave a huge
//!   page, and what was stored in it was in the file afterwards.
//!
//! If one of these cannot be found out, pages are not collapsed: without `/proc`, with a kernel before 6.7,
//! which does not tell which pages are huge, or with a file on no mount, such as a memfd.
//! `PoolOptions::huge_pages(false)` makes none of these calls.

use core::ptr::NonNull;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{Dev, FallocateFlags, OFlags, major, minor};

use crate::media::{Mapped, Medium};
use crate::sys;

use super::{MapKind, PAGE, Region};

/// A huge page.
pub(super) const HUGE: usize = 2 << 20;

/// Returns `true` if huge pages suit a mapping of the file.
pub(super) fn suit(fd: BorrowedFd<'_>, kind: MapKind) -> bool {
    kind == MapKind::Sync || is_tmpfs(fd)
}

fn is_tmpfs(fd: BorrowedFd<'_>) -> bool {
    sys::memory_file_system(fd).is_some_and(|found| found.name == sys::TMPFS.name)
}

/// The kind of a range's pages in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// All present, and none is part of a huge page.
    Small,
    /// Present, and huge.
    Huge,
    /// Anything else.
    Other,
}

/// The tmpfs that a file is on.
#[derive(Debug)]
pub(super) struct Mount {
    device: Dev,
    /// The file's directory.
    directory: PathBuf,
    /// Whether its pages may be collapsed, once it is known.
    verdict: OnceLock<bool>,
}

impl Mount {
    /// Returns the mount of a file mapped in this way, if its pages might be collapsed.
    pub(super) fn of(fd: BorrowedFd<'_>, kind: MapKind) -> Option<Self> {
        if kind != MapKind::Shared || !is_tmpfs(fd) {
            return None;
        }
        let device = rustix::fs::fstat(fd).ok()?.st_dev;
        // The file may have been opened through a link from elsewhere.
        let name = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
        let directory = name.parent()?.to_path_buf();
        Some(Self { device, directory, verdict: OnceLock::new() })
    }

    /// Returns `true` if collapsing its pages is not ruled out yet.
    pub(super) fn is_promising(&self) -> bool {
        self.verdict.get() != Some(&false)
    }

    /// Makes one huge page of touched small ones, if that is safe and useful; returns whether to continue
    /// with the next.
    ///
    /// # Safety
    /// The [`HUGE`] bytes from `start` on are mapped.
    pub(super) unsafe fn collapse(&self, start: NonNull<u8>) -> bool {
        if sys::look_at(start, HUGE) != Some(Found::Small) {
            return true;
        }
        if !self.verdict.get_or_init(|| self.trial().is_some()) {
            return false;
        }
        // SAFETY: the caller's promise.
        let said = unsafe { sys::collapse(start, HUGE) };
        said && sys::look_at(start, HUGE) == Some(Found::Huge)
    }

    /// Collapses a page of a scratch file on this mount, touched as a pool's is, and reads back the file's
    /// contents.
    fn trial(&self) -> Option<()> {
        if gives_huge_pages_by_itself(self.device) {
            return None;
        }
        let file =
            sys::create_unnamed(&self.directory, OFlags::RDWR | OFlags::CLOEXEC, sys::mode(0o600));
        let file = File::from(file.ok()?);
        if rustix::fs::fstat(&file).ok()?.st_dev != self.device {
            return None;
        }
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, HUGE as u64).ok()?;
        let map = || {
            let region = Region::reserve(HUGE, HUGE).ok()?;
            region.map_file(file.as_fd(), HUGE, MapKind::Shared, true).ok()?;
            Some(region)
        };
        let (region, other) = (map()?, map()?);
        let start = region.base();
        // SAFETY: mapped, as long as the region lives.
        unsafe { sys::populate(start, HUGE) }.ok()?;
        fill(&region, 1);
        let before = sys::look_at(start, HUGE)?;
        // SAFETY: as above.
        let collapsed = before == Found::Small && unsafe { sys::collapse(start, HUGE) };
        let now = sys::look_at(start, HUGE)?;
        let kept = collapsed && now == Found::Huge && holds(&region, 1) && file_holds(&file, 1);
        fill(&region, 2);
        // SAFETY: as above; what was stored is in the file, or else it is lost, as is to be seen here.
        unsafe { sys::let_go(start, HUGE) };
        let holds = holds(&other, 2) && file_holds(&file, 2) && holds(&region, 2);
        (kept && holds).then_some(())
    }
}

/// Returns `true` if the kernel gives, or may give, huge pages to files on the mount unasked.
fn gives_huge_pages_by_itself(device: Dev) -> bool {
    let read = |path| std::fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned());
    let forced = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    if forced.is_ok_and(|setting| setting.contains("[force]")) {
        return true;
    }
    let mounts = read("/proc/self/mountinfo").unwrap_or_default();
    setting_of(&mounts, device).is_none_or(|setting| !["never", "advise"].contains(&setting))
}

/// Returns the setting `huge` of the tmpfs with this device number.
fn setting_of(mounts: &str, device: Dev) -> Option<&str> {
    let number = format!("{}:{}", major(device), minor(device));
    let mut tmpfs = mounts.lines().filter_map(|mount| {
        let (mount, file_system) = mount.split_once(" - ")?;
        let same = mount.split(' ').nth(2)? == number;
        file_system.strip_prefix("tmpfs ").filter(|_| same)?.split(' ').nth(1)
    });
    let huge = |option: &'_ str| option.strip_prefix("huge=").map(str::len);
    let options = tmpfs.next()?;
    let set = options.split(',').find(|option| huge(option).is_some());
    Some(set.map_or("never", |option| &option["huge=".len()..]))
}

/// Returns a word at each page's start and end.
fn marks() -> impl Iterator<Item = usize> {
    (0..HUGE).step_by(PAGE).flat_map(|page| [page, page + PAGE - 8])
}

fn fill(region: &Region, round: u64) {
    let pm = Mapped::dram();
    for at in marks() {
        if let Some([word]) = region.words(at as u64, 1) {
            pm.store(word, at as u64 + round);
        }
    }
}

/// Returns `true` if the mapping shows the words that [`fill`] stored.
fn holds(region: &Region, round: u64) -> bool {
    let pm = Mapped::dram();
    let is_there = |at| match region.words(at as u64, 1) {
        Some([word]) => pm.load(word) == at as u64 + round,
        _ => false,
    };
    marks().all(is_there)
}

/// Returns `true` if the file has the words that [`fill`] stored.
fn file_holds(file: &File, round: u64) -> bool {
    let mut bytes = vec![0; HUGE];
    let read = file.read_exact_at(&mut bytes, 0).is_ok();
    let is_there = |at: usize| bytes[at..at + 8] == (at as u64 + round).to_le_bytes();
    read && marks().all(is_there)
}

#[cfg(test)]
mod tests;
