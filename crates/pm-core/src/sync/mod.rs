//! Locks in DRAM: a crash voids them, and a reader never writes them.

mod primitive;
mod protocol;
mod version;

pub use version::{VersionGuard, VersionLock, VersionTable};
