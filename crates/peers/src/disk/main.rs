//! Measures writes that survive power failure, and prints a page of tables: `cargo xtask evidence --only disk`
//! keeps it in `docs/evidence/`.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use pmindex_peers::durable::{self, Times};

/// Synced writes a second of pmindex and other stores on a disk, as a page of tables
#[derive(Parser)]
struct Args {
    /// The folder of the stores' files, on the disk
    #[arg(long, default_value = "target")]
    dir: PathBuf,
    /// The folder of the pools in memory
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    /// The rounds; the figure is the median
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The milliseconds of a figure on the disk; those of RocksDB are whole seconds
    #[arg(long, default_value_t = 1000)]
    millis: u64,
    /// The milliseconds of a figure in memory
    #[arg(long, default_value_t = 300)]
    memory_millis: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let times = Times {
        rounds: args.rounds.max(1),
        on_disk: Duration::from_millis(args.millis),
        in_memory: Duration::from_millis(args.memory_millis),
    };
    match durable::page(&args.dir, &args.memory, &times) {
        Ok(page) => {
            print!("{page}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
