//! Errors: one enum per kind of operation, each value says what and where.

use std::io;
use std::path::PathBuf;

use crate::mode::Durability;

/// A write-back failed (`msync` reported an error): the pool acknowledges nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a write-back failed: this pool acknowledges no more writes (reads stay possible)")]
pub struct DurabilityLost;

/// What an operation on an open pool can fail with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PmError {
    /// No block of the size is free and the pool may not grow (further).
    #[error("pool full: no room for a block of {wanted} bytes (pool of {capacity} bytes)")]
    Full {
        /// Bytes asked for.
        wanted: u64,
        /// The pool's present size in bytes.
        capacity: u64,
    },
    /// The block is larger than any the allocator gives.
    #[error("a block of {wanted} bytes is larger than the largest possible, {max} bytes")]
    TooLarge {
        /// Bytes asked for.
        wanted: u64,
        /// The largest block in bytes.
        max: u64,
    },
    /// The pool's contents break an invariant; nothing was changed.
    #[error("corrupt pool: {what} at offset {offset:#x}")]
    Corrupt {
        /// Which invariant.
        what: &'static str,
        /// Where.
        offset: u64,
    },
    /// See [`DurabilityLost`].
    #[error(transparent)]
    DurabilityLost(#[from] DurabilityLost),
    /// The pool is open for reading only.
    #[error("the pool is open for reading only")]
    ReadOnly,
    /// Every operation slot of the pool is in use.
    #[error("all {slots} operation slots are busy")]
    Busy {
        /// How many writers the pool was created for.
        slots: usize,
    },
    /// The operating system refused (growing the file, mapping it).
    #[error("{what}: {source_text}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// The system's error.
        source_text: String,
    },
}

/// What creating or opening a pool can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The operating system refused.
    #[error("{path}: {what}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The medium gives less than the caller requires.
    #[error("{path}: durability {required} was required, this medium gives {available}: {why}")]
    TooWeak {
        /// The file.
        path: PathBuf,
        /// What the caller asked for.
        required: Durability,
        /// What there is.
        available: Durability,
        /// Why not more.
        why: String,
    },
    /// The file is not a pool.
    #[error("{path}: not a pmindex pool")]
    NotAPool {
        /// The file.
        path: PathBuf,
    },
    /// The contents break an invariant.
    #[error("{path}: {error}")]
    Pool {
        /// The file.
        path: PathBuf,
        /// Which.
        error: PmError,
    },
}
