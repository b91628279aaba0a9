//! Errors of operations on a buffer.

use std::io;
use std::sync::Arc;

use pmindex_core::{DurabilityLost, PmError};

/// An error of an operation on a buffer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// An error of the pool, or of the log in it.
    #[error(transparent)]
    Pool(#[from] PmError),
    /// An error of the disk. After a failed write or sync the buffer writes nothing more to it until it is
    /// opened again: the kernel may consider data written that is not.
    #[error(
        "the disk of the buffer failed ({doing}): {error}; check the disk, then open the buffer again"
    )]
    Disk {
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        error: Arc<io::Error>,
    },
    /// All copies of the page are damaged, or log and archive lack an update of it: it cannot be read.
    #[error("page {page} is damaged beyond repair: {what}; restore a backup")]
    Damaged {
        /// The page.
        page: u64,
        /// The damage.
        what: &'static str,
    },
    /// The page was never created.
    #[error("there is no page {page}")]
    NoPage {
        /// The page.
        page: u64,
    },
    /// Another transaction changed what this one has read. Nothing was changed: run it again.
    #[error("another transaction changed a page that this one read; run the transaction again")]
    Conflict,
    /// All frames belong to pages that transactions are changing.
    #[error(
        "every frame is in use by a transaction; end some, or create a buffer with more frames"
    )]
    NoFrames,
    /// The disk is not the one with which the buffer was created.
    #[error("the disk does not belong to this buffer: {what}; open the buffer with its own disk")]
    WrongDisk {
        /// The evidence.
        what: &'static str,
    },
    /// The archive is not this buffer's, or cannot be used. Nothing was changed.
    #[error(
        "the archive does not fit this buffer: {what}; open the buffer with its own archive, with an empty one, or \
         without"
    )]
    WrongArchive {
        /// The evidence.
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
