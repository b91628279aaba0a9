//! `pmindex backup`: a verified copy of a pool.

use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pmindex::core::{NewFile, OpenError, Peek, Pool, without_journal};
use pmindex::{Backup, BackupError, Kind};
use pmindex_named::NamedError;
use serde_json::json;

use crate::error::CliError;
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
    The copy gets its name when it is complete, and every index of it is verified as `check` does. It is\n\
    a pool like any other: to restore it, copy it back. Other readers may have the pool open.\n\n\
    If a program is writing to the pool, use --pause. Most of the pool is copied while the program\n\
    runs; then the program is stopped (SIGSTOP), the rest is copied, and the program continues\n\
    (SIGCONT), even if the backup fails or is killed. The pause is about as long as reading the pool\n\
    from memory twice. The copy is the pool as a kill at that moment would leave it. You need the right\n\
    to signal the program. A shell reports a foreground program as stopped, and has it in the background\n\
    afterwards. A program can back up its own pool without a pause: `pmindex::Backup`.")]
pub(crate) struct Args {
    /// The pool's file
    pool: PathBuf,

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

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let copied = copy(args)?;
    let copy = open::read_only(&args.file)?;
    let (mut records, mut damaged, mut unknown) = (0, 0, 0);
    let entries = store_log::indexes(&copy)?;
    for entry in &entries {
        match pmindex_named::open_sort(&copy, entry) {
            Ok(handle) => match handle.check() {
                Ok(found) => records += found,
                Err(_) => damaged += 1,
            },
            Err(NamedError::UnknownTypes { .. }) => unknown += 1,
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
            let _ = writeln!(text, "{unknown} not verified: this program does not know the types");
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
            return copy_in_use(args);
        }
        pool => pool?,
    };
    if exists() {
        return Err(CliError::Exists { path: args.file.clone() });
    }
    // The pool is locked, so no process writes to it.
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
    let stopped = Stopped::stop(pool)?;
    let begun = Instant::now();
    let caught_up = peek(pool).and_then(|peek| copy.catch_up(peek.len).map(|()| peek.len));
    drop(stopped);
    let pause = begun.elapsed();
    let bytes = caught_up?;
    copy.finish(bytes, args.replace)?;
    Ok(Copied { bytes, pause: Some(pause) })
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

    /// Makes the first `len` bytes of the copy equal to those of the pool now.
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
                // A part that the copy lacks counts as different.
                let copy = self.copy.file();
                let same = copy.read_exact_at(there, at).is_ok() && here == there;
                if same { Ok(()) } else { copy.write_all_at(here, at) }
            })();
            done.map_err(|error: io::Error| CliError::File { path: self.path.clone(), error })?;
            at += bytes as u64;
        }
        Ok(())
    }

    /// Makes the copy durable, and gives it its name.
    fn finish(self, len: u64, replace: bool) -> Result<(), CliError> {
        let Self { copy, path, .. } = self;
        let named = copy.file().set_len(len).and_then(|()| copy.finish(replace));
        named.map_err(|error| match error.kind() {
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
            let finished = copy.finish(10, replace);
            assert_eq!(finished.is_ok(), replace, "{finished:?}");
            assert!(replace || matches!(finished, Err(CliError::Exists { .. })));
            let there: &[u8] = if replace { b"as long as" } else { b"of another process" };
            assert_eq!(fs::read(&target).expect("there"), there);
            assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
        }
    }
}
