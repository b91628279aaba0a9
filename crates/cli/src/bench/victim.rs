//! The process that a benchmark kills: it opens the pool and writes until it dies, so that the time
//! of recovery is that after a real SIGKILL.

use std::io::{Read, Write};
use std::time::Duration;

use crate::bench::target::{Target, TargetArgs};
use crate::error::CliError;

/// The hidden command.
pub(crate) const NAME: &str = "bench-victim";
/// How long it writes.
const WRITING: Duration = Duration::from_millis(20);

/// What the benchmark tells it.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: TargetArgs,
}

/// Writes until it is killed.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    // It has nobody to end it when the one that measures is gone. Elsewhere than on Linux there is no
    // such thing, and it is seldom needed.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let (apart, ground) = args.target.find(Duration::ZERO)?;
    (apart.write_for_ever)(ground, &|| {
        let mut out = std::io::stdout();
        out.write_all(b"!").and_then(|()| out.flush()).map_err(CliError::Pipe)
    })
}

/// Starts the process on a pool, and kills it while it writes. It leaves the records as they were,
/// or one more.
pub(crate) fn write_and_kill(target: &Target<'_>) -> Result<(), CliError> {
    let mut child = target.command(NAME)?.spawn().map_err(CliError::Child)?;
    let mut first = [0];
    let began = match child.stdout.as_mut() {
        Some(pipe) => pipe.read_exact(&mut first),
        None => Err(std::io::Error::other("the child has no pipe")),
    };
    if began.is_ok() {
        std::thread::sleep(WRITING);
    }
    let killed = child.kill();
    let status = child.wait().map_err(CliError::Child)?;
    killed.map_err(CliError::Child)?;
    if began.is_err() || status.code().is_some() {
        return Err(CliError::ChildEnded { status });
    }
    Ok(())
}
