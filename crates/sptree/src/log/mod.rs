//! The structured log (section 4.7): append-only, and yet the entries of one write buffer can be read at
//! once after a crash, without the rest.
//!
//! The entries of a write buffer are a *chain*: each names the one before it (`next`), so a chain is read
//! from its newest entry on. The newest entries are in the *checkpoint*, or among those appended since.
//! Opening reads the checkpoint; a chain that is needed then is searched for by itself, while steps find all
//! others.
//!
//! ```text
//! root --> table of segments        lane 0:  | e e e e | e e e . |
//!     \                             lane 1:  | e e e e | e . . . |     . after the tail
//!      -> checkpoint: tails of the lanes, then the newest entry of each chain
//! ```
//!
//! The differences from the paper, and their reasons:
//!
//! * **Lanes and segments** are those of [`pmindex_log`]: as many writers append at once as there are
//!   lanes, each to a segment of its own. So entries of a chain carry a sequence number, by which the
//!   newest is found. Space comes back as segments die, the oldest first.
//! * **A checkpoint is one pointer** ([`checkpoint`]): the new one is complete and durable before the
//!   word of the root names it, and the old one lives until then. Tails are taken *before* heads.
//! * **The end of a chain is an entry without `next`**: the first entry after the buffer was absorbed. The
//!   paper's end record ([`Kind::End`]) is read, and not written: a word of the leaf replaces it.
//! * **A segment is dead** when its lane left it before any chain of the last durable checkpoint was
//!   born ([`checkpoint`]): then no recovery reads it.
//!
//! # Duties of the log's users
//!
//! 1. Entries of one chain are appended one at a time, under the chain's lock, which is held until
//!    the entry is published in DRAM.
//! 2. A chain's head for a checkpoint was read under that lock, or under a version of it that validates.
//! 3. A chain's entries are idempotent: an absorbed chain may be found once more after a crash, until a
//!    checkpoint without it, unless an end record is durable.
//!
//! No content of a file makes reading it loop, panic, or take more memory than the file has bytes: an
//! entry counts if its checksum is right, tables and chains have limits.

mod chain;
mod checkpoint;
mod entry;
mod found;
mod lane;
mod layout;
mod pieces;
mod recover;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use pmindex_core::{Mapped, Medium, PmError, Pool};
use pmindex_log::{LINE_BYTES, Segments};

pub use chain::{Chain, IdHasher};
pub use checkpoint::Heads;
pub(crate) use entry::SEQ_MAX;
pub(crate) use entry::lines_for;
pub use entry::{Entry, Kind, Record};
pub use lane::{Appended, Batch};
pub(crate) use layout::FORMAT;
pub use layout::{CheckpointPiece, Location};

/// A structured log in a pool. See the module's head.
#[derive(Debug)]
pub struct Log<M: Medium = Mapped> {
    /// The chains when the log was opened, once they are found.
    recovered: OnceLock<HashMap<u64, Chain, IdHasher>>,
    /// The places to search before they are all found.
    source: Mutex<Option<Arc<recover::Source>>>,
    search: Mutex<recover::Search>,
    /// `true` if every recovered chain is in a buffer or has ended.
    restored: AtomicBool,
    /// The greatest sequence number of any chain that has ended.
    greatest: AtomicU64,
    checkpointing: AtomicBool,
    /// `true` if a checkpoint is due, or the log tight, as of the last new segment or checkpoint; or lines
    /// were appended that no sweep has taken.
    wanting: AtomicBool,
    /// Lines appended that no sweep has taken, by whole segments.
    appended: AtomicU64,
    /// Lines, about, of chains that ended with their leaves since the last checkpoint.
    ended: AtomicU64,
    /// Lines of the last checkpoint.
    checkpoint_lines: AtomicU64,
    /// Segments made since the last checkpoint.
    made: AtomicU32,
    /// When a checkpoint failed last, in segments; [`NEVER`](checkpoint::NEVER) if another one is to be tried.
    failed: AtomicU64,
    /// Entries that there was no room for.
    refused: AtomicU32,
    /// Words of a piece of a checkpoint.
    piece_words: usize,
    /// Last: another opening of the log may begin when this is dropped.
    base: pmindex_log::Log<M>,
}

impl<M: Medium> Log<M> {
    #[inline(always)]
    fn pool(&self) -> &Arc<Pool<M>> {
        self.base.pool()
    }

    #[inline(always)]
    fn segments(&self) -> &Segments {
        self.base.segments()
    }

    /// Lists the offsets of all blocks of a quiescent log, for the allocator's audit.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    pub fn blocks(&self) -> Result<Vec<u64>, PmError> {
        Ok([self.base.blocks()?, self.all_pieces()?].concat())
    }

    /// Returns the bytes of the pool in blocks of this log.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.base.bytes() + LINE_BYTES * self.checkpoint_lines.load(Relaxed)
    }
}
