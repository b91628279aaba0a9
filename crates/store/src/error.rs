//! Errors of a store.

use pmindex_core::{OpenError, PmError};
use pmindex_error::error_enum;
use pmindex_index::{IndexError, Missing, Occupied};

error_enum! {
    /// An error of an operation on a store, a snapshot or a transaction. Nothing is changed, except for
    /// [`Unfinished`](Self::Unfinished).
    ///
    /// | error | what to do, or to tell a client |
    /// | --- | --- |
    /// | [`Conflict`](Self::Conflict), [`SnapshotEnded`](Self::SnapshotEnded) | the same again, later |
    /// | [`Dropped`](Self::Dropped) | the same again, with a new snapshot or transaction |
    /// | [`Unfinished`](Self::Unfinished) | it is done, do not do it again; make room, or drop the map |
    /// | [`Index`](Self::Index) with `PmError::Full` or `NoSpace` | make room |
    /// | [`WatchEnded`](Self::WatchEnded) | read the maps (a snapshot), then watch from now on |
    /// | [`TooLarge`](Self::TooLarge) | several transactions, or a larger pool |
    /// | the others | a mistake of the program, or a damaged pool |
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum StoreError {
        /// An error of an index or of the pool.
        #[error(transparent)]
        Index(#[from] IndexError),
        /// The pool cannot be opened.
        #[error(transparent)]
        Open(#[from] OpenError),
        /// Another commit changed what the transaction read. [`Store::transaction`](crate::Store::transaction)
        /// runs it again, up to the limit of its options.
        #[error(
            "the transaction conflicts with others, which changed what it had read ({tries} tries)"
        )]
        Conflict {
            /// The number of times it was run.
            tries: u32,
        },
        /// The snapshot or transaction kept more old values in memory than the store's options allow.
        #[error(
            "the snapshot has ended: what it would read takes more than the limit of {limit} bytes of memory"
        )]
        SnapshotEnded {
            /// The limit in bytes.
            limit: u64,
        },
        /// What the map had at the moment that is read is not known any more: it was dropped since, and the map that
        /// has its name now is another one. Or dropping it failed, or the changes of an interrupted transaction to it
        /// find no room.
        #[error(
            "what map {name:?} had at the moment that is read is not known any more: it was dropped since, or is \
             not complete"
        )]
        Dropped {
            /// Its name.
            name: String,
        },
        /// The log no longer has all commits after the position of a watch, or never had them, or a map was dropped
        /// since: a later map of its name would be mistaken for it.
        #[error(
            "the watch has ended: the log does not have all commits after its position (the store's options \
             say how much of it is kept), or a map was dropped since"
        )]
        WatchEnded,
        /// The changes of a transaction are too large.
        #[error(
            "the changes of the transaction take {bytes} bytes in the log, which has room for {max}"
        )]
        TooLarge {
            /// Their bytes.
            bytes: usize,
            /// The limit.
            max: usize,
        },
        /// The transaction is durable and has taken place, but some changes found no room or failed
        /// otherwise. They are made before the next write, or when the store is opened again.
        #[error("the transaction is durable, and its changes are made when that is possible: {0}")]
        Unfinished(#[source] IndexError),
        /// The map is open with other types of keys or values.
        #[error("map {name:?} is open with other types of keys or values")]
        OpenWithOtherTypes {
            /// Its name.
            name: String,
        },
        /// The map, or a snapshot or transaction of the store, is in use.
        #[error("{what} is in use")]
        InUse {
            /// The map, snapshot or transaction.
            what: String,
        },
        /// The map has not been opened, so its types are not known.
        #[error("map {name:?} has to be opened first, with its types")]
        NotOpen {
            /// Its name.
            name: String,
        },
        /// The map has a file of pages, which a backup of the store does not copy.
        #[error(
            "map {name:?} has a file of its own beside the pool; close the store, and copy both together"
        )]
        HasFile {
            /// Its name.
            name: String,
        },
        /// A file could not be written.
        #[error("{path}: {error}")]
        File {
            /// Its name.
            path: std::path::PathBuf,
            /// The system's error.
            error: std::io::Error,
        },
        /// The map belongs to another store.
        #[error("map {name:?} belongs to another store")]
        OtherStore {
            /// Its name.
            name: String,
        },
    }
}

impl From<PmError> for StoreError {
    fn from(error: PmError) -> Self {
        Self::Index(error.into())
    }
}

impl From<Missing> for StoreError {
    fn from(error: Missing) -> Self {
        Self::Index(error.into())
    }
}

impl From<Occupied> for StoreError {
    fn from(error: Occupied) -> Self {
        Self::Index(error.into())
    }
}
