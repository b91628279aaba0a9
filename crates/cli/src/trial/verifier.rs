//! Verifies a pool against the acknowledgements of a machine that is gone.

use std::path::PathBuf;

use crate::error::CliError;
use crate::medium::MediumArgs;
use crate::output;
use crate::table::{counted, millis};

use super::acks;
use super::model::{self, Expected, Model};
use super::script::Script;
use super::source::Source;
use super::store::Store;

/// What was written.
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

/// Opens the pool and compares.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let universes = args.source.universes()?;
    let (words, integers) = (universes.words.len(), universes.integers.len());
    let mut model = Model { words: Expected::empty(words), integers: Expected::empty(integers) };
    let steps = acks::read_counters(&args.acks, args.threads).map_err(CliError::Pipe)?;
    for (thread, steps) in steps.iter().enumerate() {
        model.follow(Script::new(args.script, thread, args.threads, words, integers), *steps, true);
    }
    let (store, opened) = Store::open(&args.pool, args.medium)?;
    store.check()?;
    let words = model::verify(&store.words, &universes.words, &mut model.words)?;
    let integers = model::verify(&store.integers, &universes.integers, &mut model.integers)?;
    let promise = store.promise();
    store.close()?;
    let writes = steps.iter().sum();
    output::print(&format!(
        "{}: {} acknowledged, {} verified, opened in {}\n",
        promise.title(),
        counted(writes, "write", "writes"),
        counted(words.records + integers.records, "record", "records"),
        millis(opened.time),
    ))?;
    for example in words.examples.iter().chain(&integers.examples) {
        output::print(&format!("{example}\n"))?;
    }
    let holds = words.holds() && integers.holds() && writes > 0;
    if holds { Ok(()) } else { Err(CliError::Lost) }
}
