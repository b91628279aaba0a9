//! Errors of operations on files.

use pmindex_core::PmError;

use crate::layout::NAME_MAX;

/// An error of an operation on files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvError {
    /// There is no file of this name.
    #[error("there is no file {name:?} in the pool")]
    NoSuchFile {
        /// The name.
        name: String,
    },
    /// The name is empty or longer than 255 bytes.
    #[error("the name of a file must have 1 to {NAME_MAX} bytes; this one has {len}")]
    BadName {
        /// Its length in bytes.
        len: usize,
    },
    /// The lock of this name is held.
    #[error("{name:?} is locked; release the lock first")]
    Locked {
        /// The name.
        name: String,
    },
    /// An error of the pool.
    #[error(transparent)]
    Pool(#[from] PmError),
}

impl From<pmindex_core::DurabilityLost> for EnvError {
    fn from(lost: pmindex_core::DurabilityLost) -> Self {
        Self::Pool(lost.into())
    }
}

impl From<EnvError> for std::io::Error {
    fn from(error: EnvError) -> Self {
        use std::io::ErrorKind;
        let kind = match &error {
            EnvError::NoSuchFile { .. } => ErrorKind::NotFound,
            EnvError::BadName { .. } => ErrorKind::InvalidInput,
            EnvError::Locked { .. } => ErrorKind::WouldBlock,
            EnvError::Pool(error) if error.is_full() => ErrorKind::StorageFull,
            EnvError::Pool(PmError::ReadOnly) => ErrorKind::ReadOnlyFilesystem,
            EnvError::Pool(PmError::Corrupt { .. }) => ErrorKind::InvalidData,
            EnvError::Pool(_) => ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
