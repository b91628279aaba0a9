//! The errors of a log.

use std::sync::Arc;
use std::time::Duration;

use pmindex_error::error_enum;

use crate::group::Abandoned;
use crate::layout::LogId;

error_enum! {
    /// The errors of a log.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub enum LogError {
        /// The file holds no log, or the creation of its log was interrupted.
        #[error("the file holds no log, or one whose creation was interrupted; create the log again")]
        NotALog,
        /// The log was written in a format that this library does not know.
        #[error(
            "the log has format {found}, and this version reads format {supported}; use the version that \
             wrote it"
        )]
        Version {
            /// The log's format.
            found: u64,
            /// The format that this library supports.
            supported: u64,
        },
        /// Neither head is intact.
        #[error("both heads of the log are damaged, so its records cannot be found")]
        Damaged,
        /// The file is shorter than its log.
        #[error("the log is truncated: the file has {len} of its {expected} bytes")]
        Cut {
            /// The file's bytes.
            len: u64,
            /// The bytes that the log needs.
            expected: u64,
        },
        /// A batch is missing before another one.
        #[error(
            "the disk lost a batch at offset {offset} of the log: the next one, at {later}, is intact"
        )]
        Hole {
            /// Where the missing batch should be.
            offset: u64,
            /// Where the next one is.
            later: u64,
        },
        /// The log is not the one that the caller names.
        #[error("the file holds another log: {found}; expected {expected}")]
        Foreign {
            /// The log asked for.
            expected: LogId,
            /// The log found.
            found: LogId,
        },
        /// A number that is out of range for a log.
        #[error("{value} is not a valid {what}")]
        BadOption {
            /// What the number means.
            what: &'static str,
            /// The number.
            value: u64,
        },
        /// The records do not fit in a batch, even in an empty log.
        #[error(
            "{bytes} bytes of records are too many for one batch: this log takes at most {most}; append less \
             at once, or create a larger log"
        )]
        TooLarge {
            /// Bytes of the records.
            bytes: u64,
            /// The largest number of bytes.
            most: u64,
        },
        /// The horizon has not moved in time, and nothing showed that it would.
        #[error(
            "the log is full: a batch needs {wanted} bytes, and the horizon, which frees old records, has not \
             moved for {waited:?}; move it sooner, or create a larger log"
        )]
        Full {
            /// Bytes of the batch.
            wanted: u64,
            /// The time it waited.
            waited: Duration,
        },
        /// The records asked for lie before the horizon.
        #[error("the records at offset {offset} are gone: the log begins at its horizon, {horizon}")]
        Gone {
            /// The offset asked for.
            offset: u64,
            /// The horizon.
            horizon: u64,
        },
        /// A write or a sync has failed: the log takes no more writes.
        #[error(
            "the log takes no more writes since {what} failed: {why}; check the disk, then open the log again"
        )]
        Lost {
            /// The failed action.
            what: &'static str,
            /// The system's message.
            why: Arc<str>,
        },
        /// The system refused an action, and no data is lost.
        #[error("{what}: {why}")]
        Io {
            /// The refused action.
            what: &'static str,
            /// The kind of failure.
            kind: std::io::ErrorKind,
            /// The system's message.
            why: Arc<str>,
        },
        /// The thread that wrote for this one panicked.
        #[error(
            "the thread that wrote this batch for its group panicked, so the batch may or may not be \
             durable; open the log again"
        )]
        Abandoned,
    }
}

impl LogError {
    pub(crate) fn io(what: &'static str, error: &std::io::Error) -> Self {
        Self::Io { what, kind: error.kind(), why: error.to_string().into() }
    }

    pub(crate) fn lost(what: &'static str, error: &std::io::Error) -> Self {
        Self::Lost { what, why: error.to_string().into() }
    }
}

impl From<Abandoned> for LogError {
    fn from(_: Abandoned) -> Self {
        Self::Abandoned
    }
}
