//! What systems do differently, in one place: Linux in full, macOS and FreeBSD with files alone.
//!
//! Elsewhere than on Linux there is no `MAP_SYNC`, no device DAX, no unnamed file; no page is touched
//! ahead, and a fork goes unnoticed (the parent's pool must not be used in the child). What `fsync`
//! and `msync` leave in a drive's cache is flushed with the call that the system has for it.

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
    /// Why that gives no more durability than it does, as a sentence.
    pub(crate) why: &'static str,
}

pub(crate) const TMPFS: InMemory =
    InMemory { name: "tmpfs", why: "tmpfs keeps files in DRAM, which an OS crash loses" };

/// Renames, never onto an existing file. A crash in between leaves both names.
fn link_and_unlink(from: &Path, to: &Path) -> Result<(), Errno> {
    rustix::fs::link(from, to)?;
    rustix::fs::unlink(from)
}

/// Bytes of the system's page, the unit of mappings.
pub(crate) fn page() -> usize {
    rustix::param::page_size()
}
