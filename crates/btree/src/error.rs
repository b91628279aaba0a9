//! What an operation on a map can fail with.

use pmindex_buffer::BufferError;

/// What an operation on a map can fail with.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PagedError {
    /// The buffer, its pool, its log or its disk.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// Key and value together are too long for a page.
    #[error("a record of {len} bytes is longer than the longest possible, {max} bytes")]
    TooLong {
        /// Bytes of both, each rounded up to words.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The disk has no page left, or there is no room for another map.
    #[error("the buffer is full: no {what} is left")]
    Full {
        /// What is missing.
        what: &'static str,
    },
    /// The map has keys or values of another type.
    #[error("the map {name:?} has keys or values of another type")]
    WrongType {
        /// Its name.
        name: String,
    },
    /// The name of a map is empty or too long.
    #[error("the name of a map has 1 to {max} bytes, not {len}")]
    BadName {
        /// Its bytes.
        len: usize,
        /// The most.
        max: usize,
    },
    /// A page is whole, and not what it should be.
    #[error("page {page}: {what}")]
    Corrupt {
        /// Which.
        page: u64,
        /// What is wrong.
        what: &'static str,
    },
}
