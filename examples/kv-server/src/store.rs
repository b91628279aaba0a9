//! The state: one index of byte strings in a pool.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex::{
    AnyIndex, Durability, Index, IndexError, Kind, OpenError, PmError, Pool, PoolOptions,
};

/// Which pool, and how.
#[derive(clap::Args, Clone, Debug)]
pub struct StoreArgs {
    /// The pool's file; created if it is missing
    pub pool: PathBuf,

    /// Which kind of index to create in a new pool; an existing one has its own
    #[arg(long, default_value = "fptree", value_name = "KIND")]
    pub index: Kind,

    /// What an acknowledged write survives
    ///
    /// `auto`, the strongest the medium gives; `process`, a kill of the process, fast on any file; `msync`,
    /// power failure, on an ordinary file, with an msync at each fence; `journal`, the same with a write to
    /// a journal beside the file, which connections share; `periodic` or `periodic:20ms`, a kill of the
    /// process, and power failure but for the last 100 ms or as many as are said (`2s`): a pool in memory
    /// (tmpfs) with a twin on a disk (`--twin`), which a client waits for with SAVE; `flush`, persistent
    /// memory, elsewhere the same flushes and fences, emulated
    #[arg(long, default_value = "auto", value_name = "MODE")]
    pub durability: Wanted,

    /// With `--durability periodic`: the twin's file, on a disk
    #[arg(long, value_name = "FILE")]
    pub twin: Option<PathBuf>,

    /// MiB of a new pool; it grows by itself
    #[arg(long, default_value_t = 64, value_name = "MIB")]
    pub size: u64,
}

/// A durability to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The strongest the medium gives
    Auto,
    /// A kill of the process: fast on any file
    Process,
    /// Power failure, on an ordinary file: msync at each fence
    Msync,
    /// Power failure, on an ordinary file: a write to a journal beside it, which connections share
    Journal,
    /// A kill of the process, and power failure but for the last moments: a pool in memory (tmpfs) with
    /// a twin on a disk, which is written so often
    Periodic(Duration),
    /// Persistent memory; elsewhere the same flushes and fences, emulated
    Flush,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Ok(match word {
            "auto" => Self::Auto,
            "process" => Self::Process,
            "msync" => Self::Msync,
            "journal" => Self::Journal,
            "periodic" => Self::Periodic(Duration::from_millis(100)),
            "flush" => Self::Flush,
            other => {
                let time = other.strip_prefix("periodic:").ok_or(
                    "no such mode; there are auto, process, msync, journal, periodic, flush",
                )?;
                let (number, unit) = match time.strip_suffix("ms") {
                    Some(number) => (number, 1),
                    None => (time.strip_suffix('s').unwrap_or_default(), 1000),
                };
                let number: u32 =
                    number.parse().map_err(|_| "write periodic:100ms or periodic:2s")?;
                Self::Periodic(Duration::from_millis(u64::from(number) * unit))
            }
        })
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Process => "process",
            Self::Msync => "msync",
            Self::Journal => "journal",
            Self::Periodic(every) => return write!(f, "periodic:{}ms", every.as_millis()),
            Self::Flush => "flush",
        })
    }
}

/// What the state can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Opening the pool.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The index.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The pool.
    #[error(transparent)]
    Pool(#[from] PmError),
    /// A mode that is nothing without a twin.
    #[error(
        "--durability periodic needs --twin FILE, a file on a disk that the pool is read from after a power failure"
    )]
    NoTwin,
    /// A twin that no mode would write.
    #[error("--twin is for --durability periodic")]
    UselessTwin,
}

/// The name of the index in the pool.
const NAME: &str = "keyspace";

/// Operations that may write at once; more connections than that wait for each other.
const WRITERS: u64 = 256;

/// The state.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) index: AnyIndex<Vec<u8>, Vec<u8>>,
    pub(crate) pool: Arc<Pool>,
    /// How long it took to open, from nothing to a usable index.
    pub(crate) opened_in: Duration,
}

impl Store {
    /// Opens the state, and creates it if there is none.
    pub(crate) fn open(args: &StoreArgs) -> Result<Self, StoreError> {
        let started = Instant::now();
        let options = PoolOptions::new().size(args.size << 20).slots(WRITERS);
        let options = match args.durability {
            Wanted::Auto => options,
            Wanted::Process => options.write_back(false),
            Wanted::Msync => options.require(Durability::Msync),
            Wanted::Journal => options.journal(true).require(Durability::Journal),
            Wanted::Periodic(every) => {
                let twin = args.twin.as_ref().ok_or(StoreError::NoTwin)?;
                options.require(Durability::Periodic).twin(twin).twin_every(every)
            }
            Wanted::Flush => options.emulate_pm(true),
        };
        if args.twin.is_some() && !matches!(args.durability, Wanted::Periodic(_)) {
            return Err(StoreError::UselessTwin);
        }
        let pool = Arc::new(Pool::open_or_create(&args.pool, &options)?);
        let index = match AnyIndex::open(&pool, NAME) {
            Err(IndexError::NoSuchIndex { .. }) => AnyIndex::create(&pool, NAME, args.index)?,
            opened => opened?,
        };
        Ok(Self { index, pool, opened_in: started.elapsed() })
    }

    /// Ends cleanly: the next opening has nothing to recover.
    pub(crate) fn close(self) -> Result<(), StoreError> {
        self.index.close()?;
        if let Some(pool) = Arc::into_inner(self.pool) {
            pool.close()?;
        }
        Ok(())
    }

    /// Facts, as `INFO` shows them.
    pub(crate) fn facts(&self) -> Result<String, IndexError> {
        let recovery = self.index.recovery_report();
        Ok(format!(
            "# Persistence\r\nindex:{}\r\ndurability:{}{}\r\nclean_start:{}\r\nopened_in_us:{}\r\n\
             recovery_us:{}\r\nrepaired_operations:{}\r\npool_file:{}\r\n\
             \r\n# Memory\r\npool_bytes:{}\r\npool_used_bytes:{}\r\n\
             \r\n# Keyspace\r\ndb0:keys={},expires=0\r\n",
            self.index.kind(),
            self.pool.durability(),
            if self.pool.is_emulated() { " (emulated)" } else { "" },
            u8::from(self.pool.was_clean()),
            self.opened_in.as_micros(),
            recovery.elapsed.as_micros(),
            recovery.repaired,
            self.pool.path().display(),
            self.pool.len(),
            self.pool.used_bytes(),
            self.index.len()?,
        ))
    }
}
