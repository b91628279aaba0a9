//! The structured log (section 4.7): append-only, and yet what belongs to one write buffer can be
//! read at once after a crash, without reading the rest.
//!
//! Each entry names the one of its chain before it (`next`), so a chain is read from its newest
//! entry on. The newest entries stand in a *checkpoint*, and after that one in what was appended
//! since, never elsewhere in the log. Opening reads the checkpoint; a chain that is asked for then is
//! looked for by itself, while steps find all others.
//!
//! ```text
//! root --> table of segments        lane 0:  | e e e e | e e e . |
//!     \                             lane 1:  | e e e e | e . . . |     . after the tail
//!      -> checkpoint: tails of the lanes, then the newest entry of each chain
//! ```
//!
//! What differs from the paper, and why:
//!
//! * **Lanes and segments** are those of [`pmindex_log`]: as many writers append at once as there are
//!   lanes, each to a segment of its own. So entries of a chain carry a sequence number, by which the
//!   newest is found. Space comes back as segments die, the oldest first.
//! * **A checkpoint is one pointer** ([`checkpoint`]): the new one is complete and durable before the
//!   word of the root names it, and the old one lives until then. Tails are taken *before* heads.
//! * **The end of a chain is an entry without `next`**, which the first entry after a flush of the
//!   buffer is. An end record of its own is appended only before the leaf changes in a way that
//!   the log does not know of ([`Kind::End`]).
//! * **A segment is dead** when its lane left it before any chain of the last durable checkpoint was
//!   born ([`checkpoint`]): then no recovery reads it.
//!
//! # What users of a log owe it
//!
//! 1. Entries of one chain are appended one at a time, under the chain's lock, which is held until
//!    the entry is published in DRAM.
//! 2. What a checkpoint is told about a chain was read under that lock, or under a version of it that
//!    validates.
//! 3. What a chain's entries say is idempotent: a flushed chain may be found once more after a crash
//!    (until a checkpoint has forgotten it), unless an end record is durable.
//!
//! Nothing a file contains makes reading it loop, panic, or take more memory than the file has
//! bytes: entries count if their checksum does, tables and chains have limits.

mod chain;
mod checkpoint;
mod entry;
mod found;
mod lane;
mod layout;
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
pub use layout::{Location, Piece};

/// A structured log in a pool. See the module's head.
#[derive(Debug)]
pub struct Log<M: Medium = Mapped> {
    /// The newest entries of the chains that there were when it was opened, once they are found.
    recovered: OnceLock<HashMap<u64, Chain, IdHasher>>,
    /// Where to look for them before they are all found.
    source: Mutex<Option<Arc<recover::Source>>>,
    search: Mutex<recover::Search>,
    /// Whether every recovered chain is known elsewhere.
    restored: AtomicBool,
    /// No entry of the log has a greater sequence number.
    greatest: AtomicU64,
    checkpointing: AtomicBool,
    /// Whether a checkpoint is due, or the log tight, as of the last segment made or checkpoint; or
    /// lines were appended that nobody has taken note of.
    wanting: AtomicBool,
    /// Lines appended of which nobody has taken note, by whole segments.
    appended: AtomicU64,
    /// About how many lines chains had that ended with their leaves, since the last checkpoint.
    ended: AtomicU64,
    /// Lines of the last checkpoint.
    checkpoint_lines: AtomicU64,
    /// Segments made since the last checkpoint.
    made: AtomicU32,
    /// Last, so that the rest is gone when somebody else may open the log.
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

    /// The offsets of all blocks of this log, for the allocator's audit. On a quiescent log.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    pub fn blocks(&self) -> Result<Vec<u64>, PmError> {
        Ok([self.base.blocks()?, self.pieces()?].concat())
    }

    /// Bytes of the pool in blocks of this log.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.base.bytes() + LINE_BYTES * self.checkpoint_lines.load(Relaxed)
    }
}
