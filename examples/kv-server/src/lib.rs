//! A key-value server that speaks Redis's protocol (RESP2) and keeps its state in a pool.
//!
//! What it is meant to show: a service with an ordered index as its only state. There is no log to
//! replay and no snapshot to load; a reply to a write is sent when the write is durable in the mode
//! of the pool, and after `kill -9` the server answers again in milliseconds with every write that
//! it had acknowledged.
//!
//! | file | what |
//! | --- | --- |
//! | `store` | the pool and the index in it |
//! | `resp` | the protocol: requests in, replies out, with limits on both |
//! | `command` | what each command does |
//! | `scan` | `SCAN`, `KEYS` and `RANGE`: keys in order, cursors, patterns |
//! | `server` | connections, one thread each, and a clean end |
//! | `client` | a small client |
//! | `load`, `trial` | a load generator; kill, restart, verify, with the times |
//! | `service`, `compare` | servers as processes; the same trial of Redis, and of redb (feature `redb`) |
//!
//! Commands: `PING`, `ECHO`, `GET`, `SET` (`NX`, `XX`, `GET`), `SETNX`, `GETSET`, `GETDEL`, `DEL`,
//! `UNLINK`, `EXISTS`, `STRLEN`, `MGET`, `MSET`, `DBSIZE`, `FLUSHDB`, `SCAN` (`MATCH`, `COUNT`), `KEYS`,
//! `RANGE`, `INFO`, `SAVE` (waits until what was acknowledged survives a power failure), `SELECT 0`,
//! `SHUTDOWN`, `QUIT`, and of `COMMAND`, `CONFIG`, `CLIENT` what redis-cli and
//! redis-benchmark ask for. `MSET` is atomic key by key, not as a whole. There is no expiry.
#![forbid(unsafe_code)]

mod client;
mod command;
mod compare;
mod load;
#[cfg(feature = "redb")]
mod redb_trial;
mod resp;
mod scan;
mod server;
mod service;
mod store;
mod trial;

pub use client::{Client, Reply};
pub use compare::{CompareArgs, compare};
pub use load::{LoadArgs, load};
#[cfg(feature = "redb")]
pub use redb_trial::{RedbArgs, read as redb_read, write as redb_write};
pub use resp::ProtocolError;
pub use server::{ServeArgs, serve};
pub use store::{StoreArgs, StoreError, Wanted};
pub use trial::{TrialArgs, trial};

/// What the program can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool or the index.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The network.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The other side does not speak the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// redb.
    #[cfg(feature = "redb")]
    #[error("redb: {0}")]
    Redb(#[from] redb::Error),
    /// A trial found something else than what was acknowledged.
    #[error("{lost} of {acknowledged} acknowledged records are not there after the restart")]
    Lost {
        /// How many are missing or differ.
        lost: u64,
        /// How many were acknowledged.
        acknowledged: u64,
    },
    /// The server did not do what it should.
    #[error("the server {0}")]
    Server(String),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what: what.into(), source }
    }
}
