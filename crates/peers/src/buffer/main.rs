//! Measures the persistent buffer pool: the figures of the thesis's chapter 4, and maps in it beside other stores.
//! Prints a page of tables: `cargo xtask evidence --only buffer` keeps it in `docs/evidence/`.
#![forbid(unsafe_code)]

mod beside;
mod common;
mod kill;
mod kills;
mod restart;
mod rocksdb;
mod stores;
mod updates;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::common::{Fault, Folders, Scale};

/// The persistent buffer pool, as a page of tables
#[derive(Parser)]
struct Args {
    /// The folder of files on a disk
    #[arg(long, default_value = "target")]
    dir: PathBuf,
    /// The folder of pools in memory, which outlives the process
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    /// The MiB of memory of each store
    #[arg(long, default_value_t = 16)]
    mib: u64,
    /// The milliseconds of a figure
    #[arg(long, default_value_t = 300)]
    millis: u64,
    /// The MiB of pages for figure 4.8
    #[arg(long, default_value_t = 512)]
    pages: usize,
    /// The updates of a figure of figure 4.8
    #[arg(long, default_value_t = 200_000)]
    updates: u32,
    /// Only these chapters: updates, restart, kill, beside
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Kill a process in a loop for this many seconds of each medium, and nothing else
    #[arg(long)]
    seconds: Option<u64>,
    /// The work of a process to be killed in a loop
    #[arg(long, hide = true, num_args = 7)]
    kills: Vec<String>,
    /// The work of a process to be killed
    #[arg(long, hide = true, num_args = 6)]
    child: Vec<String>,
}

const INTRODUCTION: &str = "\
# A persistent buffer pool

Written by `cargo xtask evidence --only buffer`, in one run. The figures are those of chapter 4 of Lersch's
thesis, *Leveraging Non-Volatile Memory in Modern Storage Management Architectures*, whose author measured
figure 4.8 and drew 4.10 and 4.11.
";

/// What each store is given.
const MEMORY: &str = "
* pmindex: a map of `pmindex-btree`. All of its memory is its pool: frames (27 parts of 32), log, staging area; beside
  it 16 bytes of DRAM for each page of the disk and 40 for each frame. Its pages bypass the page cache (`O_DIRECT`). In memory (tmpfs), the pool
  outlives the process, as persistent memory outlives a power failure; on the disk, in mode `Journal`, its commits survive
  a power failure of this machine.
* redb: `set_cache_size`; SQLite: `cache_size`, a write-ahead log, `synchronous` `OFF` or `FULL`. Every 5 ms the kernel's pages
  of their files are dropped, or they would have all memory of the machine. redb's unsynced commits are `Durability::None`,
  every 4096th synchronises.
* RocksDB: `db_bench` of Debian, which warns of its assertions; three quarters block cache, two write buffers of an eighth,
  direct reads, flushes and compactions, no compression. Its zipfian keys are db_bench's power law, with nearly as many accesses
  to the hot tenth.
* LMDB cannot be bounded: its map is the page cache, so it has all memory of the machine. Unsynced it is on tmpfs, where its
  synchronisation costs nothing.

With ten times the data the pool on the disk is left out: its loading takes minutes.
";

fn run(args: &Args) -> Result<String, Fault> {
    let scale = Scale {
        memory: args.mib << 20,
        millis: args.millis,
        pages: args.pages << 20,
        updates: args.updates,
    };
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let folders = Folders::make(&args.dir, &args.memory)?;
    if let Some(seconds) = args.seconds {
        return kills::page(&scale, &folders, seconds);
    }
    let mut page = INTRODUCTION.to_owned();
    if wanted("updates") {
        page += &updates::corruptible();
        page += &updates::updates(&scale)?;
    }
    if wanted("restart") {
        page += &restart::page(&scale, &folders)?;
    }
    if wanted("beside") {
        page += &beside::page(&scale, &folders, MEMORY)?;
    }
    if wanted("kill") {
        page += &kill::page(&scale, &folders)?;
    }
    Ok(page)
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match (&args.child[..], &args.kills[..]) {
        ([], []) => run(&args).map(|page| print!("{page}")),
        ([], child) => kills::child(child),
        (child, _) => kill::child(child),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
