//! The program `pmindex`, with peers to measure beside its indexes.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    pmindex_cli::run_with(pmindex_peers::PEERS)
}
