//! The process in which a benchmark opens an index again. What opens a pool after a kill is a process
//! that has done nothing yet; the process that has measured would show other times: its heap is full of
//! small freed blocks, and the first large allocation waits until malloc has sorted them.

use std::io::Write;
use std::time::Duration;

use crate::bench::bed::Opened;
use crate::bench::target::{Target, TargetArgs};
use crate::error::CliError;

/// The hidden command.
pub(crate) const NAME: &str = "bench-opener";

/// What the benchmark tells it.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: TargetArgs,

    /// What each flushed line takes longer
    #[arg(long, default_value_t = 0)]
    write_latency: u64,

    /// Whether to verify the structure, and to close index and pool
    #[arg(long)]
    verify: bool,
}

/// Opens, and prints the nanoseconds that it took and the records found.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let (subprocess, setup) = args.target.find(Duration::from_nanos(args.write_latency))?;
    let Opened { took, records } = (subprocess.open)(setup, args.verify)?;
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
