//! Errors of the server and its tools.

use std::fmt::Display;
use std::path::PathBuf;

pmindex_error::error_enum! {
/// An error of the server or one of its tools.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file or the network failed.
    #[error("{what}: {source}")]
    Io {
        /// The file, the address or the action.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A pool cannot be opened.
    #[error("{source}")]
    Pool {
        /// Its file.
        path: PathBuf,
        /// The error, which names the file.
        source: Box<pmindex_core::OpenError>,
    },
    /// A partition cannot be opened.
    #[error("{path}: {source}")]
    Engine {
        /// Its pool.
        path: PathBuf,
        /// The error of the engine.
        source: pmindex_rstore::Error,
    },
    /// A replica of a group cannot be opened.
    #[error("{path}: {source}")]
    Group {
        /// Its pool.
        path: PathBuf,
        /// The error of the replica.
        source: pmindex_replica::Error,
    },
    /// A partition holds records that this server did not write.
    #[error("partition {number} cannot be read as one of this server: {what}; restore a backup")]
    Place {
        /// The number of the partition.
        number: usize,
        /// The record that is wrong.
        what: String,
    },
    /// A folder does not belong to a server, or has another number of partitions.
    #[error("{path}: {what}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
    /// The configuration file is wrong.
    #[error("{path}: {what}")]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A setting is missing or does not go with another.
    #[error("{0}")]
    Setting(&'static str),
    /// A certificate or a key cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// The other side does not speak the protocol.
    #[error("the server's reply violates the protocol: {0}")]
    Protocol(String),
    /// A trial found that acknowledged records are missing or differ.
    #[error("{lost} of {acknowledged} acknowledged records are missing or differ after the restart: please report this bug")]
    Lost {
        /// The number of records that are missing or differ.
        lost: u64,
        /// The number of acknowledged records.
        acknowledged: u64,
    },
    /// A server did not do what it should.
    #[error("the server {0}")]
    Server(String),
}
}

impl Error {
    pub(crate) fn io(what: impl Display) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.to_string();
        move |source| Self::Io { what, source }
    }
}
