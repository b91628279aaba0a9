//! `pmindex backup`: a verified copy of a pool.

use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex::core::{NewFile, OpenError, Peek, Pool, PoolOptions, without_journal};
use pmindex::{Backup, BackupError, Kind, StoreError};
use pmindex_named::NamedError;
use serde_json::json;

use crate::error::{CliError, cause};
use crate::output;
use crate::table::{bytes, counted, millis};

use super::writer::Stopped;
use super::{open, store_log};

/// Bytes read and compared at once.
const CHUNK: usize = 1 << 20;

/// The pool, and the file of the copy.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  pmindex backup my.pool my.backup\n  \
    pmindex backup live.pool my.backup --pause\n\n\
    The copy gets its name when it is complete, and every index of it is verified as `check` does. An\n\
    existing file is replaced (--replace) only if the pool is whole. The copy is a pool like any other: to\n\
    restore it, copy it back. Other readers may have the pool open.\n\n\
    If a program is writing to the pool, use --pause. Most of the pool is copied while the program\n\
    runs; then the program is stopped (SIGSTOP), the rest is copied, and the program continues\n\
    (SIGCONT), even if the backup fails or is killed. The pause is about as long as reading the pool\n\
    from memory four times. The copy is the pool as a kill at that moment would leave it. You need the right\n\
    to signal the program. A shell reports a foreground program as stopped, and has it in the background\n\
    afterwards. A program can back up its own pool without a pause: `pmindex::Backup`.")]
pub(crate) struct Args {
    /// The pool's file
    pub(crate) pool: PathBuf,

    /// The copy
    file: PathBuf,

    /// Replace an existing file, once the new copy is complete
    #[arg(long)]
    replace: bool,

    /// Stop the program that writes to the pool while the last changes are copied
    #[arg(long)]
    pause: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// The result of copying.
struct Copied {
    bytes: u64,
    /// How long the writer was stopped.
    pause: Option<Duration>,
}

/// What `check` finds in a pool.
#[derive(Default)]
struct Found {
    indexes: usize,
    records: u64,
    /// Damaged indexes, and 1 for a damaged log of a store.
    damaged: usize,
    /// Indexes of types that this program does not know.
    unknown: usize,
    /// Transactions of a store that a crash interrupted.
    unfinished: u64,
    /// The damage of the log of a store.
    log: Option<StoreError>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let copied = copy(args)?;
    let found = verify(&open::read_only(&args.file)?).map_err(|error| error.in_pool(&args.file))?;
    if args.json {
        output::print_json(&json!({
            "pool": output::path_in_json(&args.pool),
            "file": output::path_in_json(&args.file),
            "bytes": copied.bytes,
            "pause_ms": copied.pause.map(|pause| pause.as_secs_f64() * 1e3),
            "indexes": found.indexes,
            "records": found.records,
            "damaged": found.damaged,
            "unknown": found.unknown,
            "unfinished_transactions": found.unfinished,
        }))?;
    } else {
        output::print(&text(&copied, &found))?;
    }
    if found.damaged == 0 { Ok(()) } else { Err(CliError::Damaged { indexes: found.damaged }) }
}

fn text(copied: &Copied, found: &Found) -> String {
    let indexes = counted(found.indexes as u64, "index", "indexes");
    let records = counted(found.records, "record", "records");
    let mut text = format!("copied {}: {indexes}, {records}\n", bytes(copied.bytes));
    if let Some(pause) = copied.pause {
        let _ = writeln!(text, "its writer was stopped for {}", millis(pause));
    }
    if found.unknown > 0 {
        let unknown = counted(found.unknown as u64, "index", "indexes");
        let _ = writeln!(text, "{unknown} not verified: this program does not know the types");
    }
    if found.unfinished > 0 {
        let unfinished = counted(found.unfinished, "transaction", "transactions");
        let _ = writeln!(
            text,
            "{unfinished} of a store: its program will finish them when it opens the store"
        );
    }
    if let Some(error) = &found.log {
        let _ = writeln!(text, "{} damaged: {}", store_log::TITLE, cause(error));
    }
    text
}

/// Verifies every index of a pool, and the log of a store.
fn verify(pool: &Arc<Pool>) -> Result<Found, CliError> {
    let entries = store_log::indexes(pool)?;
    let mut found = Found { indexes: entries.len(), ..Found::default() };
    for entry in &entries {
        match pmindex_named::open_sort(pool, entry) {
            Ok(handle) => match handle.check() {
                Ok(records) => found.records += records,
                Err(_) => found.damaged += 1,
            },
            Err(NamedError::UnknownTypes { .. }) => found.unknown += 1,
            Err(_) => found.damaged += 1,
        }
    }
    match store_log::check(pool) {
        Ok(unfinished) => found.unfinished = unfinished,
        Err(error) => {
            found.damaged += 1;
            found.log = Some(error);
        }
    }
    Ok(found)
}

/// Refuses to replace an earlier backup by a copy of this pool, if that is damaged.
fn refuse_damaged(pool: &Arc<Pool>, args: &Args) -> Result<(), CliError> {
    if !args.file.exists() {
        return Ok(());
    }
    match verify(pool)?.damaged {
        0 => Ok(()),
        indexes => Err(CliError::NotReplaced { indexes, path: args.file.clone() }),
    }
}

fn copy(args: &Args) -> Result<Copied, CliError> {
    let exists = || args.file.is_dir() || args.file.exists() && !args.replace;
    let pool = match open::read_only(&args.pool) {
        Err(CliError::Open(OpenError::Locked { .. })) if args.pause => {
            if exists() {
                return Err(CliError::exists(&args.file));
            }
            return copy_in_use(args);
        }
        pool => pool?,
    };
    if exists() {
        return Err(CliError::exists(&args.file));
    }
    if pool.is_at(&args.file) {
        return Err(BackupError::Itself { path: args.file.clone() }.into());
    }
    // The pool is locked, so no process writes to it: the copy will be as whole as the pool is now.
    refuse_damaged(&pool, args)?;
    let finished = Backup::begin(&pool, &args.file)?.replace(args.replace).finish(());
    let report = finished.map_err(|error| match error {
        BackupError::Io { path, source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
            CliError::Exists { path }
        }
        error => error.into(),
    })?;
    Ok(Copied { bytes: report.bytes, pause: None })
}

/// Copies a pool that another process writes to: most of it while that process runs, the rest while it is
/// stopped.
fn copy_in_use(args: &Args) -> Result<Copied, CliError> {
    let (pool, file) = (&args.pool, &args.file);
    if fs::canonicalize(pool).ok() == fs::canonicalize(file).ok() {
        return Err(BackupError::Itself { path: pool.clone() }.into());
    }
    let mut copy = LiveCopy::new(pool, file)?;
    // The second round copies only what changed during the first.
    copy.catch_up(peek(pool)?.len)?;
    copy.catch_up(peek(pool)?.len)?;
    let stopped = Stopped::stop(pool, &copy.pool)?;
    let begun = Instant::now();
    let caught_up = copy_rest(pool, &stopped, &mut copy);
    drop(stopped);
    let pause = begun.elapsed();
    let bytes = caught_up?;
    copy.cut(bytes)?;
    if file.exists() {
        // Nothing of it has to be durable yet.
        let options = PoolOptions::new().write_back(false);
        refuse_damaged(&open::read_only_with(&copy.unnamed(), options)?, args)?;
    }
    copy.finish(args.replace)?;
    Ok(Copied { bytes, pause: Some(pause) })
}

/// Copies the rest of a pool whose writer is stopped; returns the pool's length. Another process may let the writer
/// go on meanwhile, which is an error: the parts of the copy would be of several moments.
fn copy_rest(pool: &Path, stopped: &Stopped, copy: &mut LiveCopy) -> Result<u64, CliError> {
    let len = peek(pool)?.len;
    copy.catch_up(len)?;
    let late = copy.catch_up(len)?;
    stopped.confirm()?;
    if late > 0 || peek(pool)?.len != len {
        let what = "it changed while its writer was stopped; try again".into();
        return Err(CliError::WriterBusy { path: pool.to_path_buf(), what });
    }
    Ok(len)
}

/// Looks into a pool; refuses one with files beside it, which the copy would lack.
fn peek(pool: &Path) -> Result<Peek, CliError> {
    let peek = Pool::peek(pool)?;
    match peek.indexes.iter().find(|entry| Kind::has_file(entry)) {
        Some(entry) => Err(BackupError::HasFile { name: entry.name.clone() }.into()),
        None => Ok(peek),
    }
}

/// A copy of a file that changes meanwhile.
struct LiveCopy {
    pool: File,
    copy: NewFile,
    path: PathBuf,
    here: Vec<u8>,
    there: Vec<u8>,
}

impl LiveCopy {
    fn new(pool: &Path, path: &Path) -> Result<Self, CliError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |error| CliError::File { path, error }
        };
        // Readable only by the owner, like the pool.
        let copy = NewFile::create(path, 0o600).map_err(failed(path))?;
        let pool = File::open(pool).map_err(failed(pool))?;
        let (here, there) = (vec![0; CHUNK], vec![0; CHUNK]);
        Ok(Self { pool, copy, path: path.to_path_buf(), here, there })
    }

    /// Makes the first `len` bytes of the copy equal to those of the pool now; returns the number of bytes copied.
    fn catch_up(&mut self, len: u64) -> Result<u64, CliError> {
        let (mut at, mut copied) = (0, 0);
        while at < len {
            let bytes = (len - at).min(CHUNK as u64) as usize;
            let (here, there) = (&mut self.here[..bytes], &mut self.there[..bytes]);
            let done = (|| {
                self.pool.read_exact_at(here, at)?;
                if at == 0 {
                    without_journal(here);
                }
                // A part that the copy lacks counts as different.
                let copy = self.copy.file();
                let same = copy.read_exact_at(there, at).is_ok() && here == there;
                if !same {
                    copied += bytes as u64;
                    copy.write_all_at(here, at)?;
                }
                Ok(())
            })();
            done.map_err(|error: io::Error| CliError::File { path: self.path.clone(), error })?;
            at += bytes as u64;
        }
        Ok(copied)
    }

    /// Cuts off what the pool no longer has.
    fn cut(&self, len: u64) -> Result<(), CliError> {
        let failed = |error| CliError::File { path: self.path.clone(), error };
        self.copy.file().set_len(len).map_err(failed)
    }

    /// Returns a path that leads to the copy before it has its name.
    fn unnamed(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.copy.file().as_raw_fd()).into()
    }

    /// Makes the copy durable, and gives it its name.
    fn finish(self, replace: bool) -> Result<(), CliError> {
        let Self { copy, path, .. } = self;
        copy.finish(replace).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => CliError::Exists { path },
            _ => CliError::File { path, error },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_appears_meanwhile_is_replaced_only_if_that_is_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let (pool, target) = (folder.path().join("a.pm"), folder.path().join("copy.pm"));
        fs::write(&pool, "as long as it is").expect("written");
        for replace in [false, true] {
            let mut copy = LiveCopy::new(&pool, &target).expect("a file");
            copy.catch_up(16).expect("copied");
            fs::write(&target, "of another process").expect("written");
            copy.cut(10).expect("shorter");
            let finished = copy.finish(replace);
            assert_eq!(finished.is_ok(), replace, "{finished:?}");
            assert!(replace || matches!(finished, Err(CliError::Exists { .. })));
            let there: &[u8] = if replace { b"as long as" } else { b"of another process" };
            assert_eq!(fs::read(&target).expect("there"), there);
            assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
        }
    }
}
