//! What can go wrong with a log.

use std::sync::Arc;
use std::time::Duration;

use pmindex_error::error_enum;

use crate::group::Abandoned;
use crate::layout::LogId;

error_enum! {
    /// What a log can fail with.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub enum LogError {
        /// The file holds no log, or its making was interrupted.
        #[error("no log, or one whose making was interrupted")]
        NotALog,
        /// The log was written in a format that this library does not know.
        #[error("log format {found}; this library reads format {supported}")]
        Version {
            /// The log's.
            found: u64,
            /// This library's.
            supported: u64,
        },
        /// Neither head is whole.
        #[error("both heads of the log are damaged")]
        Damaged,
        /// The file is shorter than its log.
        #[error("the log is cut: {len} bytes of {expected}")]
        Cut {
            /// Bytes there are.
            len: u64,
            /// Bytes there should be.
            expected: u64,
        },
        /// A batch is missing before another one.
        #[error(
            "the disk lost what was written at offset {offset} of the log: there is more at {later}"
        )]
        Hole {
            /// Where the batch should be.
            offset: u64,
            /// Where the next one is.
            later: u64,
        },
        /// The log is another one than the caller names.
        #[error("the log is {found}, and {expected} was asked for")]
        Foreign {
            /// Whose log was asked for.
            expected: LogId,
            /// Whose it is.
            found: LogId,
        },
        /// A number that no log can have.
        #[error("{value} is not a possible {what}")]
        BadOption {
            /// Of what.
            what: &'static str,
            /// The number.
            value: u64,
        },
        /// The records do not fit into a batch, however empty the log is.
        #[error("{bytes} bytes are too many for one batch of this log, which has room for {most}")]
        TooLarge {
            /// Bytes of the records.
            bytes: u64,
            /// The most there may be.
            most: u64,
        },
        /// Nobody has moved the horizon in time.
        #[error(
            "the log is full: {wanted} bytes are wanted, and its horizon has not moved for {waited:?}"
        )]
        Full {
            /// Bytes of the batch.
            wanted: u64,
            /// How long it waited.
            waited: Duration,
        },
        /// What is to be read is before the horizon.
        #[error("offset {offset} is before the horizon of the log, {horizon}")]
        Gone {
            /// What was asked for.
            offset: u64,
            /// The horizon.
            horizon: u64,
        },
        /// A write or a sync has failed: nothing is taken any more.
        #[error("the log is lost since {what} failed: {why}")]
        Lost {
            /// What failed.
            what: &'static str,
            /// The system's words.
            why: Arc<str>,
        },
        /// The system refused, and nothing is lost.
        #[error("{what}: {why}")]
        Io {
            /// What was tried.
            what: &'static str,
            /// The kind of failure.
            kind: std::io::ErrorKind,
            /// The system's words.
            why: Arc<str>,
        },
        /// The thread that wrote for this one panicked.
        #[error("the thread that wrote for this one has panicked")]
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
