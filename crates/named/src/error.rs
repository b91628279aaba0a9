//! Errors in addition to those of the index itself.

use pmindex::IndexError;

/// An error of an index that is known by name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NamedError {
    /// The index has keys or values of unknown types.
    #[error(
        "index {name:?} ({kind}) has keys or values of types that this program does not know; open it with \
         the program that created it"
    )]
    UnknownTypes {
        /// Its name.
        name: String,
        /// Its kind.
        kind: String,
    },
    /// A text is not a valid key or value of the index.
    #[error("{text:?} is not a {what} of this index, whose {what}s have the type {wanted}")]
    NotA {
        /// `key` or `value`.
        what: &'static str,
        /// The text.
        text: String,
        /// The type.
        wanted: &'static str,
    },
    /// The index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
}
