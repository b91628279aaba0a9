//! All commands but `quickstart`: the feature `tools`.

use std::process::ExitCode;

use clap::Subcommand;
use pmindex_pibench::Peer;

use crate::error::CliError;
use crate::{bench, completions, pool, torture};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Kill a writing process many times, and verify after each kill that nothing was lost
    Torture(torture::Args),
    #[command(name = torture::bank::TELLER, hide = true)]
    TrialTeller(torture::bank::Args),
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

/// Runs the command that the process was given, and lets `bench` measure these other stores too; returns its exit
/// code.
#[must_use]
pub fn run_with(peers: &'static [Peer]) -> ExitCode {
    bench::peer::set(peers);
    crate::run()
}

/// Runs a command.
pub(crate) fn run(command: Command) -> Result<(), CliError> {
    match command {
        Command::TrialTeller(args) => torture::bank::run(&args),
        Command::Torture(args) => torture::run(&args),
        Command::BenchVictim(args) => bench::victim::run(&args),
        Command::BenchOpener(args) => bench::opener::run(&args),
        Command::Continuer(args) => pool::continue_later(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Report(args) => bench::report(&args),
        Command::Info(args) => pool::info(&args).map_err(|error| error.in_pool(&args.pool)),
        Command::Check(args) => pool::check(&args).map_err(|error| error.in_pool(&args.pool)),
        Command::Get(args) => pool::get(&args).map_err(|error| error.in_pool(&args.which.pool)),
        Command::Put(args) => pool::put(&args).map_err(|error| error.in_pool(&args.which.pool)),
        Command::Del(args) => pool::del(&args).map_err(|error| error.in_pool(&args.which.pool)),
        Command::Scan(args) => pool::scan(&args).map_err(|error| error.in_pool(&args.which.pool)),
        Command::Backup(args) => pool::backup(&args).map_err(|error| error.in_pool(&args.pool)),
        Command::Compact(args) => pool::compact(&args).map_err(|error| error.in_pool(&args.pool)),
        Command::Dump(args) => pool::dump(&args).map_err(|error| error.in_pool(&args.pool)),
        Command::Restore(args) => pool::restore(&args).map_err(|error| error.in_pool(&args.pool)),
        Command::Completions(args) => completions::run(&args),
    }
}
