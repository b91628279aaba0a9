//! A write-ahead log in a file.
//!
//! Records of any length are grouped into batches. A batch is written in one piece and durable before
//! anybody is told so; threads that append at the same time share one. Space is written with zeros
//! once, so that no later write changes metadata of the file system, and is recycled behind a
//! horizon.
//!
//! | file | what |
//! | --- | --- |
//! | `layout` | what lies where in the file: heads and batches |
//! | `checksum` | the checksum of both |
//! | `buffer` | memory at addresses that direct I/O accepts |
//! | `disk`, `file` | what the log is written to; an ordinary file |
//! | `log` | opening, writing, truncating |
//! | `group` | one thread leads for all that wait |
//! | `reader` | reading from the horizon to the tail |
//! | `hold` | who still needs what |
//! | `sim` | a disk that crashes, for tests (feature `sim`) |
//!
//! # The protocol
//!
//! ```text
//! step  write                                              durable before
//! L1    format: zeros everywhere                           L2
//! L2    both heads: identity, generation, horizon          the first batch
//! L3    a batch (LIN and DUR: of all its records)          acknowledging any of them, the next batch
//! L4    both heads, with a later horizon                   reuse of the space before that horizon
//! L5    both heads, with a greater generation, opening     the first batch of that generation
//! L6    the last batch once more, at each opening          the first batch of that generation
//! ```
//!
//! Of the heads the older one is written first, each is durable before the next, and the newest whole one
//! counts. When both are written either suffices, so one that rots loses nothing.
//!
//! A batch counts if its checksum is right, which is seeded with the log's identity, the generation
//! and the batch's offset, if it names the end of the batch before it, and if no batch before it has
//! a greater generation. So neither a torn batch nor one that stood there before the space was
//! recycled, or before a crash, is taken for the next one. What is read is the batches from the
//! horizon to the first that does not count, never one beyond it.
//!
//! The offset of a batch grows for ever; `offset % capacity` is where it lies. A batch is never split:
//! one that does not fit before the end of the space begins at its start, and the reader looks there
//! too. Generation and offset together ([`Lsn`]) never name two records, whatever crashes: what follows
//! a crash has a greater generation.
//!
//! After a failed write or sync the log takes nothing any more: the kernel may take the pages for
//! written, so no later success would mean anything.
//!
//! Assumed: the disk writes 512-byte sectors wholly or not at all, and keeps what a completed sync, or
//! a write with `RWF_DSYNC`, reported as written.

#![forbid(unsafe_code)]

mod buffer;
mod checksum;
mod disk;
mod error;
mod file;
mod group;
mod hold;
mod layout;
mod log;
mod reader;
#[cfg(feature = "sim")]
pub mod sim;

pub use buffer::Buffer;
pub use disk::Disk;
pub use error::LogError;
pub use file::{FileDisk, SyncMethod};
pub use group::{Abandoned, Group};
pub use hold::Hold;
pub use layout::{LogId, Lsn};
pub use log::{Batch, Log, LogOptions, Peeked, peek};
pub use reader::Reader;
