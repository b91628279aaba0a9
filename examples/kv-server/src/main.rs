//! The program: serve, load, trial, compare.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
#[cfg(feature = "redb")]
use kv_server::RedbArgs;
use kv_server::{CompareArgs, LoadArgs, ServeArgs, TrialArgs};

/// A key-value server that speaks Redis's protocol and keeps its state in a pool.
#[derive(Parser)]
#[command(
    version,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
    kv-server serve /dev/shm/kv.pool\n  redis-cli set answer 42\n  redis-benchmark -t set,get -P 16\n  \
    kv-server trial /dev/shm/trial.pool --records 1000000\n  \
    kv-server compare /dev/shm"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a pool until a client says SHUTDOWN
    Serve(ServeArgs),
    /// Send sets and gets to a server; rates and latencies
    Load(LoadArgs),
    /// Write to a server, kill -9 it, start it again, verify; the time of the restart
    Trial(TrialArgs),
    /// The same trial of this server, of Redis if it is installed, and of redb (feature `redb`)
    Compare(CompareArgs),
    /// Write to redb until killed
    #[cfg(feature = "redb")]
    #[command(hide = true)]
    RedbWrite(RedbArgs),
    /// Open what redb has, and read
    #[cfg(feature = "redb")]
    #[command(hide = true)]
    RedbRead(RedbArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(args) => kv_server::serve(&args),
        Command::Load(args) => kv_server::load(&args),
        Command::Trial(args) => kv_server::trial(&args),
        Command::Compare(args) => kv_server::compare(&args),
        #[cfg(feature = "redb")]
        Command::RedbWrite(args) => kv_server::redb_write(&args),
        #[cfg(feature = "redb")]
        Command::RedbRead(args) => kv_server::redb_read(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
