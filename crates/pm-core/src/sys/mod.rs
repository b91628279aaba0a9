//! The differences between systems, in one place: Linux in full, macOS and FreeBSD with files only.
//!
//! Systems other than Linux have no `MAP_SYNC`, no device DAX and no unnamed files; no page is touched ahead,
//! and a fork is not detected (the parent's pool must not be used in the child). After `fsync` and `msync`
//! the system's own call flushes the drive's cache.

use std::path::Path;

use rustix::io::Errno;

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod system;
#[cfg(any(target_vendor = "apple", target_os = "freebsd"))]
#[path = "unix.rs"]
mod system;
#[cfg(not(any(target_os = "linux", target_vendor = "apple", target_os = "freebsd")))]
compile_error!(
    "pmindex maps files with the calls of Linux, macOS and FreeBSD, and knows no others"
);

pub(crate) use system::*;

/// A file system that keeps its files in DRAM alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InMemory {
    pub(crate) name: &'static str,
    /// The reason why it provides no more durability, as a sentence.
    pub(crate) why: &'static str,
}

pub(crate) const TMPFS: InMemory =
    InMemory { name: "tmpfs", why: "tmpfs keeps files in DRAM, which an OS crash loses" };

/// Renames, never onto an existing file. A crash in between leaves both names.
fn link_and_unlink(from: &Path, to: &Path) -> Result<(), Errno> {
    rustix::fs::link(from, to)?;
    rustix::fs::unlink(from)
}

/// Returns the bytes of the system's page, the unit of mappings.
pub(crate) fn page() -> usize {
    rustix::param::page_size()
}
