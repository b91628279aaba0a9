//! Errors: one enum per kind of operation; each value says what is wrong and where.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use pmindex_error::error_enum;

use crate::mode::{Durability, FlushInstruction};

/// A durability guarantee is broken for good: a write to the disk failed, now or earlier.
///
/// In modes `Msync` and `Journal` a fence fails with this error, and the pool acknowledges nothing from then
/// on. In modes `Process` and `Periodic` [`Pool::sync`](crate::Pool::sync) fails with it; writes continue,
/// and survive a kill of the process only. A fence also fails with it if the pool is open for reading only
/// and a caller wrote without [asking](crate::Pool::check_writable).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurabilityLost;

impl fmt::Display for DurabilityLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a write to the disk failed, or the pool is open for reading only, so no write is durable from \
             now on; check the disk and the kernel's log, then close the pool and open it again",
        )
    }
}

impl std::error::Error for DurabilityLost {}

impl DurabilityLost {
    /// Turns the outcome of tidying up after a durable write into the write's outcome: a disk that fails only
    /// then does not undo the write, so it is acknowledged.
    ///
    /// # Errors
    /// Those of `tidied` except [`PmError::DurabilityLost`].
    pub fn after_the_write(tidied: Result<(), PmError>) -> Result<(), PmError> {
        match tidied {
            Err(PmError::DurabilityLost(_)) => Ok(()),
            other => other,
        }
    }
}

error_enum! {
    /// The errors of operations on an open pool.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum PmError {
        /// No block of the size is free and the pool may not grow (further).
        #[error(
            "pool full: it has no free block of {wanted} bytes, and may not grow beyond its {capacity} \
             bytes; remove records, or allow it to grow (PoolOptions::grow, PoolOptions::max_size)"
        )]
        Full {
            /// Bytes asked for.
            wanted: u64,
            /// The pool's present size in bytes.
            capacity: u64,
        },
        /// The block is larger than any the allocator gives.
        #[error(
            "a block of {wanted} bytes is too large: this pool has blocks of at most {max} bytes; store \
             less at once, or create a pool with larger zones (PoolOptions::zone_bytes)"
        )]
        TooLarge {
            /// Bytes asked for.
            wanted: u64,
            /// The largest block in bytes.
            max: u64,
        },
        /// The pool's contents break an invariant; nothing was changed.
        #[error(
            "corrupt pool: {what} at offset {offset:#x}; restore a backup, or save the readable records \
             (pmindex check POOL --repair NEW)"
        )]
        Corrupt {
            /// The invariant.
            what: &'static str,
            /// The offset where it is broken.
            offset: u64,
        },
        /// Damage ([`Corrupt`](Self::Corrupt)) was found in the pool since it was opened: it takes no more
        /// writes.
        #[error(
            "the pool is damaged ({what} at offset {offset:#x}) and refuses writes; restore a backup, or \
             save the readable records (pmindex check POOL --repair NEW)"
        )]
        Damaged {
            /// The first invariant that was found broken.
            what: &'static str,
            /// The offset where it is broken.
            offset: u64,
        },
        /// See [`DurabilityLost`].
        #[error(transparent)]
        DurabilityLost(#[from] DurabilityLost),
        /// The pool is open for reading only.
        #[error("the pool is open for reading only; open it for writing to change it")]
        ReadOnly,
        /// An operation changes more blocks than its slot has tickets for.
        #[error(
            "the operation allocates and frees more than {max} blocks, the limit of this pool; split it, or \
             create a pool with larger slots (PoolOptions::slot_bytes)"
        )]
        TooManyTickets {
            /// The number of tickets in a slot.
            max: usize,
        },
        /// Every operation slot of the pool is in use.
        #[error(
            "all {slots} operation slots of the pool are in use; try again, or create a pool with more \
             (PoolOptions::slots)"
        )]
        Busy {
            /// The number of writers that the pool was created for.
            slots: usize,
        },
        /// The file system has no room for the pool to grow; nothing was changed.
        #[error(
            "no space on the device: the pool cannot grow by {wanted} bytes; free space on its file system \
             and try again"
        )]
        NoSpace {
            /// Bytes asked for.
            wanted: u64,
        },
        /// The process was forked after the pool was opened: the pool belongs to the parent. Open it again in
        /// the child, after the parent has closed it.
        #[error(
            "this process was forked after the pool was opened, and the pool belongs to the parent; open it \
             in the child after the parent has closed it"
        )]
        Forked,
        /// The pool already has an index of this name.
        #[error("the pool already has an index named {name:?}; open it, or choose another name")]
        NameTaken {
            /// The name.
            name: String,
        },
        /// The index, or another structure of the pool, is already open in this process: two handles would
        /// have two sets of locks over one structure. Share the handle among threads.
        #[error("{what} is already open in this process; share the handle, or drop it first")]
        AlreadyOpen {
            /// The structure.
            what: String,
        },
        /// A name of an index is empty or too long.
        #[error("the name of an index must have 1 to {max} bytes; this one has {len}")]
        BadName {
            /// Its length in bytes.
            len: usize,
            /// The limit in bytes.
            max: usize,
        },
        /// The directory has no room for another index.
        #[error(
            "the pool already has {entries} indexes, the most that a pool can have; remove one, or create \
             another pool"
        )]
        DirectoryFull {
            /// The number of indexes it can have.
            entries: usize,
        },
        /// A value that this option cannot have.
        #[error("{value} is not a valid {what}")]
        BadOption {
            /// The option.
            what: &'static str,
            /// Its value.
            value: u64,
        },
        /// The CPU has no such flush instruction.
        #[error(
            "this CPU has no flush instruction {instruction}; leave the choice to the library, or choose \
             another (PoolOptions::flush_instruction)"
        )]
        NoInstruction {
            /// The instruction asked for.
            instruction: FlushInstruction,
        },
        /// The operating system refused a request (growing the file, mapping it).
        #[error("{what}: {source_text}")]
        Os {
            /// The request.
            what: &'static str,
            /// The system's error.
            source_text: String,
        },
    }
}

impl PmError {
    /// Returns `true` if the error is a lack of room: the pool may not grow ([`Full`](Self::Full)), or its device is
    /// full ([`NoSpace`](Self::NoSpace)). Operations that need no room still succeed then.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::NoSpace { .. })
    }
}

error_enum! {
    /// The errors of creating or opening a pool. Each value says which file, what is wrong, and what to do.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum OpenError {
        /// No such file.
        #[error("{path}: no such file; create the pool first")]
        NotFound {
            /// The file.
            path: PathBuf,
        },
        /// The directory of the file to create does not exist.
        #[error("{path}: there is no directory {directory}; make it first")]
        NoDirectory {
            /// The file.
            path: PathBuf,
            /// Its directory.
            directory: PathBuf,
        },
        /// The file to create exists.
        #[error("{path}: already exists; open it, or remove it first")]
        AlreadyExists {
            /// The file.
            path: PathBuf,
        },
        /// The permissions of the file or its directory forbid it.
        #[error("{path}: permission denied ({what}); check the owner and mode, or open read-only")]
        PermissionDenied {
            /// The file.
            path: PathBuf,
            /// The refused action.
            what: &'static str,
        },
        /// Neither a regular file nor a device-DAX device.
        #[error("{path}: {found}; a pool is a regular file or a device-DAX device")]
        NotAFile {
            /// The file.
            path: PathBuf,
            /// The kind of thing found there.
            found: &'static str,
        },
        /// Another opener holds the pool's lock.
        #[error("{path}: in use by another process, or already open in this one; close it there first")]
        Locked {
            /// The file.
            path: PathBuf,
        },
        /// The file system has no room for the pool.
        #[error(
            "{path}: no space for {wanted} bytes on this file system; free some, or create a smaller pool"
        )]
        NoSpace {
            /// The file.
            path: PathBuf,
            /// Bytes asked for.
            wanted: u64,
        },
        /// The file is not a pool: the magic is missing. (On a device, a creation may have been interrupted.)
        #[error(
            "{path}: not a pmindex pool; check the path. If it was one, its first pages are lost: restore a \
             backup, and keep the file until you have done so"
        )]
        NotAPool {
            /// The file.
            path: PathBuf,
        },
        /// The pool was written in a format that this library does not know.
        #[error(
            "{path}: the pool has format {found}, and this version of pmindex reads formats up to \
             {supported}; use a later version"
        )]
        UnsupportedVersion {
            /// The file.
            path: PathBuf,
            /// The pool's format.
            found: u64,
            /// The newest format this library reads.
            supported: u64,
        },
        /// The file is shorter than the pool in it.
        #[error("{path}: truncated: the file has {len} of the pool's {expected} bytes; restore a backup")]
        Truncated {
            /// The file.
            path: PathBuf,
            /// The file's bytes.
            len: u64,
            /// The bytes it should have.
            expected: u64,
        },
        /// Metadata fail their checksum or contradict each other.
        #[error("{path}: damaged: {what} at offset {offset:#x}; restore a backup")]
        Damaged {
            /// The file.
            path: PathBuf,
            /// The damaged part.
            what: &'static str,
            /// Its offset.
            offset: u64,
        },
        /// An option that this pool or platform cannot provide.
        #[error("{path}: {value} is not a valid {what}")]
        BadOption {
            /// The file.
            path: PathBuf,
            /// The option.
            what: &'static str,
            /// Its value.
            value: String,
        },
        /// The pool was not closed, so it needs its journal, and the journal is missing.
        #[error(
            "{path}: its journal {journal} is missing, which holds writes that the file does not; put it \
             back, or restore a backup, or accept the loss with PoolOptions::accept_journal_loss"
        )]
        JournalMissing {
            /// The file.
            path: PathBuf,
            /// Where the journal should be.
            journal: PathBuf,
        },
        /// The pool was not closed, and the file in its journal's place is another journal.
        #[error(
            "{path}: {journal} is not its journal: {why}; put the right one there, or restore a backup"
        )]
        JournalForeign {
            /// The file.
            path: PathBuf,
            /// The journal found there.
            journal: PathBuf,
            /// Which journal it is.
            why: &'static str,
        },
        /// The pool was not closed, and its journal cannot be read.
        #[error("{path}: its journal {journal} cannot be used: {why}; restore a backup")]
        JournalDamaged {
            /// The file.
            path: PathBuf,
            /// The journal.
            journal: PathBuf,
            /// The fault found in it.
            why: String,
        },
        /// In the place of the pool's journal there is another pool's, which that pool may still need, or a
        /// file that is no journal.
        #[error("{path}: its journal cannot be created, since {journal} exists: {why}; move that file away")]
        JournalInTheWay {
            /// The file.
            path: PathBuf,
            /// The file in the way.
            journal: PathBuf,
            /// What kind of file it is.
            why: String,
        },
        /// The caller asked for a twin, but the pool does not lie in memory.
        #[error(
            "{path}: a pool with a twin ({twin}) must lie in memory, on tmpfs, and this file does not: the system \
             would write it back in any order; put it on tmpfs, or use a journal (PoolOptions::journal) \
             instead of a twin"
        )]
        TwinNotInMemory {
            /// The file.
            path: PathBuf,
            /// The twin.
            twin: PathBuf,
        },
        /// The file in the twin's place is no twin of this pool, or belongs to a later state of it.
        #[error("{path}: {twin} is not its twin: {why}")]
        TwinForeign {
            /// The file.
            path: PathBuf,
            /// The file found there.
            twin: PathBuf,
            /// The kind of file, and what to do.
            why: String,
        },
        /// The pool is no longer in memory, and its twin cannot be read.
        #[error("{path}: its twin {twin} cannot be used: {why}; restore a backup")]
        TwinDamaged {
            /// The file.
            path: PathBuf,
            /// The twin.
            twin: PathBuf,
            /// The fault found in it.
            why: String,
        },
        /// The medium provides less durability than the caller requires.
        #[error(
            "{path}: durability {required} was required, this medium gives {available}: {why}; put the pool \
             on another medium, or require less (PoolOptions::require)"
        )]
        TooWeak {
            /// The file.
            path: PathBuf,
            /// The durability that the caller requires.
            required: Durability,
            /// The durability that the medium provides.
            available: Durability,
            /// The reason why it is not more.
            why: String,
        },
        /// The platform reports that a power failure lost data in the modules while the pool was open.
        #[error(
            "{path}: the memory modules report {found} dirty shutdowns, {recorded} when the pool was \
             last opened, and it was not closed since: acknowledged data may be lost; restore a backup, \
             or accept the loss with PoolOptions::accept_dirty_shutdown"
        )]
        DirtyShutdown {
            /// The file.
            path: PathBuf,
            /// The count when the pool was last opened.
            recorded: u64,
            /// The count now.
            found: u64,
        },
        /// The operating system refused.
        #[error("{path}: {what}: {source}")]
        Io {
            /// The file.
            path: PathBuf,
            /// The refused action.
            what: &'static str,
            /// The system's error.
            source: io::Error,
        },
        /// The contents break an invariant, or recovery failed.
        #[error("{path}: {error}")]
        Pool {
            /// The file.
            path: PathBuf,
            /// The error.
            error: PmError,
        },
    }
}

/// An [`OpenError`] before the file's name is known.
#[derive(Debug)]
pub(crate) enum OpenFault {
    NotAPool,
    Version { found: u64, supported: u64 },
    Truncated { len: u64, expected: u64 },
    Damaged { what: &'static str, offset: u64 },
    BadOption { what: &'static str, value: String },
    TooWeak { required: Durability, available: Durability, why: String },
    DirtyShutdown { recorded: u64, found: u64 },
    Pool(PmError),
}

impl From<PmError> for OpenFault {
    fn from(error: PmError) -> Self {
        Self::Pool(error)
    }
}

impl From<DurabilityLost> for OpenFault {
    fn from(lost: DurabilityLost) -> Self {
        Self::Pool(lost.into())
    }
}

impl OpenFault {
    /// Adds the path of the pool.
    pub(crate) fn at(self, path: &Path) -> OpenError {
        let path = path.to_path_buf();
        match self {
            Self::NotAPool => OpenError::NotAPool { path },
            Self::Version { found, supported } => {
                OpenError::UnsupportedVersion { path, found, supported }
            }
            Self::Truncated { len, expected } => OpenError::Truncated { path, len, expected },
            Self::Damaged { what, offset } => OpenError::Damaged { path, what, offset },
            Self::BadOption { what, value } => OpenError::BadOption { path, what, value },
            Self::TooWeak { required, available, why } => {
                OpenError::TooWeak { path, required, available, why }
            }
            Self::DirtyShutdown { recorded, found } => {
                OpenError::DirtyShutdown { path, recorded, found }
            }
            Self::Pool(PmError::BadOption { what, value }) => {
                OpenError::BadOption { path, what, value: value.to_string() }
            }
            Self::Pool(error) => OpenError::Pool { path, error },
        }
    }
}
