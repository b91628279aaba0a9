//! A persistent buffer pool: caches the pages of a file that is larger than memory, is warm after a crash,
//! and repairs pages one by one (Lersch: Leveraging Non-Volatile Memory in Modern Storage Management
//! Architectures, chapter 4).
//!
//! ```text
//! transactions     private copies of pages
//!      |  commit: one redo record, one fence
//!     log          in the pool
//!      |  then
//!    frames        in the pool: pages, updated in place, not flushed; of some a copy in DRAM
//!      |  checkpoint, eviction: from the staging area
//!     disk         all pages; beside it, if wanted, an archive of what the log had
//! ```
//!
//! * [`Buffer::read`] reads a page in place, without a lock.
//! * [`Buffer::begin`] begins a [transaction](Tx): changes of several pages, all or none, serializable.
//! * An update of a page in the pool flushes nothing and fences nothing. After a crash a checksum shows
//!   whether the page is whole, and its LSN shows whether it lacks updates that the log has.
//! * [Opening](Buffer::open) reads the log and then serves. The pages in the pool are there again; each is
//!   verified at its first use.
//! * A page whose frame rots is repaired from the disk and the log. With an [archive](Buffer::attach_archive) of what
//!   the log had, a page that rots on the disk is repaired too.
//! * [`Buffer::checkpoint`] shortens the log. The crate starts no thread: the program calls
//!   [`checkpoint_step`](Buffer::checkpoint_step) and [`recover_step`](Buffer::recover_step).
//!
//! ```
//! use std::sync::Arc;
//! use pmindex_buffer::{Buffer, BufferOptions};
//! use pmindex_core::Pool;
//! use pmindex_wal::{FileDisk, SyncMethod};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("pages");
//! FileDisk::create(&std::fs::File::create(&path)?, 64 * 4096)?; // 63 pages, and the buffer's own
//! let disk = Arc::new(FileDisk::open(&path, SyncMethod::Sync)?);
//! let pool = Arc::new(Pool::emulated(4 << 20)?);
//! let buffer = Buffer::create(&pool, "pages", disk, &BufferOptions::new(16))?;
//!
//! let mut tx = buffer.begin();
//! tx.create(1)?.set(0, 30);
//! tx.create(2)?.set(0, 12);
//! tx.commit()?; // both are durable
//!
//! let sum = buffer.read(1, |page| page.word(0))? + buffer.read(2, |page| page.word(0))?;
//! assert_eq!(sum, 42);
//! buffer.checkpoint()?; // both are on the disk, and the log is empty
//! # Ok(())
//! # }
//! ```
//!
//! # Durability
//!
//! A commit is as durable when it returns as its pool is: see [`Durability`](pmindex_core::Durability). On
//! a mapping without DAX the kernel writes pages of the pool back at any time, so a power failure may tear
//! any number of frames; the checksums and the log cover all of them.

#![forbid(unsafe_code)]

mod active;
mod archive;
mod buffer;
mod checkpoint;
mod device;
mod entries;
mod error;
mod frames;
mod hot;
mod layout;
mod metrics;
mod options;
#[doc(hidden)]
pub mod page;
mod record;
mod recover;
mod repair;
#[doc(hidden)]
pub mod runs;
mod scrub;
#[cfg(test)]
mod tests;
mod tx;
mod view;

pub use archive::{ArchiveFault, ArchiveState};
pub use buffer::Buffer;
pub use checkpoint::Progress;
pub use error::BufferError;
pub use metrics::Metrics;
pub use options::BufferOptions;
#[doc(hidden)]
pub use options::Mutant;
pub use page::Sums;
pub use scrub::Scrubbed;
pub use tx::{Paused, Tx};
pub use view::{Draft, Page};
