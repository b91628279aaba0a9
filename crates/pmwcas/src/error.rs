//! What can go wrong.

use pmindex_core::{DurabilityLost, PmError};
use pmindex_error::error_enum;

error_enum! {
    /// The errors of building or executing an operation. Losing against other operations is no error:
    /// [`execute`](crate::Descriptor::execute) then returns `false`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum MwcasError {
        /// The word is already part of the operation.
        #[error("the word at offset {offset:#x} is already part of the operation")]
        Duplicate {
            /// Its offset in the pool.
            offset: u64,
        },
        /// The descriptor has no room for another entry.
        #[error("an operation has room for {max} words and blocks")]
        TooManyWords {
            /// The limit the descriptor pool was created with.
            max: usize,
        },
        /// The word is not part of the operation.
        #[error("the word at offset {offset:#x} is not part of the operation")]
        NoSuchWord {
            /// Its offset in the pool.
            offset: u64,
        },
        /// The value needs bits that belong to the protocol.
        #[error("value {value:#x} is larger than {:#x}, the largest of a word's", crate::MAX_VALUE)]
        ValueTooLarge {
            /// The value.
            value: u64,
        },
        /// A reserved entry has no new value.
        #[error("the entry reserved for the word at offset {offset:#x} has no new value")]
        Unset {
            /// Its offset in the pool.
            offset: u64,
        },
        /// The entry's policy frees the new block on failure, so the block must come from
        /// [`allocate`](crate::Descriptor::allocate); or the other way round.
        #[error("the entry's policy does not fit where its new value comes from")]
        WrongPolicy,
        /// An error of the pool: full, corrupt, read-only, poisoned, or all partitions busy.
        #[error(transparent)]
        Pool(#[from] PmError),
    }
}

impl From<DurabilityLost> for MwcasError {
    fn from(lost: DurabilityLost) -> Self {
        Self::Pool(lost.into())
    }
}
