//! `pmindex`: persistent indexes from the command line.
//!
//! One file per command; what they share is `registry` (indexes by name), `table` and `progress`
//! (what a person sees), `memory` (what the operating system says).
#![forbid(unsafe_code)]

mod bench;
mod error;
mod memory;
mod progress;
mod registry;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::CliError;

/// Crash-consistent ordered indexes in persistent memory, or in any file that can be mapped
#[derive(Parser)]
#[command(name = "pmindex", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure indexes against each other and against std's `BTreeMap`
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// Says what went wrong and what to do next.
fn report(error: &CliError) -> ExitCode {
    eprintln!("error: {error}");
    if let Some(hint) = error.hint() {
        eprintln!("hint: {hint}");
    }
    ExitCode::FAILURE
}
