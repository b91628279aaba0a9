//! The engine of one partition of `RStore`: a log, data blocks in persistent memory, and an ordered index
//! in DRAM. It consists of step functions, starts no thread and does no I/O.
//!
//! It follows chapter 5 of Lersch's thesis *Leveraging Non-Volatile Memory in Modern Storage Management
//! Architectures*. Where the thesis is silent or loses data, the docs of the modules say what is done
//! instead.
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
//! A write stages the body of a record in DRAM, for the log, and appends the record to the open block.
//! [`commit`](Partition::commit) appends all staged bodies to the log as one entry, and fences once. So the
//! log has every acknowledged write. The lines of records in blocks are flushed as they fill, without a
//! fence. When a block is full, the fence of the next commit makes it durable. Then a store of one word,
//! its *length*, makes it valid for opening: opening ignores records behind the length, and finds them in
//! the log.
//!
//! **What must be durable before what**; nothing else must be:
//!
//! | first | then | otherwise |
//! | --- | --- | --- |
//! | the log entry of a write | its reply; a length that covers its record | a crash takes back what a client has seen, or leaves a part of a batch |
//! | records | the length that covers them | opening reads records that are not there |
//! | that length | the release of the log segments with their entries | both are lost |
//! | a large value | the log entry that refers to it | an entry refers to nothing |
//! | the log entry of what replaces a large value | the release of the value | the entry before refers to nothing |
//! | the length that covers the copies of a victim's live records, and the log entries of the writes that replaced its other records | length 0 of the victim | the only copy is lost |
//! | length 0 of a victim | records of its next generation | old records are read as new ones |
//! | the log entry of what replaces a record | the seal that makes the record a hole | the only copy is lost |
//! | that seal | another record in the hole | opening reads a half-written record |
//! | a record in a hole, and its log entry | the end of the seal | the same, or a crash leaves a part of a batch |
//! | the end of the seal | the release of the log segment with its entry | both are lost |
//! | the release or the seals of all older versions of a key in blocks | the release of its tombstone | a removed key comes back |
//!
//! The fences of commits serve all of these: collection, lengths and holes need none of their own (see
//! [`commit`]). Allocating a block, a page of the table, a large value or a segment of the log takes 2
//! fences.
//!
//! **Opening** reads blocks up to their lengths. Of the versions of a key the one with the greatest LSN is
//! valid, wherever it is: position says nothing about time, because collection moves records. The valid ones are
//! sorted, and the index is built of them at once ([`rebuild`]). Then opening reads the log, and appends the writes that
//! the blocks lack ([`recover`]).
//!
//! Writes pay for **collection** ([`collect`]). While few blocks are free, they take the places of dead
//! records of the same length instead, if there are any ([`holes`]). A **tombstone** stays while any block
//! has an older version of its key, which is counted ([`graves`]). **Large values** have blocks of their
//! own ([`large`]). Each record may have an **expiry**, and a sweep removes expired records ([`expire`]). A
//! **backup** is a consistent view (`backup.rs`).
//!
//! # Differences from the thesis
//!
//! * The pool's allocator replaces segments of 2 MB, their table and their types. A partition has one size
//!   of data blocks, 2, 16 or 64 KiB or 2 MiB, and allocates blocks that fit large values, in pieces of
//!   at most 1 MiB.
//! * The index is an adaptive radix tree, without a hash table beside it.
//! * Writes fill **holes**. The thesis copies the live records of each victim; with a device that is 90 %
//!   full and updates of all records alike, that is at least 4 bytes for each one written.
//! * A read copies a record once and verifies its checksum. Reads are not zero-copy: a pool is accessed by
//!   words, and safe code cannot have a slice of it.

#![forbid(unsafe_code)]

// Tests share sources with `tests/crash`, where this crate is used by its name.
#[cfg(test)]
extern crate self as pmindex_rstore;

mod append;
mod backup;
mod batch;
mod bins;
mod blocks;
mod check;
mod clear;
mod collect;
mod commit;
mod discard;
mod error;
mod expire;
mod graves;
mod holes;
mod index;
mod large;
mod layout;
mod options;
mod partition;
mod read;
mod rebuild;
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
