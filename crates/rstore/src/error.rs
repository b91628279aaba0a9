//! Errors of operations on a partition.

use pmindex_core::{DurabilityLost, PmError};

/// An error of an operation on a partition. Nothing is changed, unless the variant says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// More than 95 % of the capacity would be live; of a small one less, because the least number of blocks stays free,
    /// and 3 % of the others. Removing, overwriting by shorter or equally long values, and batches that free as much as
    /// they take, still work. If what no record can take has become too much meanwhile, the last two may be refused, but
    /// never what removes, or frees more than it takes.
    #[error("the partition is full: {live} of its {capacity} bytes are live; remove records")]
    Full {
        /// The bytes of live records.
        live: u64,
        /// The bytes that the partition may take.
        capacity: u64,
    },
    /// A key is too long for the blocks of the partition.
    #[error("a key of {len} bytes is too long; the limit is {max}")]
    KeyTooLong {
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A value is too long.
    #[error("a value of {len} bytes is too long; the limit is {max}")]
    ValueTooLong {
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A batch is too large for the log.
    #[error("a batch with {len} bytes of the log is too large; the limit is {max}; split it")]
    BatchTooLarge {
        /// Its bytes in the log.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The pool has no partition of this name.
    #[error("the pool has no partition named {name:?}; create it first")]
    Missing {
        /// The name.
        name: String,
    },
    /// A record is damaged: its checksum does not match. Other records can be read.
    #[error("the record at offset {offset:#x} of the pool is damaged; restore it from a backup")]
    Damaged {
        /// The offset in the pool.
        offset: u64,
    },
    /// An earlier [`commit`](crate::Partition::commit) failed: the staged writes may or may not be durable,
    /// and the partition refuses all operations. Open it again.
    #[error("an earlier commit failed, so the partition refuses all operations; open it again")]
    Broken,
    /// Writes needed blocks that a backup held, so the backup was ended. Begin another one.
    #[error(
        "the backup was ended, because writes needed the space that it held; begin another one"
    )]
    BackupEnded,
    /// An error of the pool: see [`PmError`].
    #[error(transparent)]
    Pool(#[from] PmError),
}

impl From<DurabilityLost> for Error {
    fn from(lost: DurabilityLost) -> Self {
        Self::Pool(lost.into())
    }
}

impl Error {
    /// Returns `true` if there is no room: [`Full`](Self::Full), or the pool refused to grow.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Pool(error) => error.is_full(),
            _ => false,
        }
    }
}
