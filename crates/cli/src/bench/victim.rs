//! The process that a benchmark kills: it opens the pool and writes until it is killed, so that the time of
//! recovery is measured after a real SIGKILL.

use std::io::{Read, Write};
use std::time::Duration;

use crate::bench::target::{Target, TargetArgs};
use crate::error::CliError;
use crate::trial::crash::{End, Victim};

/// The hidden command.
pub(crate) const NAME: &str = "bench-victim";
/// How long it writes before the kill.
const WRITING: Duration = Duration::from_millis(20);

/// The arguments that the benchmark passes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: TargetArgs,
}

/// Writes until it is killed.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    // If the measuring process dies, this one must end too. Only Linux has a call for that.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let (subprocess, setup) = args.target.find(Duration::ZERO)?;
    (subprocess.write_for_ever)(setup, &|| {
        let mut out = std::io::stdout();
        out.write_all(b"!").and_then(|()| out.flush()).map_err(CliError::Pipe)
    })
}

/// Starts the process on a pool, and kills it while it writes. The pool then has the same records as
/// before, or one more.
pub(crate) fn write_and_kill(target: &Target<'_>) -> Result<(), CliError> {
    let mut victim = Victim::start(target.command(NAME)?)?;
    let pipe = victim.process().stdout.as_mut();
    if pipe.is_none_or(|pipe| pipe.read_exact(&mut [0]).is_err()) {
        let status = victim.process().wait().map_err(CliError::Child)?;
        return Err(CliError::ChildEnded { status });
    }
    std::thread::sleep(WRITING);
    victim.end(End::Kill)
}
