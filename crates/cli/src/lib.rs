//! The program `pmindex`: persistent indexes from the command line.
//!
//! The code is a library, so that its tests share the compiled code; the program is `main.rs`. Each command
//! has a file; without the feature `tools` there is only `quickstart`, with FPTree alone. They share
//! `registry` (indexes by name), `trial` (kills a writing process and verifies its pool), `table` and
//! `progress` (output for people), and `memory` (figures of the operating system).
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "tools"), allow(dead_code, reason = "what only other commands use"))]

#[cfg(feature = "tools")]
mod bench;
#[cfg(feature = "tools")]
mod completions;
mod error;
mod interrupt;
mod kinds;
mod medium;
#[cfg(feature = "tools")]
mod memory;
mod output;
#[cfg(feature = "tools")]
mod pool;
mod progress;
mod quickstart;
#[cfg(feature = "tools")]
mod registry;
mod style;
mod table;
mod temp_file;
#[cfg(feature = "tools")]
mod tools;
#[cfg(feature = "tools")]
mod torture;
mod trial;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::CliError;
#[cfg(feature = "tools")]
pub use crate::tools::run_with;

/// Crash-consistent ordered indexes in persistent memory, or in any file that can be mapped
#[derive(Parser)]
#[command(name = "pmindex", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[cfg(not(feature = "tools"))]
const EXAMPLES: &str =
    "This program was built without its feature `tools`. With it, it has all commands and kinds
of index: cargo build --release -p pmindex-cli";

#[cfg(feature = "tools")]
const EXAMPLES: &str = "Examples:
  pmindex quickstart                    load, kill, recover, verify: see it work
  pmindex put my.pool apple red         create a pool with one record
  pmindex scan my.pool
  pmindex info my.pool                  show what it survives and what it contains
  pmindex check my.pool --repair new.pool
  pmindex dump my.pool | pmindex restore - other.pool --type wbtree

Exit codes: 0 success; 1 failure, missing key, or damage (standard error says what to do next); 2 wrong
command line. Progress goes to standard error: a bar on a terminal, a line every few seconds elsewhere.
Set NO_COLOR to switch colours off.";

#[derive(Subcommand)]
enum Command {
    /// Load real keys, kill a writing process, recover, and verify that nothing was lost
    Quickstart(quickstart::Args),
    #[command(name = trial::WRITER, hide = true)]
    TrialWriter(trial::writer::Args),
    #[command(name = trial::VERIFIER, hide = true)]
    TrialVerifier(trial::verifier::Args),
    #[cfg(feature = "tools")]
    #[command(flatten)]
    Tool(tools::Command),
}

/// Runs the command that the process was given, and returns its exit code.
#[must_use]
pub fn run() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Quickstart(args) => quickstart::run(&args),
        Command::TrialWriter(args) => trial::writer::run(&args),
        Command::TrialVerifier(args) => trial::verifier::run(&args),
        #[cfg(feature = "tools")]
        Command::Tool(command) => tools::run(command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// Parses a number of seconds.
#[cfg(feature = "tools")]
fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=31_536_000.0).contains(seconds));
    seconds.ok_or_else(|| "it must be a number from 0 to 31536000 (a year), such as 0.5".into())
}

/// Prints what went wrong and what to do next.
fn report(error: &CliError) -> ExitCode {
    eprintln!("error: {error}");
    if let Some(hint) = error.hint() {
        eprintln!("hint: {hint}");
    }
    ExitCode::from(error.exit_code())
}
