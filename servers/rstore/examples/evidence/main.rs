//! Prints the figures of chapter 5 of Lersch's thesis for this server, and its comparison with Redis and memcached, as
//! a page of tables.
//!
//! `cargo xtask evidence --only rstore` keeps the page in `docs/evidence/`; `cargo run --release -p
//! pmindex-rstore-server --example evidence` prints it.
#![forbid(unsafe_code)]
#![expect(clippy::cast_precision_loss, reason = "figures to look at")]

mod beside;
mod collection;
mod counter;
mod kill;
mod load;
mod ranges;
mod scan;
mod servers;
mod space;
mod table;
mod wire;
mod ycsb;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use rstore_server::{Error, Settings};

use crate::servers::Folders;

/// The server's figures, as a page of tables
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Option<Child>,
    /// The folder of files on a disk
    #[arg(long, default_value = "target")]
    dir: PathBuf,
    /// The folder of pools in memory, which outlive the process
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    /// The milliseconds of a figure
    #[arg(long, default_value_t = 1500)]
    millis: u64,
    /// The MiB of values that are loaded
    #[arg(long, default_value_t = 384)]
    mib: u64,
    /// The records that are written before a kill
    #[arg(long, default_value_t = 10_000_000)]
    records: u64,
    /// Only these chapters: counter, scan, collection, ycsb, ranges, beside, kill
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

#[derive(Subcommand)]
enum Child {
    /// Serve, as the program to be measured does
    #[command(hide = true)]
    Serve {
        #[command(flatten)]
        settings: Box<Settings>,
    },
}

/// An error message for people.
type Fault = Box<dyn std::error::Error + Send + Sync>;

/// The sizes and times of a run.
struct Scale {
    /// The time of a figure.
    time: Duration,
    /// The bytes of values that are loaded.
    bytes: u64,
    /// The records that are written before a kill.
    records: u64,
    folders: Folders,
}

const INTRODUCTION: &str = "\
# RStore

Written by `cargo xtask evidence --only rstore`, in one run. The figures are those of chapter 5 of Lersch's
thesis, *Leveraging Non-Volatile Memory in Modern Storage Management Architectures*, and a comparison with Redis and
memcached of Debian. The thesis has its figures as images: its claims are quoted from the text.

**The setting.** The thesis has two machines, 10 Gbit/s Ethernet through DPDK, Optane memory, and up to 16 threads of
the server. Here one machine has two processors: each server has one thread on one of them, and one client thread on the
other, through the kernel's loopback. So no figure shows scaling with threads. Persistent memory is emulated: the pool is
in memory (tmpfs), and every flush and fence is executed (`--durability flush`). *In memory* is the same server without
flushes (`process`): both survive a kill, and on this medium neither survives a power failure. Redis 7 and memcached 1.6
have the same processor for their process, all their threads included.

**The client** is one thread with an event loop. *Closed loop* keeps a number of requests in flight. *Open loop* sends at
fixed moments, whatever the server does, and measures each latency from the moment at which the request should have been
sent; the thesis bounds the requests in flight, which hides queueing. Latencies are in microseconds.

**Left out**: figures 5.2, 5.4, 5.5, 5.7, 5.8 and 5.10, which are drawings; 5.3, because there is no DPDK here; more than
one thread of the server; FASTER, which has no server and no package; RocksDB, which has no server either.
";

/// Writes the tables of a chapter.
type Chapter = fn(&Scale) -> Result<String, Fault>;

fn run(args: &Args) -> Result<String, Fault> {
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let scale = Scale {
        time: Duration::from_millis(args.millis.max(1)),
        bytes: args.mib.max(1) << 20,
        records: args.records.max(1),
        folders: Folders::create(&args.dir, &args.memory)?,
    };
    let chapters: [(&str, Chapter); 7] = [
        ("counter", counter::page),
        ("scan", scan::page),
        ("collection", collection::page),
        ("ycsb", ycsb::page),
        ("ranges", ranges::page),
        ("beside", beside::page),
        ("kill", kill::page),
    ];
    if let Some(name) = args.only.iter().find(|name| chapters.iter().all(|(is, _)| is != name)) {
        return Err(format!("there is no chapter {name}").into());
    }
    let mut page = INTRODUCTION.to_owned();
    for (name, chapter) in chapters.into_iter().filter(|(name, _)| wanted(name)) {
        let started = Instant::now();
        page += &chapter(&scale).map_err(|fault| format!("{name}: {fault}"))?;
        eprintln!("{name}: {:.0} s", started.elapsed().as_secs_f64());
    }
    Ok(page)
}

fn main() -> ExitCode {
    let mut args = Args::parse();
    let done = match args.command.take() {
        Some(Child::Serve { settings }) => {
            rstore_server::serve(&settings).map_err(|error: Error| error.into())
        }
        None => run(&args).map(|page| print!("{page}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
