//! The process in which a benchmark opens an index again. What opens a pool after a kill is a process
//! that has done nothing yet; the one that has measured would tell other times. Its heap is full of
//! small blocks that it freed, and the first large one that anybody allocates waits until malloc has
//! sorted them.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use crate::bench::bed::{Ground, Opened};
use crate::bench::victim::Target;
use crate::error::CliError;
use crate::medium::MediumArgs;
use crate::registry;

/// The hidden command.
pub(crate) const NAME: &str = "bench-opener";

/// What the benchmark tells it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The index, by name
    index: String,

    /// Its pool
    pool: PathBuf,

    /// Whether its keys are byte strings
    #[arg(long)]
    bytes: bool,

    /// What each flushed line takes longer
    #[arg(long, default_value_t = 0)]
    write_latency: u64,

    /// Whether to verify the structure, and to close index and pool
    #[arg(long)]
    verify: bool,

    #[command(flatten)]
    medium: MediumArgs,
}

/// Opens, and prints the nanoseconds that it took and the records found.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let entry = registry::find(&args.index)?;
    let open = if args.bytes {
        entry.bytes.as_ref().and_then(|makers| makers.open)
    } else {
        entry.integers.open
    };
    let Some(open) = open else {
        return Err(CliError::UnknownIndex { name: args.index.clone() });
    };
    let (path, medium) = (args.pool.as_path(), args.medium);
    let write_latency = Duration::from_nanos(args.write_latency);
    let ground = Ground { name: entry.name, path, medium, write_latency, room: 0 };
    let Opened { took, records } = open(ground, args.verify)?;
    writeln!(std::io::stdout(), "{} {records}", took.as_nanos()).map_err(CliError::Pipe)
}

/// Opens the index of a pool in a process of its own, which ends then. If it is to `verify` the
/// structure, it closes index and pool as well.
pub(crate) fn open(
    target: &Target<'_>,
    write_latency: Duration,
    verify: bool,
) -> Result<Opened, CliError> {
    let mut command = target.command(NAME)?;
    command.args(verify.then_some("--verify"));
    command.arg("--write-latency").arg(write_latency.as_nanos().to_string());
    let child = command.spawn().map_err(CliError::Child)?;
    let output = child.wait_with_output().map_err(CliError::Child)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut numbers = printed.split_whitespace().map_while(|number| number.parse().ok());
    match (output.status.success(), numbers.next(), numbers.next()) {
        (true, Some(nanos), Some(records)) => {
            Ok(Opened { took: Duration::from_nanos(nanos), records })
        }
        _ => Err(CliError::NotOpened { index: target.index.to_owned(), status: output.status }),
    }
}
