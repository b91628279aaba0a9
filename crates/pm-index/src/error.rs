//! What an operation on an index can fail with.

use pmindex_core::{DurabilityLost, PmError};

/// What an operation on an index can fail with. The index stays usable and intact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The pool: full, corrupt, read-only, poisoned.
    #[error(transparent)]
    Pool(#[from] PmError),
    /// The key's encoding is too long.
    #[error("a key of {len} bytes is longer than the longest possible, {max} bytes")]
    KeyTooLong {
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The value's encoding is too long.
    #[error("a value of {len} bytes is longer than the longest possible, {max} bytes")]
    ValueTooLong {
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// No index of this name.
    #[error("the pool has no index named {name:?}")]
    NoSuchIndex {
        /// The name.
        name: String,
    },
    /// The name is taken.
    #[error("the pool already has an index named {name:?}")]
    IndexExists {
        /// The name.
        name: String,
    },
    /// The index has another type.
    #[error("index {name:?} is a {found}, not a {wanted}")]
    WrongType {
        /// The name.
        name: String,
        /// What it is.
        found: String,
        /// What it was opened as.
        wanted: String,
    },
    /// The index has other key or value types, or node capacities.
    #[error("index {name:?} was created with another layout than {wanted}")]
    WrongLayout {
        /// The name.
        name: String,
        /// What it was opened as.
        wanted: String,
    },
    /// `bulk_load` into an index with records.
    #[error("bulk_load needs an empty index")]
    NotEmpty,
    /// `bulk_load` input out of order at this item.
    #[error("bulk_load input is not strictly ascending at item {at}")]
    NotSorted {
        /// Which item, from 0.
        at: u64,
    },
}

impl From<DurabilityLost> for IndexError {
    fn from(lost: DurabilityLost) -> Self {
        Self::Pool(lost.into())
    }
}
