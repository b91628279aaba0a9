//! B+-trees in a persistent buffer pool: typed maps that are larger than memory and the pool.
//!
//! ```
//! use std::sync::Arc;
//! use pmindex_btree::PagedMap;
//! use pmindex_buffer::{Buffer, BufferOptions};
//! use pmindex_core::Pool;
//! use pmindex_wal::{FileDisk, SyncMethod};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("pages");
//! FileDisk::create(&std::fs::File::create(&path)?, 256 * 4096)?;
//! let disk = Arc::new(FileDisk::open(&path, SyncMethod::Sync)?);
//! let pool = Arc::new(Pool::emulated(4 << 20)?);
//! let buffer = Arc::new(Buffer::create(&pool, "pages", disk, &BufferOptions::new(64))?);
//!
//! let stock: PagedMap<String, u64> = PagedMap::open(&buffer, "stock")?;
//! stock.put("pears", &3)?;
//! assert_eq!(stock.insert("apples", &7)?, None);
//! assert_eq!(stock.get("apples")?, Some(7));
//! // Several changes in one transaction, also of several maps.
//! stock.transact(|tx| {
//!     stock.remove_in(tx, "pears")?;
//!     stock.put_in(tx, "apples", &10)
//! })?;
//! let all: Result<Vec<_>, _> = stock.range(..).collect();
//! assert_eq!(all?, [("apples".to_owned(), 10)]);
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! A page is a node: slots in key order, and a heap of records. Each node except the last one of its level
//! has the page of its right neighbour and a *high fence*, which is greater than all its keys. A reader
//! goes from page to page without a lock, and sees each page as one transaction left it; if a split has
//! moved the key that it looks for, the fence sends it to the right. A write is a transaction of the
//! buffer: a split, even of the root, is part of the same record as the change that needs it, together with
//! the pages that it allocates.
//!
//! [`Paged`] is such a map with a buffer and a file of its own, behind the trait of all indexes.
//!
//! # Limits
//!
//! Empty pages are not freed, and stay in the tree. A record takes at most a quarter of a page. Ranges are
//! ascending only.

#![forbid(unsafe_code)]

mod error;
mod expected;
mod index;
mod map;
mod meta;
mod node;
mod options;
mod room;
#[cfg(test)]
mod room_tests;
mod tree;

pub use error::PagedError;
pub use index::Paged;
pub use map::{PagedMap, Range};
pub use options::PagedOptions;
pub use pmindex_buffer::{ArchiveFault, ArchiveState};
