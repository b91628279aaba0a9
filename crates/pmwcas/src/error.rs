//! Errors of building and executing an operation.

use pmindex_core::{DurabilityLost, PmError};
use pmindex_error::error_enum;

error_enum! {
    /// The errors of building or executing an operation. Losing against other operations is no error:
    /// [`execute`](crate::Descriptor::execute) then returns `false`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum MwcasError {
        /// The word is already part of the operation.
        #[error("the word at offset {offset:#x} is already part of the operation; add each word once")]
        Duplicate {
            /// Its offset in the pool.
            offset: u64,
        },
        /// The descriptor has no room for another entry.
        #[error(
            "the operation has more than {max} words and blocks, the limit of its descriptor pool; create the \
             pool with larger descriptors"
        )]
        TooManyWords {
            /// The limit the descriptor pool was created with.
            max: usize,
        },
        /// The word is not part of the operation.
        #[error("the word at offset {offset:#x} is not part of the operation; add it first")]
        NoSuchWord {
            /// Its offset in the pool.
            offset: u64,
        },
        /// The value needs bits that belong to the protocol.
        #[error("value {value:#x} is too large: a word holds at most {:#x}", crate::MAX_VALUE)]
        ValueTooLarge {
            /// The value.
            value: u64,
        },
        /// A reserved entry has no new value.
        #[error(
            "the entry reserved for the word at offset {offset:#x} has no new value; set it before execution"
        )]
        Unset {
            /// Its offset in the pool.
            offset: u64,
        },
        /// The entry's policy frees the new block on failure, so the block must come from
        /// [`allocate`](crate::Descriptor::allocate); or the other way round.
        #[error(
            "the entry's policy contradicts the origin of its new value: a policy that frees the new block on \
             failure needs a block of Descriptor::allocate, and such a block needs such a policy"
        )]
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
