//! A write-ahead log in a file.
//!
//! Records of any length are grouped into batches. A batch is written in one piece and is durable before it
//! is acknowledged; threads that append at the same time share one. The space is filled with zeros once, so
//! that no later write changes metadata of the file system, and is recycled behind a horizon.
//!
//! | file | contents |
//! | --- | --- |
//! | `layout` | the layout of the file: heads and batches |
//! | `checksum` | the checksum of both |
//! | `buffer` | memory at addresses suitable for direct I/O |
//! | `disk`, `file` | the disk under the log; an ordinary file |
//! | `log` | opening, writing, truncating |
//! | `group` | group commit: one thread writes for all that wait |
//! | `reader` | reading from the horizon to the tail |
//! | `hold` | the offsets that readers still need |
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
//! The older head is written first, each is durable before the next, and the newest intact one counts. After
//! both are written either is enough, so the loss of one to rot loses nothing.
//!
//! A batch counts if its checksum is right, which is seeded with the log's identity, the generation and the
//! batch's offset; if it names the end of the preceding batch; and if no preceding batch has a greater
//! generation. So neither a torn batch nor an old one, from before the space was recycled or before a crash,
//! is taken for the next one. Reading returns the batches from the horizon to the first that does not count,
//! never one beyond it.
//!
//! The offset of a batch increases for ever; its place is `offset % capacity`. A batch is never split: one
//! that does not fit before the end of the space begins at its start, and the reader looks there too.
//! Generation and offset together ([`Lsn`]) never name two records, even across crashes: batches after a
//! crash have a greater generation.
//!
//! After a failed write or sync the log takes no more writes: the kernel may take the pages for written, so
//! no later success would mean anything.
//!
//! Assumption: the disk writes 512-byte sectors entirely or not at all, and keeps what it reported as
//! durable, by a completed sync or a write with `RWF_DSYNC`.

#![forbid(unsafe_code)]

mod batch;
mod buffer;
mod checksum;
mod disk;
mod error;
mod file;
mod group;
mod hold;
mod layout;
mod log;
mod patience;
mod reader;
#[cfg(feature = "sim")]
pub mod sim;

pub use batch::{Batch, Record};
pub use buffer::Buffer;
pub use disk::Disk;
pub use error::LogError;
pub use file::{FileDisk, SyncMethod};
pub use group::{Abandoned, Group};
pub use hold::Hold;
pub use layout::{LogId, Lsn};
pub use log::{Log, LogOptions, Peeked, peek};
pub use patience::Patience;
pub use reader::Reader;
