//! `pmindex`: persistent indexes from the command line.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    pmindex_cli::run()
}
