//! `pmindex backup`: a verified copy of a pool.

use std::fmt::Write;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pmindex::Backup;
use pmindex::core::{OpenError, Pool, without_journal};
use serde_json::json;

use crate::error::CliError;
use crate::interrupt::{Fate, Registered};
use crate::output;
use crate::table::{bytes, counted, millis};

use super::writer::Stopped;
use super::{handle, open, store_log};

/// Bytes read and compared at once.
const CHUNK: usize = 1 << 20;

/// Which pool, to where.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  pmindex backup my.pool my.backup\n  \
    pmindex backup live.pool my.backup --pause\n\n\
    The copy is made under another name, verified index by index as `check` does, and is a pool like\n\
    any other: restore it by copying it back. Other readers may have the pool open.\n\n\
    A pool that a program is writing to is copied whole only while that program holds still. The\n\
    program can see to that itself: `pmindex::Backup` copies while it goes on and keeps its writers\n\
    between two operations for a moment in the end. From outside, --pause does it: most is copied\n\
    while the program goes on; then it is stopped (SIGSTOP), what changed meanwhile is copied, and it\n\
    goes on (SIGCONT), whatever becomes of the backup. For that time, about as long as reading twice\n\
    the pool from memory, it answers nobody. The copy is the pool as a kill at that moment would\n\
    leave it. It takes a user who may signal the program; a shell shows a program in its foreground as\n\
    stopped, and has it in the background afterwards.")]
pub(crate) struct Args {
    /// The pool's file
    pool: PathBuf,

    /// The copy
    file: PathBuf,

    /// Replace the file if it exists: the old one stays until the new one is complete
    #[arg(long)]
    replace: bool,

    /// Stop a program that is writing to the pool while the last changes are copied
    #[arg(long)]
    pause: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// What copying came to.
struct Copied {
    bytes: u64,
    /// How long a writer was stopped.
    pause: Option<Duration>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let copied = copy(args)?;
    let copy = open::read_only(&args.file)?;
    let (mut records, mut damaged, mut unknown) = (0, 0, 0);
    let entries = store_log::indexes(&copy)?;
    for entry in &entries {
        match handle::open_any(&copy, entry) {
            Ok(handle) => match handle.check() {
                Ok(found) => records += found,
                Err(_) => damaged += 1,
            },
            Err(CliError::UnknownTypes { .. }) => unknown += 1,
            Err(_) => damaged += 1,
        }
    }
    if args.json {
        output::print_json(&json!({
            "pool": args.pool,
            "file": args.file,
            "bytes": copied.bytes,
            "pause_ms": copied.pause.map(|pause| pause.as_secs_f64() * 1e3),
            "indexes": entries.len(),
            "records": records,
            "damaged": damaged,
            "unknown": unknown,
        }))?;
    } else {
        let indexes = counted(entries.len() as u64, "index", "indexes");
        let records = counted(records, "record", "records");
        let mut text = format!("copied {}: {indexes}, {records}\n", bytes(copied.bytes));
        if let Some(pause) = copied.pause {
            let _ = writeln!(text, "its writer was stopped for {}", millis(pause));
        }
        if unknown > 0 {
            let unknown = counted(unknown, "index", "indexes");
            let _ = writeln!(text, "{unknown} of types this program does not know: not verified");
        }
        output::print(&text)?;
    }
    if damaged == 0 { Ok(()) } else { Err(CliError::Damaged { indexes: damaged }) }
}

fn copy(args: &Args) -> Result<Copied, CliError> {
    let exists = || args.file.exists() && !args.replace;
    let pool = match open::read_only(&args.pool) {
        Err(CliError::Open(OpenError::Locked { .. })) if args.pause => {
            if exists() {
                return Err(CliError::Exists { path: args.file.clone() });
            }
            return copy_in_use(&args.pool, &args.file);
        }
        pool => pool?,
    };
    if exists() {
        return Err(CliError::Exists { path: args.file.clone() });
    }
    let _registered = Registered::new(&partial(&args.file), Fate::Remove);
    // Nobody writes: the pool is locked against writers.
    let report = Backup::begin(&pool, &args.file)?.finish(())?;
    Ok(Copied { bytes: report.bytes, pause: None })
}

/// What a copy is called until it is complete.
fn partial(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Copies a pool that another process writes to: most of it while that goes on, the rest while it is
/// stopped.
fn copy_in_use(pool: &Path, file: &Path) -> Result<Copied, CliError> {
    if fs::canonicalize(pool).ok() == fs::canonicalize(file).ok() {
        let path = pool.to_path_buf();
        return Err(pmindex::BackupError::Itself { path }.into());
    }
    let mut copy = LiveCopy::new(pool, file)?;
    // The second round has only what changed during the first one.
    copy.catch_up(Pool::peek(pool)?.len)?;
    copy.catch_up(Pool::peek(pool)?.len)?;
    let stopped = Stopped::stop(pool)?;
    let begun = Instant::now();
    let caught_up = Pool::peek(pool)
        .map_err(CliError::from)
        .and_then(|peek| copy.catch_up(peek.len).map(|()| peek.len));
    drop(stopped);
    let pause = begun.elapsed();
    let bytes = caught_up?;
    copy.finish(file, bytes)?;
    Ok(Copied { bytes, pause: Some(pause) })
}

/// A copy of a file that changes.
struct LiveCopy {
    pool: File,
    copy: File,
    path: PathBuf,
    here: Vec<u8>,
    there: Vec<u8>,
    finished: bool,
    _registered: Registered,
}

impl LiveCopy {
    fn new(pool: &Path, file: &Path) -> Result<Self, CliError> {
        let path = partial(file);
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |error| CliError::File { path, error }
        };
        let registered = Registered::new(&path, Fate::Remove);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let copy = options.open(&path).map_err(failed(&path))?;
        let pool = File::open(pool).map_err(failed(pool))?;
        let (here, there) = (vec![0; CHUNK], vec![0; CHUNK]);
        Ok(Self { pool, copy, path, here, there, finished: false, _registered: registered })
    }

    /// Makes the first `len` bytes of the copy what they are in the pool now.
    fn catch_up(&mut self, len: u64) -> Result<(), CliError> {
        let mut at = 0;
        while at < len {
            let bytes = (len - at).min(CHUNK as u64) as usize;
            let (here, there) = (&mut self.here[..bytes], &mut self.there[..bytes]);
            let done = (|| {
                self.pool.read_exact_at(here, at)?;
                if at == 0 {
                    without_journal(here);
                }
                // What is not there yet differs.
                let same = self.copy.read_exact_at(there, at).is_ok() && here == there;
                if same { Ok(()) } else { self.copy.write_all_at(here, at) }
            })();
            done.map_err(|error: io::Error| CliError::File { path: self.path.clone(), error })?;
            at += bytes as u64;
        }
        Ok(())
    }

    /// Makes it durable and gives it its name.
    fn finish(mut self, file: &Path, len: u64) -> Result<(), CliError> {
        let named = (|| {
            self.copy.set_len(len)?;
            self.copy.sync_all()?; // durable before: the name
            fs::rename(&self.path, file)?;
            self.finished = true;
            let folder = match file.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder,
                _ => Path::new("."),
            };
            File::open(folder)?.sync_all()
        })();
        named.map_err(|error| CliError::File { path: file.to_path_buf(), error })
    }
}

impl Drop for LiveCopy {
    fn drop(&mut self) {
        if !self.finished {
            // What stays if this fails is overwritten by the next backup.
            let _ = fs::remove_file(&self.path);
        }
    }
}
