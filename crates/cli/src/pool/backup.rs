//! `pmindex backup`: a verified copy of a pool.

use std::fmt::Write;
use std::path::PathBuf;

use pmindex::Backup;
use serde_json::json;

use crate::error::CliError;
use crate::output;
use crate::table::{bytes, counted};

use super::{handle, open};

/// Which pool, to where.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  pmindex backup my.pool my.backup\n\n\
    The copy is made under another name, verified index by index as `check` does, and is a pool like\n\
    any other: restore it by copying it back. Other readers may have the pool open, a writer may not:\n\
    a running service backs up its own pool, with `pmindex::Backup`, while it goes on writing.")]
pub(crate) struct Args {
    /// The pool's file
    pool: PathBuf,

    /// The copy
    file: PathBuf,

    /// Replace the file if it exists: the old one stays until the new one is complete
    #[arg(long)]
    replace: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let pool = open::read_only(&args.pool)?;
    if args.file.exists() && !args.replace {
        return Err(CliError::Exists { path: args.file.clone() });
    }
    // Nobody writes: the pool is locked against writers.
    let report = Backup::begin(&pool, &args.file)?.finish(())?;
    drop(pool);
    let copy = open::read_only(&args.file)?;
    let (mut records, mut damaged, mut unknown) = (0, 0, 0);
    let entries = copy.indexes()?;
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
            "bytes": report.bytes,
            "indexes": entries.len(),
            "records": records,
            "damaged": damaged,
            "unknown": unknown,
        }))?;
    } else {
        let indexes = counted(entries.len() as u64, "index", "indexes");
        let records = counted(records, "record", "records");
        let mut text = format!("copied {}: {indexes}, {records}\n", bytes(report.bytes));
        if unknown > 0 {
            let unknown = counted(unknown, "index", "indexes");
            let _ = writeln!(text, "{unknown} of types this program does not know: not verified");
        }
        output::print(&text)?;
    }
    if damaged == 0 { Ok(()) } else { Err(CliError::Damaged { indexes: damaged }) }
}
