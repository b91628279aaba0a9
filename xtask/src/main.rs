//! Developer commands: `cargo xtask help` lists them. One file per command.
#![forbid(unsafe_code)]

mod api;
mod bindgen;
mod bless;
mod book;
mod ci;
mod crash;
mod cross;
mod dax_vm;
mod disk_vm;
mod engines;
mod evidence;
mod format;
mod fuzz;
mod peers;
mod python;
mod release;
mod rstore;
mod sanitize;
mod shell;
mod tidy;
mod torture;
mod vm;
mod which_index;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of the pmindex workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Generates the bindings to libpmem from its header
    Bindgen,
    /// Regenerates the golden files (costs per operation) and shows what changed
    Bless,
    /// Builds the guide as a book, in target/book
    Book(book::Args),
    /// Runs everything that continuous integration checks: format, lints, docs, tidiness, tests, crashes
    Ci(ci::Args),
    /// Explores crash states: every image that a crash may leave must recover
    Crash(crash::Args),
    /// Boots a virtual machine with an NVDIMM: detection, `MAP_SYNC`, kills of the whole machine
    DaxVm(dax_vm::Args),
    /// Simulates power failures and errors of a disk in a virtual machine, under file systems of a real
    /// kernel
    DiskVm(disk_vm::Args),
    /// Tests the block cache under `SlateDB`, foyer and moka, and runs its examples
    Engines(engines::Args),
    /// Measures every index and peer on this machine, and writes tables and a page of charts
    Evidence(evidence::Args),
    /// Writes docs/format.md from the sources that define the on-media format
    Format,
    /// Fuzzes with damaged pool files, guided by coverage
    Fuzz(fuzz::Args),
    /// Compares the claims of a paper with measurements on this machine
    Paper(evidence::PaperArgs),
    /// Compares the allocator with PMDK's, if that is installed
    Peers(peers::Args),
    /// Builds the package for Python, and runs its tests
    Python(python::Args),
    /// Prepares a release: manifests, lock file, CHANGELOG.md
    Release(release::Args),
    /// Tests the server `rstore` with clients of Redis and memcached, and compares it with both servers
    Rstore(rstore::Args),
    /// Runs pm-core's attacks under `AddressSanitizer` and Miri, as far as nightly Rust has them
    Sanitize,
    /// Kills writing processes for a long time, and verifies that nothing is lost
    Torture(torture::Args),
    /// Fills the measured table of docs/book/src/which-index.md from a report of `pmindex bench --json`
    WhichIndex(which_index::Args),
    /// Checks the house rules that no compiler checks: file sizes, module docs, layers, links, wording
    Tidy,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Bindgen => bindgen::run(),
        Command::Bless => bless::run(),
        Command::Book(args) => book::run(args).map(drop),
        Command::Ci(args) => ci::run(&args),
        Command::Crash(args) => crash::run(&args),
        Command::DaxVm(args) => dax_vm::run(&args),
        Command::DiskVm(args) => disk_vm::run(&args),
        Command::Engines(args) => engines::run(&args),
        Command::Evidence(args) => evidence::run(&args),
        Command::Paper(args) => evidence::paper(&args),
        Command::Format => format::run(),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Peers(args) => peers::run(&args),
        Command::Python(args) => python::run(&args),
        Command::Release(args) => release::run(&args),
        Command::Rstore(args) => rstore::run(&args),
        Command::Sanitize => sanitize::run().map(drop),
        Command::Torture(args) => torture::run(&args),
        Command::WhichIndex(args) => which_index::run(&args),
        Command::Tidy => tidy::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
