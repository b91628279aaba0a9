//! Verifies a pool against the acknowledgements that survived a crash of the machine.

use std::path::PathBuf;

use crate::error::CliError;
use crate::medium::MediumArgs;
use crate::output;
use crate::table::{counted, millis};

use super::acks::Acks;
use super::model::Model;
use super::round::Trial;
use super::source::Source;

/// What was written, and where.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The pool
    pool: PathBuf,

    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    medium: MediumArgs,

    /// Threads that wrote
    #[arg(long)]
    threads: usize,

    /// The seed of the scripts
    #[arg(long)]
    script: u64,

    /// Their acknowledgements
    #[arg(long, value_name = "FILE")]
    acks: PathBuf,
}

/// Opens the pool, and compares.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let universes = args.source.universes()?;
    let acks = Acks::open(&args.acks).and_then(|acks| acks.read(args.threads));
    let steps = acks.map_err(CliError::Pipe)?;
    let mut trial = Trial {
        path: &args.pool,
        source: &args.source,
        universes: &universes,
        medium: args.medium,
        model: Model::empty(&universes),
        lose: false,
    };
    let (store, opened, verdict) = trial.compare(args.script, &steps, true)?;
    let promise = store.promise();
    store.close()?;
    let writes = steps.iter().sum();
    output::print(&format!(
        "{}: {} acknowledged, {} verified, opened in {}\n",
        promise.title(),
        counted(writes, "write", "writes"),
        counted(verdict.records, "record", "records"),
        millis(opened.time),
    ))?;
    for example in &verdict.examples {
        output::print(&format!("{example}\n"))?;
    }
    if verdict.holds() && writes > 0 { Ok(()) } else { Err(CliError::Lost) }
}
