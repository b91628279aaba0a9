//! What an operation on a buffer can fail with.

use std::io;
use std::sync::Arc;

use pmindex_core::{DurabilityLost, PmError};

/// What an operation on a buffer can fail with.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// The pool, or the log in it.
    #[error(transparent)]
    Pool(#[from] PmError),
    /// The disk. After a failed write or sync nothing is written to it any more until the buffer is opened
    /// again: the kernel may take for written what is not.
    #[error("the disk of the buffer: {doing}: {error}")]
    Disk {
        /// What was done.
        doing: &'static str,
        /// The system's error.
        error: Arc<io::Error>,
    },
    /// A page whose copies are all damaged, or which the log does not lead to: it is not served.
    #[error("page {page} is damaged beyond repair: {what}")]
    Damaged {
        /// Which.
        page: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The page was never created.
    #[error("there is no page {page}")]
    NoPage {
        /// Which.
        page: u64,
    },
    /// Another transaction changed what this one read. Nothing was changed: run it again.
    #[error("another transaction changed what this one read")]
    Conflict,
    /// Every frame is taken by pages that transactions are changing.
    #[error("every frame is in use by a transaction")]
    NoFrames,
    /// The disk is not the one that the buffer was made with.
    #[error("the disk does not belong to this buffer: {what}")]
    WrongDisk {
        /// How it shows.
        what: &'static str,
    },
}

impl From<DurabilityLost> for BufferError {
    fn from(error: DurabilityLost) -> Self {
        Self::Pool(error.into())
    }
}

impl BufferError {
    pub(crate) fn disk(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Disk { doing, error: Arc::new(error) }
    }
}
