//! The program: `rstore serve`, and tools that test it.
#![forbid(unsafe_code)]

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rstore_server::{ClusterArgs, CompareArgs, Error, LoadArgs, Settings, TrialArgs};

/// A key-value server for clients of Redis and memcached. It keeps its records in persistent memory or in
/// mapped files, and serves again immediately after a kill
#[derive(Parser)]
#[command(name = "rstore", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  rstore serve --dir /dev/shm/rstore                       in memory: survives kills of the process
  rstore serve --dir /var/lib/rstore --durability journal  on a disk: survives power failures
  rstore serve --config /etc/rstore.toml                   as started by systemd
  rstore serve --dir /mnt/pmem/rstore --partitions auto --cluster
                                                           a node of a Redis Cluster for each core
  redis-cli set a 1                                        use any client of Redis
  redis-cli backup /backup/monday                          back up while the server runs
  rstore serve --dir /backup/monday --listen 127.0.0.1:7000
                                                           serve a backup
  rstore cluster create /dev/shm/group                     three nodes that replicate all records
  rstore cluster create /dev/shm/groups --partitions 4     ... and share the leadership of four groups
  rstore trial /dev/shm --records 1000000                  write, kill -9, restart, verify, in a new folder there";

#[derive(Subcommand)]
enum Command {
    /// Serve a folder of pools
    Serve {
        /// A TOML file with settings, named like the flags; a flag overrides it
        #[arg(long, short, value_name = "FILE")]
        config: Option<PathBuf>,

        #[command(flatten)]
        settings: Box<Settings>,
    },
    /// Create and run a group of nodes on this machine that replicate all records
    #[command(subcommand)]
    Cluster(ClusterArgs),
    /// Send SETs and GETs to any server, and print rates and latencies
    Load(LoadArgs),
    /// Write, kill the server with SIGKILL, restart it, and verify every acknowledged write
    Trial(TrialArgs),
    /// Run the trial on this server and on redis-server
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
            // Like a wrong command line: repeating it is in vain.
            let is_wrong = matches!(error, Error::Setting(_) | Error::Config { .. });
            if is_wrong { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn settled(config: Option<PathBuf>, flags: Settings) -> Result<Settings, Error> {
    match config {
        Some(path) => Ok(flags.over(Settings::read(&path)?)),
        None => Ok(flags),
    }
}
