//! `pmindex check`: opens every index of a pool and verifies its whole structure.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::error::CliError;
use crate::table::counted;
use crate::{output, style};

use super::{handle, open};

/// Which pool.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  pmindex check my.pool\n\n\
    The pool is not changed; the exit code is 0 only if every index is whole.")]
pub(crate) struct Args {
    /// The pool's file
    pool: PathBuf,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let pool = open::read_only(&args.pool)?;
    let mut results: Vec<(String, Result<u64, CliError>)> = Vec::new();
    for entry in pool.indexes()? {
        let outcome = handle::open_any(&pool, &entry).and_then(|handle| Ok(handle.check()?));
        results.push((entry.name, outcome));
    }
    let bad = results.iter().filter(|(_, outcome)| outcome.is_err()).count();
    if args.json {
        let indexes: Vec<Value> = results
            .iter()
            .map(|(name, outcome)| match outcome {
                Ok(records) => json!({ "name": name, "whole": true, "records": records }),
                Err(error) => json!({ "name": name, "whole": false, "error": error.to_string() }),
            })
            .collect();
        let report = json!({ "pool": args.pool, "whole": bad == 0, "indexes": indexes });
        output::print_json(&report)?;
    } else if results.is_empty() {
        output::print("the pool is whole; it has no index yet\n")?;
    } else {
        output::print(&results.iter().map(line).collect::<String>())?;
    }
    if bad == 0 { Ok(()) } else { Err(CliError::Damaged { indexes: bad }) }
}

fn line((name, outcome): &(String, Result<u64, CliError>)) -> String {
    match outcome {
        Ok(records) => {
            format!(
                "{name}: {}, {}\n",
                style::good("whole"),
                counted(*records, "record", "records")
            )
        }
        Err(error) => format!("{name}: {}: {error}\n", style::bad("damaged")),
    }
}
