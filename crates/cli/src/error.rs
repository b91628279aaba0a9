//! Errors of the commands, each with a hint about what to do next.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use pmindex::IndexError;
use pmindex::core::{OpenError, PmError};
#[cfg(feature = "tools")]
use pmindex_named::NamedError;
use pmindex_pibench::{BenchError, Fault, Phase};

/// An error of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// No index has this name.
    #[cfg(feature = "tools")]
    #[error("there is no index called {name:?}")]
    UnknownIndex {
        /// The name that was given.
        name: String,
    },
    /// The pool could not be created or opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store failed.
    #[cfg(feature = "tools")]
    #[error(transparent)]
    Store(#[from] pmindex::StoreError),
    /// The pool failed.
    #[error(transparent)]
    Pool(#[from] PmError),
    /// A file of keys cannot be used.
    #[error("{}: {what}", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// The reason.
        what: String,
    },
    /// A folder does not exist.
    #[error("{} is not a folder", dir.display())]
    NoFolder {
        /// The folder that was given.
        dir: PathBuf,
    },
    /// Another process could not be started or killed.
    #[error("cannot start or stop another process: {0}")]
    Child(io::Error),
    /// The child process ended before it was killed.
    #[error("the writing process ended before it was killed ({status})")]
    ChildEnded {
        /// How it ended.
        status: ExitStatus,
    },
    /// The child process did not reopen the pool.
    #[error("{index}: the process that should reopen the pool ended without doing so ({status})")]
    NotOpened {
        /// The index.
        index: String,
        /// How the process ended.
        status: ExitStatus,
    },
    /// Data that two processes exchange could not be written or read.
    #[error("cannot exchange data with the other process: {0}")]
    Pipe(io::Error),
    /// Acknowledged writes were lost, or unwritten records appeared.
    #[error("after the kill, the pool does not hold exactly the acknowledged writes")]
    Lost,
    /// Something went wrong with a pool whose writers were killed. The pool is kept.
    #[error(
        "{error}\nkept: {} (and what lies beside it under this name){}; seed: {seed}",
        pool.display(), crate::temp_file::and_twin(pool)
    )]
    Kept {
        /// What went wrong.
        error: Box<Self>,
        /// The pool.
        pool: PathBuf,
        /// The seed of the trial.
        seed: u64,
    },
    /// No process was killed, so nothing is shown.
    #[error("{of}: no process was killed in this time, so nothing is shown")]
    NoKill {
        /// The kind of index, or the store.
        of: &'static str,
    },
    /// Keys are missing.
    #[error("the index has no key {}", keys.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(", "))]
    NoKey {
        /// Those that were given and are missing.
        keys: Vec<String>,
    },
    /// The pool has no index of this name, or none at all.
    #[error("the pool has no index{}", name.as_ref().map_or_else(String::new, |n| format!(" named {n:?}")))]
    NoIndex {
        /// The name that was given.
        name: Option<String>,
        /// The indexes of the pool.
        there: Vec<String>,
    },
    /// The pool has several indexes, and no name was given.
    #[error("the pool has {} indexes, and no --index", there.len())]
    WhichIndex {
        /// The indexes of the pool.
        there: Vec<String>,
    },
    /// An index that is known by name failed.
    #[cfg(feature = "tools")]
    #[error(transparent)]
    Named(#[from] NamedError),
    /// An index has batches that a crash interrupted; finishing them would undo other writes.
    #[error(
        "a crash interrupted {} of index {name:?}",
        crate::table::counted(*batches, "batch", "batches")
    )]
    InterruptedBatches {
        /// The index.
        name: String,
        /// The number of batches.
        batches: u64,
    },
    /// A store has transactions that a crash interrupted; finishing them would undo other writes.
    #[error(
        "a crash interrupted {} of the store in this pool",
        crate::table::counted(*transactions, "transaction", "transactions")
    )]
    UnfinishedTransactions {
        /// The number of transactions.
        transactions: u64,
    },
    /// The log of a store is damaged.
    #[error("the log of the store in this pool is damaged: {error}")]
    StoreLog {
        /// The error.
        error: String,
    },
    /// The process that writes to a pool cannot be stopped for a backup.
    #[error("{}: {what}", path.display())]
    WriterBusy {
        /// The pool.
        path: PathBuf,
        /// The reason.
        what: String,
    },
    /// Some indexes are damaged.
    #[error("{} damaged", indexes_are(*indexes))]
    Damaged {
        /// The number of damaged indexes.
        indexes: usize,
    },
    /// Some indexes of the pool to back up are damaged, and there is an earlier backup.
    #[error("{} damaged; {} is unchanged", indexes_are(*indexes), path.display())]
    NotReplaced {
        /// The number of damaged indexes.
        indexes: usize,
        /// The earlier backup.
        path: PathBuf,
    },
    /// Some indexes are damaged; their readable records are in a new pool.
    #[error("{} damaged; what could be saved is in {}", indexes_are(*indexes), path.display())]
    Repaired {
        /// The number of damaged indexes.
        indexes: usize,
        /// The new pool.
        path: PathBuf,
    },
    /// A dump is wrong.
    #[error("{}, line {line}: {what}", path.display())]
    Dump {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// A file could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The backup failed.
    #[error(transparent)]
    Backup(#[from] pmindex::BackupError),
    /// The file to create exists.
    #[error("{}: already exists", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The pool to create exists, and the command replaces none.
    #[error("{}: already exists", path.display())]
    PoolExists {
        /// The pool.
        path: PathBuf,
    },
    /// Standard output failed.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
    /// An error that does not name the pool in which it occurred.
    #[error("{}: {error}", pool.display())]
    In {
        /// The pool.
        pool: PathBuf,
        /// The error.
        error: Box<Self>,
    },
    /// The file exists under which a new pool is filled.
    #[error(
        "{}: already exists: a command that filled it was interrupted, or one is filling it now",
        path.display()
    )]
    Partial {
        /// The file.
        path: PathBuf,
    },
    /// The file to write is a folder.
    #[error("{}: is a folder; name a file in it", path.display())]
    IsFolder {
        /// The folder.
        path: PathBuf,
    },
    /// A pool that should be closed is still open.
    #[error("{}: still in use after its index was closed", path.display())]
    StillOpen {
        /// The file.
        path: PathBuf,
    },
    /// An operation does not have its documented cost.
    #[error(
        "{index}: {phase} flushes {} lines with {} fences; it should flush {} with {}",
        found.0, found.1, golden.0, golden.1
    )]
    Cost {
        /// The index.
        index: &'static str,
        /// The operation.
        phase: Phase,
        /// The most frequent cost: lines, fences.
        found: (u64, u64),
        /// The documented cost.
        golden: (u64, u64),
    },
    /// Recovery found a number of records that differs from the number written.
    #[error("{index}: recovery found {records} records instead of {expected}")]
    Recovered {
        /// The index.
        index: &'static str,
        /// The number found.
        records: u64,
        /// The number written.
        expected: u64,
    },
    /// A measurement failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// A store failed outside a measurement.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The command line is wrong: options that contradict each other, or a value out of bounds.
    #[error("{what}")]
    Usage {
        /// The reason.
        what: String,
    },
    /// tmpfs has no room for what a benchmark needs, and it was not told where else to measure.
    #[error(
        "tmpfs has no room for {} in {}, and on a disk each fence waits for it",
        crate::table::bytes(*wanted), crate::temp_file::TMPFS
    )]
    NoRoom {
        /// The bytes.
        wanted: u64,
    },
    /// A pool or an index, or this machine, does not support what was asked for.
    #[error("{what}")]
    Option {
        /// The reason.
        what: String,
    },
    /// An index failed outside a measurement.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// JSON could not be read or written.
    #[error("cannot read or write JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// What to do if a pool is full.
const NO_ROOM: &str = "remove records, or free space on the file system of the pool";

impl CliError {
    /// Returns the error that a file to create exists.
    #[cfg(feature = "tools")]
    pub(crate) fn exists(path: &Path) -> Self {
        let path = path.to_path_buf();
        if path.is_dir() { Self::IsFolder { path } } else { Self::Exists { path } }
    }

    /// Adds the path of the pool, where the error does not name it.
    #[cfg(feature = "tools")]
    pub(crate) fn in_pool(self, pool: &Path) -> Self {
        match self {
            Self::Pool(_)
            | Self::Store(_)
            | Self::Named(_)
            | Self::Index(_)
            | Self::StoreLog { .. } => Self::In { pool: pool.to_path_buf(), error: Box::new(self) },
            error => error,
        }
    }

    /// Returns the exit code of the program: 2 for a wrong command line, as clap has it, else 1.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage { .. } => 2,
            #[cfg(feature = "tools")]
            Self::UnknownIndex { .. } => 2,
            _ => 1,
        }
    }

    /// Returns what to do next, if anything can be done.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            #[cfg(feature = "tools")]
            Self::UnknownIndex { .. } => {
                Some(format!("choose from: {}", crate::registry::names().join(", ")))
            }
            Self::Kept { error, .. } | Self::In { error, .. } => error.hint(),
            Self::Open(OpenError::NotAPool { path }) => {
                let empty =
                    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0);
                empty.then(|| {
                    "the file is empty: remove it, and `pmindex put POOL KEY VALUE` creates a pool".into()
                })
            }
            Self::Open(OpenError::Truncated { expected, .. }) => Some(format!(
                "without a backup, save what the file has: `cp POOL COPY; truncate -s {expected} COPY; pmindex \
                 check COPY --repair NEW`; a value that lay in the missing part may come back as zeros"
            )),
            Self::Open(OpenError::NoDirectory { directory, .. }) => {
                Some(format!("mkdir -p {}", directory.display()))
            }
            Self::File { path, error } => mkdir(path, error),
            #[cfg(feature = "tools")]
            Self::Backup(pmindex::BackupError::Io { path, source, .. }) => mkdir(path, source),
            Self::NoIndex { there, .. } | Self::WhichIndex { there } if !there.is_empty() => {
                let names: Vec<String> =
                    there.iter().map(|name| crate::table::shown(name)).collect();
                Some(format!("name one of its indexes with --index: {}", names.join(", ")))
            }
            #[cfg(feature = "tools")]
            Self::Open(OpenError::Locked { path }) => Some(locked(path)),
            _ => self.fixed_hint().map(str::to_owned),
        }
    }

    /// Returns a hint that names nothing of the error.
    fn fixed_hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Open(OpenError::TooWeak { .. }) => {
                "a pool on a disk has the modes msync and journal (--dir FOLDER there, or the pool's own path); \
                 or require less with --durability"
            }
            Self::Open(
                OpenError::JournalMissing { .. }
                | OpenError::JournalForeign { .. }
                | OpenError::JournalDamaged { .. },
            ) => {
                "put back the file and the journal of the same moment; if the journal is lost for good, \
                 `pmindex check POOL --without-journal --repair NEW` saves what the file holds"
            }
            Self::Open(OpenError::NotFound { .. }) => {
                "`pmindex put POOL KEY VALUE` creates a pool in a new file"
            }
            Self::Pool(PmError::Full { .. })
            | Self::Index(IndexError::Pool(PmError::Full { .. })) => NO_ROOM,
            #[cfg(feature = "tools")]
            Self::Named(NamedError::Index(IndexError::Pool(PmError::Full { .. }))) => NO_ROOM,
            Self::NoIndex { .. } => "`pmindex put POOL KEY VALUE` creates an index",
            #[cfg(feature = "tools")]
            Self::Named(NamedError::UnknownTypes { .. }) => {
                "`pmindex info POOL` lists the indexes and their types"
            }
            Self::UnfinishedTransactions { .. } => {
                "open the store once with the program that created it: opening its maps finishes them; or \
                 `pmindex check POOL --repair NEW` makes a copy in which they are finished"
            }
            Self::InterruptedBatches { .. } => {
                "open the index once with the program that created it, with batches: opening finishes them"
            }
            Self::Partial { .. } => {
                "if no such command runs, remove the file, and run this one again"
            }
            Self::Exists { .. } => "name another file, or add --replace",
            Self::PoolExists { .. } => {
                "name another file, or remove this one first: the command replaces no pool"
            }
            Self::WriterBusy { .. } => {
                "a service can back up its own pool without being stopped: call `pmindex::Backup` in it"
            }
            Self::Damaged { .. } | Self::StoreLog { .. } => {
                "restore a backup of the pool, or save what is left with \
                 `pmindex check POOL --repair NEW`"
            }
            Self::NotReplaced { .. } => {
                "restore that backup, or save what is left with `pmindex check POOL --repair NEW`; to copy \
                 the damaged pool too, name another file"
            }
            Self::Repaired { .. } => {
                "look for the missing records in a backup; keep the damaged pool until you have them"
            }
            Self::Dump { .. } => "no pool was created; `pmindex dump` writes files of this form",
            Self::ChildEnded { .. } | Self::NotOpened { .. } => "its own error message is above",
            Self::Lost => {
                "this is a bug: please report it with the output above and with `pmindex --version`, and \
                 keep the pool, its journal and the seed"
            }
            Self::NoRoom { .. } => {
                "measure fewer records; or name a folder with --dir, and choose --durability process (no \
                 waiting), msync or journal"
            }
            Self::NoKill { .. } => "give it more time: --seconds",
            Self::NoFolder { .. } => "create it first, or name another folder with --dir",
            _ => return None,
        })
    }
}

/// Returns how to make the folder of a file, if that is what is missing.
fn mkdir(file: &Path, error: &io::Error) -> Option<String> {
    let folder =
        file.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists())?;
    let missing = error.kind() == io::ErrorKind::NotFound;
    missing.then(|| format!("mkdir -p {}", folder.display()))
}

/// The beginning of the advice in errors of the library about damage.
const ADVICE: &str = "; restore a backup, or save the readable records";

/// Returns what is wrong, without the advice about a damaged pool: where the command gives it once, or follows it.
pub(crate) fn cause(error: &impl std::fmt::Display) -> String {
    let mut text = error.to_string();
    text.truncate(text.find(ADVICE).unwrap_or(text.len()));
    text
}

/// Returns what can be done while a process writes to the pool, and names that process.
#[cfg(feature = "tools")]
fn locked(path: &Path) -> String {
    let who = crate::pool::writer_of(path)
        .map_or_else(String::new, |who| format!("{who} writes to it; "));
    format!(
        "{who}only the writing process knows the current records: ask it, or wait until it ends. \
         Meanwhile you can use `pmindex info`, `pmindex backup --pause` (stops the process for a \
         moment), and `pmindex::Backup` inside the process (no stop)"
    )
}

/// Returns `1 index is`, `2 indexes are`.
fn indexes_are(count: usize) -> String {
    crate::table::counted(count as u64, "index is", "indexes are")
}
