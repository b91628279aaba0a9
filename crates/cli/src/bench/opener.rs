//! The process in which a benchmark opens an index again. After a real kill a fresh process opens the pool.
//! The measuring process would take longer: its heap is full of small freed blocks, which malloc sorts at
//! the first large allocation.

use std::io::Write;
use std::time::Duration;

use crate::bench::bed::Opened;
use crate::bench::target::{Target, TargetArgs};
use crate::error::CliError;

/// The hidden command.
pub(crate) const NAME: &str = "bench-opener";

/// The arguments that the benchmark passes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: TargetArgs,

    /// What each flushed line takes longer
    #[arg(long, default_value_t = 0)]
    write_latency: u64,

    /// `true` to verify the structure, and to close index and pool
    #[arg(long)]
    verify: bool,
}

/// Opens the index, and prints the nanoseconds that it took and the number of records.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let (subprocess, setup) = args.target.find(Duration::from_nanos(args.write_latency))?;
    let Opened { took, records } = (subprocess.open)(setup, args.verify)?;
    writeln!(std::io::stdout(), "{} {records}", took.as_nanos()).map_err(CliError::Pipe)
}

/// Opens the index of a pool in a child process, which then ends. With `verify`, the child also verifies
/// the structure and closes index and pool.
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
