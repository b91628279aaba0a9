//! What the program can fail with.

use std::fmt::Display;
use std::path::PathBuf;

pmindex_error::error_enum! {
/// What the program can fail with.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The network or a file.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A pool cannot be opened.
    #[error("{path}: {source}")]
    Pool {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: Box<pmindex_core::OpenError>,
    },
    /// A partition cannot be opened.
    #[error("{path}: {source}")]
    Engine {
        /// Its pool.
        path: PathBuf,
        /// Why.
        source: pmindex_rstore::Error,
    },
    /// A replica of a group cannot be opened.
    #[error("{path}: {source}")]
    Group {
        /// Its pool.
        path: PathBuf,
        /// Why.
        source: pmindex_replica::Error,
    },
    /// A partition holds what this server did not write.
    #[error("partition {number}: {what}")]
    Place {
        /// Which.
        number: usize,
        /// What.
        what: String,
    },
    /// A folder is not a server's, or has other partitions.
    #[error("{path}: {what}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The configuration file.
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
    /// Certificates or keys.
    #[error("TLS: {0}")]
    Tls(String),
    /// The other side does not speak the protocol.
    #[error("the server's reply violates the protocol: {0}")]
    Protocol(String),
    /// A trial found something else than what was acknowledged.
    #[error("{lost} of {acknowledged} acknowledged records are missing after the restart")]
    Lost {
        /// How many are missing or differ.
        lost: u64,
        /// How many were acknowledged.
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
