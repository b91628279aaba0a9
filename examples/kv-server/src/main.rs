//! The program: serve, load, trial.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kv_server::{LoadArgs, ServeArgs, TrialArgs};

/// A key-value server that speaks Redis's protocol and keeps its state in a pool.
#[derive(Parser)]
#[command(
    version,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
    kv-server serve /dev/shm/kv.pool\n  redis-cli set answer 42\n  redis-benchmark -t set,get -P 16\n  \
    kv-server trial /dev/shm/trial.pool --records 1000000"
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
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(args) => kv_server::serve(&args),
        Command::Load(args) => kv_server::load(&args),
        Command::Trial(args) => kv_server::trial(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
