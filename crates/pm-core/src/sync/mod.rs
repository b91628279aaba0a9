//! Locks in DRAM: a crash voids them, and a reader never writes them.

mod lent;
mod primitive;
mod protocol;
mod version;

pub use lent::Lent;
pub use version::{VersionGuard, VersionLock, VersionTable};
