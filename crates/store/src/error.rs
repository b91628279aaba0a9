//! What a store can fail with.

use pmindex_core::{OpenError, PmError};
use pmindex_index::{IndexError, Missing, Occupied};

/// What an operation on a store, a snapshot or a transaction can fail with. Nothing is changed then,
/// but for [`Unfinished`](Self::Unfinished).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// An index, or the pool.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The pool cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another commit changed what the transaction read. [`Store::transaction`](crate::Store::transaction)
    /// runs it again, up to the limit of its options.
    #[error(
        "the transaction conflicts with others, which changed what it had read ({tries} tries)"
    )]
    Conflict {
        /// How often it was run.
        tries: u32,
    },
    /// The reader of a moment kept more of the past in memory than the store's options allow.
    #[error(
        "the snapshot has ended: what it would read takes more than the limit of {limit} bytes of memory"
    )]
    SnapshotEnded {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The changes of a transaction are too large.
    #[error(
        "the changes of the transaction take {bytes} bytes in the log, which has room for {max}"
    )]
    TooLarge {
        /// What they take.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The transaction is durable and has taken place, and its changes find no room, or failed otherwise:
    /// they are made before the next write of whatever kind, or when the store is opened again.
    #[error("the transaction is durable, and its changes are made when that is possible: {0}")]
    Unfinished(#[source] IndexError),
    /// The map is open with other types of keys or values.
    #[error("map {name:?} is open with other types of keys or values")]
    OpenWithOtherTypes {
        /// Its name.
        name: String,
    },
    /// The map, or a snapshot or transaction of the store, is in use.
    #[error("{what} is in use")]
    InUse {
        /// Which.
        what: String,
    },
    /// The map belongs to another store.
    #[error("map {name:?} belongs to another store")]
    OtherStore {
        /// Its name.
        name: String,
    },
}

impl From<PmError> for StoreError {
    fn from(error: PmError) -> Self {
        Self::Index(error.into())
    }
}

impl From<Missing> for StoreError {
    fn from(error: Missing) -> Self {
        Self::Index(error.into())
    }
}

impl From<Occupied> for StoreError {
    fn from(error: Occupied) -> Self {
        Self::Index(error.into())
    }
}
