//! The program `pmindex`: persistent indexes from the command line.
//!
//! The code is a library, so that its tests share the compiled code; the program is `main.rs`. Each command
//! has a file. They share `registry` (indexes by name), `trial` (kills a writing process and verifies its
//! pool), `table` and `progress` (output for people), and `memory` (figures of the operating system).
#![forbid(unsafe_code)]

mod bench;
mod completions;
mod error;
mod interrupt;
mod kinds;
mod medium;
mod memory;
mod output;
mod pool;
mod progress;
mod quickstart;
mod registry;
mod style;
mod table;
mod temp_file;
mod torture;
mod trial;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use pmindex_pibench::Peer;

use crate::error::CliError;

/// Crash-consistent ordered indexes in persistent memory, or in any file that can be mapped
#[derive(Parser)]
#[command(name = "pmindex", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

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
    /// Kill a writing process many times, and verify after each kill that nothing was lost
    Torture(torture::Args),
    #[command(name = torture::bank::TELLER, hide = true)]
    TrialTeller(torture::bank::Args),
    #[command(name = trial::VERIFIER, hide = true)]
    TrialVerifier(trial::verifier::Args),
    #[command(name = bench::victim::NAME, hide = true)]
    BenchVictim(bench::victim::Args),
    #[command(name = bench::opener::NAME, hide = true)]
    BenchOpener(bench::opener::Args),
    #[command(name = pool::CONTINUER, hide = true)]
    Continuer(pool::ContinuerArgs),
    /// Measure indexes beside each other and beside std's volatile `BTreeMap`
    Bench(Box<bench::Args>),
    /// Draw the output of `bench --json` as one page of charts
    Report(bench::ReportArgs),
    /// Show what a pool is, what it survives, and what it contains
    Info(pool::InfoArgs),
    /// Verify every index of a pool
    Check(pool::CheckArgs),
    /// Print the value of a key
    Get(pool::GetArgs),
    /// Add or replace a record
    Put(pool::PutArgs),
    /// Remove a record
    Del(pool::DelArgs),
    /// List records in key order
    Scan(pool::ScanArgs),
    /// Copy a pool, and verify the copy
    Backup(pool::BackupArgs),
    /// Return the unused space of a pool to the file system
    Compact(pool::CompactArgs),
    /// Write a pool as text, one JSON value per line
    Dump(pool::DumpArgs),
    /// Create a new pool from the output of `dump`
    Restore(pool::RestoreArgs),
    /// Print completions for a shell
    Completions(completions::Args),
}

/// Runs the command that the process was given, and returns its exit code.
#[must_use]
pub fn run() -> ExitCode {
    run_with(&[])
}

/// Does the same, and lets `bench` measure these other stores too.
#[must_use]
pub fn run_with(peers: &'static [Peer]) -> ExitCode {
    bench::peer::set(peers);
    let outcome = match Cli::parse().command {
        Command::Quickstart(args) => quickstart::run(&args),
        Command::TrialWriter(args) => trial::writer::run(&args),
        Command::TrialVerifier(args) => trial::verifier::run(&args),
        Command::TrialTeller(args) => torture::bank::run(&args),
        Command::Torture(args) => torture::run(&args),
        Command::BenchVictim(args) => bench::victim::run(&args),
        Command::BenchOpener(args) => bench::opener::run(&args),
        Command::Continuer(args) => pool::continue_later(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Report(args) => bench::report(&args),
        Command::Info(args) => pool::info(&args),
        Command::Check(args) => pool::check(&args),
        Command::Get(args) => pool::get(&args),
        Command::Put(args) => pool::put(&args),
        Command::Del(args) => pool::del(&args),
        Command::Scan(args) => pool::scan(&args),
        Command::Backup(args) => pool::backup(&args),
        Command::Compact(args) => pool::compact(&args),
        Command::Dump(args) => pool::dump(&args),
        Command::Restore(args) => pool::restore(&args),
        Command::Completions(args) => completions::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// Prints what went wrong and what to do next.
fn report(error: &CliError) -> ExitCode {
    eprintln!("error: {error}");
    if let Some(hint) = error.hint() {
        eprintln!("hint: {hint}");
    }
    ExitCode::FAILURE
}
