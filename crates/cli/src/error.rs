//! What a command can fail with, and what the person can do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use pmindex::IndexError;
use pmindex::core::{OpenError, PmError};
use pmindex_pibench::{BenchError, Fault, Phase};

/// What a command can fail with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// No index of this name.
    #[error("there is no index called {name:?}")]
    UnknownIndex {
        /// What was asked for.
        name: String,
    },
    /// The pool could not be created or opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The pool failed.
    #[error(transparent)]
    Pool(#[from] PmError),
    /// A file of keys is no use.
    #[error("{}: {what}", path.display())]
    Keys {
        /// Which file.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// There is no such folder.
    #[error("{} is not a folder", dir.display())]
    NoFolder {
        /// What was given.
        dir: PathBuf,
    },
    /// The child process could not be started or killed.
    #[error("the writing process: {0}")]
    Child(io::Error),
    /// The child process failed instead of being killed.
    #[error("the writing process ended by itself ({status})")]
    ChildEnded {
        /// How.
        status: ExitStatus,
    },
    /// The child process did not open the pool, or did not say so.
    #[error("{index}: the process that opens it again ended without doing so ({status})")]
    NotOpened {
        /// Which index.
        index: String,
        /// How.
        status: ExitStatus,
    },
    /// Acknowledgements could not be written or read.
    #[error("the pipe of acknowledgements: {0}")]
    Pipe(io::Error),
    /// Acknowledged writes were lost, or others appeared.
    #[error("the pool does not hold exactly what was acknowledged")]
    Lost,
    /// There is no such key.
    #[error("no key {key:?}")]
    NoKey {
        /// What was asked for.
        key: String,
    },
    /// The pool has no such index.
    #[error("the pool has no index{}", name.as_ref().map_or_else(String::new, |n| format!(" named {n:?}")))]
    NoIndex {
        /// What was asked for.
        name: Option<String>,
        /// Which there are.
        there: Vec<String>,
    },
    /// The pool has several indexes and none was named.
    #[error("the pool has {} indexes", there.len())]
    WhichIndex {
        /// Which there are.
        there: Vec<String>,
    },
    /// The index has keys or values that text cannot stand for.
    #[error("index {name:?} is a {kind} with keys or values of types this program does not know")]
    UnknownTypes {
        /// Its name.
        name: String,
        /// Its type.
        kind: String,
    },
    /// Writing past them would be undone when they are finished.
    #[error("the pool has {transactions} transactions of a store that a crash has interrupted")]
    UnfinishedTransactions {
        /// How many.
        transactions: u64,
    },
    /// The log of a store is damaged.
    #[error("{error}")]
    StoreLog {
        /// What is wrong with it.
        error: String,
    },
    /// A key or value of the wrong form.
    #[error("{text:?} is no {what} of this index: its {what}s are {wanted}")]
    NotA {
        /// `key` or `value`.
        what: &'static str,
        /// What was given.
        text: String,
        /// What is needed.
        wanted: &'static str,
    },
    /// The process that writes to a pool could not be stopped for a backup.
    #[error("{}: {what}", path.display())]
    WriterBusy {
        /// The pool.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// Some indexes are damaged.
    #[error("{indexes} damaged")]
    Damaged {
        /// How many.
        indexes: usize,
    },
    /// What was left of damaged indexes is in a new pool.
    #[error("{indexes} damaged; what could be saved is in {}", path.display())]
    Repaired {
        /// How many.
        indexes: usize,
        /// The new pool.
        path: PathBuf,
    },
    /// A dump is not as it should be.
    #[error("{}, line {line}: {what}", path.display())]
    Dump {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
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
    /// The file to write exists.
    #[error("{}: already exists", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Standard output failed.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
    /// A pool that should have been ended is still in use.
    #[error("{}: still in use after its index was dropped", path.display())]
    StillOpen {
        /// The file.
        path: PathBuf,
    },
    /// An operation does not cost what it should.
    #[error(
        "{index}: {phase} flushes {} lines with {} fences, it should be {} with {}",
        found.0, found.1, golden.0, golden.1
    )]
    Cost {
        /// Which index.
        index: &'static str,
        /// Which operation.
        phase: Phase,
        /// The most frequent cost: lines, fences.
        found: (u64, u64),
        /// What it should be.
        golden: (u64, u64),
    },
    /// Recovery found another number of records than there were.
    #[error("{index}: {records} records after recovery, there were {expected}")]
    Recovered {
        /// Which index.
        index: &'static str,
        /// Found.
        records: u64,
        /// Written.
        expected: u64,
    },
    /// A measurement is void.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// A store failed outside a measurement.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// An option does not go with another one, or with an index.
    #[error("{what}")]
    Option {
        /// What does not go.
        what: String,
    },
    /// An index failed outside a measurement.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The result could not be written.
    #[error("writing the result: {0}")]
    Json(#[from] serde_json::Error),
}

impl CliError {
    /// What to do next.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownIndex { .. } => {
                Some(format!("choose from: {}", crate::registry::names().join(", ")))
            }
            Self::Open(OpenError::TooWeak { .. }) => Some(
                "put the pool on a medium that gives it, or ask for less with --durability".into(),
            ),
            Self::Open(
                OpenError::JournalMissing { .. }
                | OpenError::JournalForeign { .. }
                | OpenError::JournalDamaged { .. },
            ) => Some(
                "put file and journal of one moment back; if the journal is lost for good, \
                 `pmindex check POOL --without-journal --repair NEW` saves what the file alone has"
                    .into(),
            ),
            Self::Open(OpenError::NotAPool { .. } | OpenError::NotFound { .. }) => {
                Some("`pmindex put POOL KEY VALUE` makes a new pool in a new file".into())
            }
            Self::Open(OpenError::NoDirectory { directory, .. }) => {
                Some(format!("mkdir -p {}", directory.display()))
            }
            Self::Pool(PmError::Full { .. })
            | Self::Index(IndexError::Pool(PmError::Full { .. })) => {
                Some("give the pool's file system more room, or choose another with --dir".into())
            }
            Self::NoIndex { there, .. } | Self::WhichIndex { there } if !there.is_empty() => {
                Some(format!("name one of these with --index: {}", there.join(", ")))
            }
            Self::NoIndex { .. } => Some("`pmindex put POOL KEY VALUE` makes a first index".into()),
            Self::UnknownTypes { .. } => {
                Some("only the program that made it knows its types; `info` still lists it".into())
            }
            Self::UnfinishedTransactions { .. } => {
                Some("open the store once with the program that made it: that finishes them".into())
            }
            Self::Exists { .. } => {
                Some("name another file, or add --replace where the command has it".into())
            }
            Self::Open(OpenError::Locked { path }) => Some(locked(path)),
            Self::WriterBusy { .. } => Some(
                "a service can back up its own pool without a stop: `pmindex::Backup` in its process"
                    .into(),
            ),
            Self::Damaged { .. } => Some(
                "go back to a backup of the pool, or save what is left with \
                 `pmindex check POOL --repair NEW`"
                    .into(),
            ),
            Self::Repaired { .. } => {
                Some("a backup may have what is missing; keep the damaged pool until then".into())
            }
            Self::Dump { .. } => Some("no pool was made; `pmindex dump` writes such files".into()),
            Self::ChildEnded { .. } | Self::NotOpened { .. } => {
                Some("its own message stands above".into())
            }
            Self::Lost => Some(
                "this is a bug: please report it with the output above, `pmindex --version`, and \
                 the seed (--json shows it)"
                    .into(),
            ),
            Self::NoFolder { .. } => Some("create it first, or name another with --dir".into()),
            _ => None,
        }
    }
}

/// What can be done with a pool that somebody writes to, and who that is.
fn locked(path: &Path) -> String {
    let who =
        crate::pool::writer_of(path).map_or_else(String::new, |who| format!("{who} has it; "));
    format!(
        "{who}records in use are known to that process alone: ask it, or wait until it ends. Beside it \
         work `pmindex info`, `pmindex backup --pause`, which stops it for a moment, and \
         `pmindex::Backup` within it, which does not"
    )
}
