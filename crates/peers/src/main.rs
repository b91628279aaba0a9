//! The program `pmindex` with peers to compare its indexes with.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    pmindex_cli::run_with(pmindex_peers::PEERS)
}
