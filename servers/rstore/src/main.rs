//! The program: `rstore serve`, and what tries it out.
#![forbid(unsafe_code)]

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rstore_server::{ClusterArgs, CompareArgs, Error, LoadArgs, Settings, TrialArgs};

/// A key-value server for clients of Redis and memcached: its records are in pools of persistent memory,
/// or of any mapped file, and it is back at once after a kill
#[derive(Parser)]
#[command(name = "rstore", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  rstore serve --dir /dev/shm/rstore                       on memory: survives kills of the process
  rstore serve --dir /var/lib/rstore --durability journal  on a disk: survives power failures
  rstore serve --config /etc/rstore.toml                   as systemd starts it
  rstore serve --dir /mnt/pmem/rstore --partitions auto --cluster
                                                           a node of a Redis Cluster for each core
  redis-cli set a 1                                        any client of Redis
  redis-cli backup /backup/monday                          while it serves
  rstore serve --dir /backup/monday --listen 127.0.0.1:7000
                                                           a backup is a folder to serve
  rstore cluster create /dev/shm/group                     three nodes, each of which has everything
  rstore trial /dev/shm/trial --records 1000000            write, kill -9, start, verify";

#[derive(Subcommand)]
enum Command {
    /// Serve a folder of pools
    Serve {
        /// A file with the names of the flags, as TOML; flags are stronger
        #[arg(long, short, value_name = "FILE")]
        config: Option<PathBuf>,

        #[command(flatten)]
        settings: Box<Settings>,
    },
    /// Make and run a group of nodes on this machine, each of which has everything
    #[command(subcommand)]
    Cluster(ClusterArgs),
    /// Send sets and gets to any server and print rates and latencies
    Load(LoadArgs),
    /// Write, kill -9, start again, verify every acknowledged write
    Trial(TrialArgs),
    /// The trial, of this server and of redis-server
    Compare(CompareArgs),
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // A file and the journal of systemd have no colours.
    let colours = io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        .with_writer(io::stderr)
        .init();
    let done = match Cli::parse().command {
        Command::Serve { config, settings } => {
            settled(config, *settings).and_then(|settings| rstore_server::serve(&settings))
        }
        Command::Cluster(args) => rstore_server::cluster(&args),
        Command::Load(args) => rstore_server::load(&args),
        Command::Trial(args) => rstore_server::trial(&args),
        Command::Compare(args) => rstore_server::compare(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rstore: {error}");
            ExitCode::FAILURE
        }
    }
}

fn settled(config: Option<PathBuf>, flags: Settings) -> Result<Settings, Error> {
    match config {
        Some(path) => Ok(flags.over(Settings::read(&path)?)),
        None => Ok(flags),
    }
}
