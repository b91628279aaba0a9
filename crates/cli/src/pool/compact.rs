//! `pmindex compact`: returns the unused space of a pool to the file system.

use std::path::PathBuf;

use pmindex::core::{Pool, PoolOptions};
use serde_json::json;

use crate::error::CliError;
use crate::medium::MediumArgs;
use crate::output;
use crate::table::bytes;

/// The pool to compact.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  pmindex compact my.pool\n  pmindex compact my.pool --json\n\n\
    The file keeps its length and becomes sparse: free runs of 2 MiB occupy no space until they are used\n\
    again. If the disk is full then, the write fails with an error. Indexes that were being dropped\n\
    are removed completely. Records are not moved: for the smallest file, use `pmindex dump` and\n\
    `pmindex restore`. Devices, and file systems without sparse files, return nothing."
)]
pub(crate) struct Args {
    /// The pool's file
    pool: PathBuf,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    medium: MediumArgs,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let pool = Pool::open(&args.pool, &args.medium.apply(PoolOptions::new()))?;
    let given = pool.release_free()?;
    let (len, used) = (pool.len(), pool.used_bytes());
    pool.close()?;
    if args.json {
        return output::print_json(&json!({
            "pool": args.pool, "given_back": given, "used": used, "size": len,
        }));
    }
    output::print(&format!(
        "{} went back to the system; the pool uses {} of {}\n",
        bytes(given),
        bytes(used),
        bytes(len)
    ))
}
