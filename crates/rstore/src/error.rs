//! What an operation on a partition can fail with.

use pmindex_core::{DurabilityLost, PmError};

/// What an operation on a partition can fail with. Nothing is changed then, unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// More than 95 % of the capacity would be live. Removing, and overwriting with what is not longer,
    /// still works.
    #[error("the partition is full: {live} of {capacity} bytes are live")]
    Full {
        /// Bytes that live records take.
        live: u64,
        /// Bytes that the partition may take.
        capacity: u64,
    },
    /// A key is too long for the blocks of the partition.
    #[error("a key of {len} bytes; the longest possible has {max}")]
    KeyTooLong {
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A value is too long.
    #[error("a value of {len} bytes; the longest possible has {max}")]
    ValueTooLong {
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A batch does not fit into one record of the log.
    #[error("a batch whose log record has {len} bytes; the longest possible has {max}")]
    BatchTooLarge {
        /// What its log record would have.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The pool has no partition of this name.
    #[error("the pool has no partition named {name:?}")]
    Missing {
        /// The name.
        name: String,
    },
    /// A record is damaged: its checksum does not match. Other records can be read.
    #[error("a record at offset {offset:#x} of the pool is damaged")]
    Damaged {
        /// Where in the pool.
        offset: u64,
    },
    /// An earlier [`commit`](crate::Partition::commit) failed: what was staged may or may not be durable,
    /// and the partition takes no more operations. Open it again.
    #[error("an earlier commit failed; open the partition again")]
    Broken,
    /// A backup held blocks that writes needed, and was ended. Begin another one.
    #[error("the backup was ended, because writes needed the space that it held")]
    BackupEnded,
    /// The pool refused: see [`PmError`].
    #[error(transparent)]
    Pool(#[from] PmError),
}

impl From<DurabilityLost> for Error {
    fn from(lost: DurabilityLost) -> Self {
        Self::Pool(lost.into())
    }
}

impl Error {
    /// Whether there is no room: [`Full`](Self::Full), or the pool's own refusal to grow.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Pool(error) => error.is_full(),
            _ => false,
        }
    }
}
