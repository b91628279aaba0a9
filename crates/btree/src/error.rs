//! Errors of operations on a map.

use pmindex_buffer::BufferError;

/// An error of an operation on a map.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PagedError {
    /// An error of the buffer, its pool, its log or its disk.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// Key and value together are too long for a page.
    #[error("a record of {len} bytes is too long; the limit is {max} bytes")]
    TooLong {
        /// The bytes of both, each rounded up to words.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The disk has no free page, or there is no room for another map.
    #[error("the buffer has no {what} left; remove records or maps, or use a larger disk")]
    Full {
        /// What is full.
        what: &'static str,
    },
    /// The map has keys or values of another type.
    #[error(
        "the map {name:?} has keys or values of another type; open it with the types it was created with"
    )]
    WrongType {
        /// Its name.
        name: String,
    },
    /// The name of a map is empty or too long.
    #[error("the name of a map must have 1 to {max} bytes; this one has {len}")]
    BadName {
        /// Its length in bytes.
        len: usize,
        /// The maximum.
        max: usize,
    },
    /// A page is whole, but its content is invalid.
    #[error("page {page} is corrupt: {what}; restore a backup")]
    Corrupt {
        /// The page.
        page: u64,
        /// The fault.
        what: &'static str,
    },
}
