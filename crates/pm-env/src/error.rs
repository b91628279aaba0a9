//! What can go wrong.

use pmindex_core::PmError;

use crate::layout::NAME_MAX;

/// What an operation on files can fail with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvError {
    /// There is no file of this name.
    #[error("there is no file {name:?}")]
    NoSuchFile {
        /// The name.
        name: String,
    },
    /// A name has 1 to 255 bytes.
    #[error("a name of {len} bytes: 1 to {NAME_MAX} are possible")]
    BadName {
        /// Its bytes.
        len: usize,
    },
    /// Somebody has the lock of this name.
    #[error("{name:?} is locked")]
    Locked {
        /// The name.
        name: String,
    },
    /// The pool's.
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
