//! The engine of one partition of `RStore`: a log, data blocks in persistent memory, an ordered index in
//! DRAM. Step functions, without threads and without I/O of their own.
//!
//! After Lersch's thesis *Leveraging Non-Volatile Memory in Modern Storage Management Architectures*,
//! chapter 5; where it is silent or loses data, the modules say what is done instead.
//!
//! ```
//! use pmindex_core::Pool;
//! use pmindex_rstore::{Batch, Options, Partition};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Arc::new(Pool::emulated(16 << 20)?); // or Pool::create(path, &PoolOptions::new())?
//! let mut partition = Partition::create(&pool, "orders", &Options::new())?;
//!
//! partition.put(b"one", b"1", None)?; // staged: this thread sees it
//! partition.put(b"two", b"2", Some(5_000))?; // expires 5 s after the beginning of 1970
//! partition.write(Batch::new().put(b"three", b"3", None).remove(b"one"))?; // both or neither
//! partition.commit()?; // one fence: now replies may leave
//!
//! let mut value = Vec::new();
//! assert!(partition.get_into(b"two", 4_999, &mut value)?);
//! assert_eq!(value, b"2");
//! assert!(!partition.get_into(b"two", 5_000, &mut value)?);
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! ```text
//! put  -->  staged bodies  -- commit: one fence -->  log            pm-log; cut behind the blocks
//!      -->  the open block -- when full: length -->  data blocks    records, found by the index
//!      -->  the index (DRAM)                                        rebuilt from blocks and log
//! ```
//!
//! A write puts the body of a record into DRAM, for the log, and the record into the block that is open.
//! [`commit`](Partition::commit) appends all staged bodies to the log as one entry, and fences once. So
//! what was acknowledged is in the log. The records in blocks are flushed line by line as the lines fill,
//! and wait for no fence. When a block is full, the next commit's fence makes it durable, and then a store of one
//! word, its *length*, makes opening read it: records behind the length are not there for opening, and the
//! log has them.
//!
//! **What must be durable before what**, and nothing else:
//!
//! | first | then | or else |
//! | --- | --- | --- |
//! | the log entry of a write | its reply; a length that covers its record | a crash takes back what somebody saw, or leaves a part of a batch |
//! | records | the length that covers them | opening reads what is not there |
//! | that length | the end of the log segments with their entries | both are lost |
//! | a large value | the log entry that names it | an entry names nothing |
//! | the log entry of what replaces a large value | its end | the entry before it names nothing |
//! | the length that covers the copies of a victim's records, and the log entries from which its other records are dead | length 0 of the victim | the only copy is lost |
//! | length 0 of a victim | records of its next generation | old records are read as new |
//! | the end of all older versions of a key in blocks | the end of its tombstone | a removed key is back |
//!
//! All of them ride on the fences of commits: collection and lengths have none of their own (the essay in
//! [`commit`]). Allocating a block, a page of the table, a large value or a segment of the log takes 2.
//!
//! **Opening** reads blocks as far as their lengths go. Of the versions of a key the greatest LSN counts,
//! wherever it lies: position is not time, for collection moves records. Then it reads the log, and appends
//! to blocks what they lack ([`recover`]).
//!
//! **Collection** is paid by writes ([`collect`]); **tombstones** stay while an older version lies in any
//! block, which is counted ([`graves`]); **large values** lie in blocks of their own ([`large`]);
//! **expiry** is a record's, and a sweep removes what is over ([`expire`]); a **backup** is a moment
//! ([`backup`](mod@backup)).
//!
//! # Differences from the thesis
//!
//! * Segments of 2 MB, their table and their types are those of the pool's allocator. A partition has one
//!   size of data blocks, 2, 16 or 64 KiB or 2 MiB, and asks the pool for blocks that fit large values, in
//!   pieces of 1 MiB at most.
//! * The index is an adaptive radix tree; there is no hash table beside it.
//! * A read copies a record once and verifies its checksum. There is no zero copy: a pool is accessed by
//!   words, and safe code has no slice of it.

#![forbid(unsafe_code)]

// Tests share sources with `tests/crash`, which names this crate.
#[cfg(test)]
extern crate self as pmindex_rstore;

mod append;
mod backup;
mod batch;
mod blocks;
mod check;
mod clear;
mod collect;
mod commit;
mod error;
mod expire;
mod graves;
mod index;
mod large;
mod layout;
mod options;
mod partition;
mod read;
mod record;
mod recover;
mod report;
mod table;
#[cfg(test)]
mod tests;
mod write;
mod wrong;

pub use backup::{Backup, VisitAll};
pub use batch::Batch;
pub use error::Error;
pub use options::{BlockSize, MAX_KEY, MAX_VALUE, Millis, Options};
pub use partition::Partition;
pub use read::Visit;
pub use report::{Budget, Check, Progress, Recovery, Stats};
