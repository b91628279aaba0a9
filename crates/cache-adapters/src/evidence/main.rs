//! Measures the figures of chapter 3 of Lersch's thesis (Leveraging Non-Volatile Memory in Modern Storage
//! Management Architectures; figures 3.6 to 3.10, 3.12 to 3.14, table 3.1) at the size of this machine, and
//! compares our caches with those of other crates. Prints a page: `cargo xtask evidence --only cache` keeps
//! it in `docs/evidence/`.
#![forbid(unsafe_code)]

mod blocks;
mod common;
mod peers;
mod restart;
mod search;
mod slow;
mod tables;
mod writes;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use common::Fault;

/// Figures of placement and of the block cache, as a page of tables
#[derive(Parser)]
struct Args {
    /// The folder of the pools: tmpfs, whose memory stands for persistent memory
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// The folder of files that are synchronised with a disk
    #[arg(long, default_value = "target")]
    disk: PathBuf,
    /// The factor by which everything is smaller
    #[arg(long, default_value_t = 1)]
    smaller: u64,
    /// The parts to run: search, writes, blocks, tables, slow, restart, ratios, speeds
    #[arg(long, value_delimiter = ',')]
    parts: Vec<String>,
    /// Read through a cache until killed; the part `restart` starts this
    #[arg(long, hide = true)]
    reader: Option<String>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

type Part = fn(&common::Places, u64) -> Result<String, Fault>;

const PARTS: [(&str, Part); 8] = [
    ("search", search::page),
    ("writes", writes::page),
    ("blocks", blocks::page),
    ("tables", tables::page),
    ("slow", slow::page),
    ("restart", restart::page),
    ("ratios", peers::ratios),
    ("speeds", peers::speeds),
];

fn run(args: &Args) -> Result<(), Fault> {
    if let Some(how) = &args.reader {
        return restart::read_until_killed(how, &args.dir, args.smaller);
    }
    let places = common::Places::make(&args.dir, &args.disk)?;
    println!(
        "# Placement, and a cache that is warm after a crash\n\nThe figures of chapter 3 of the thesis at \
         this machine's size, and caches of other crates in the same run. Persistent memory is tmpfs here, as \
         fast as DRAM; where a table says *delayed*, each read of a place in it waits 270 ns longer (the thesis \
         has 360 against 90), and of ten lines in a row as long once more, since about ten are fetched at a \
         time.\n\nTimes are those in which a thread had a processor, and what it waited for a medium: the delays \
         of persistent memory and of slow storage are added to them and nobody sleeps, a disk's flushes are as long \
         as they were. So what else runs on the machine does not make them longer, but for what it does to the \
         processor's caches."
    );
    for (name, part) in PARTS {
        if args.parts.is_empty() || args.parts.iter().any(|wanted| wanted == name) {
            eprintln!("{name}");
            print!("\n{}", part(&places, args.smaller)?);
        }
    }
    Ok(())
}
