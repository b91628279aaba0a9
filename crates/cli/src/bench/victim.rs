//! The process that a benchmark kills: it opens the pool and writes until it dies, so that the time
//! of recovery is that after a real SIGKILL.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::CliError;
use crate::medium::MediumArgs;
use crate::registry;

/// The hidden command.
pub(crate) const NAME: &str = "bench-victim";
/// How long it writes.
const WRITING: Duration = Duration::from_millis(20);

/// What the benchmark tells it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The index, by name
    index: String,

    /// Its pool
    pool: PathBuf,

    #[command(flatten)]
    medium: MediumArgs,
}

/// Writes until it is killed.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let entry = registry::find(&args.index)?;
    let Some(write) = entry.write_for_ever else {
        return Err(CliError::UnknownIndex { name: args.index.clone() });
    };
    write(&args.pool, args.medium, &|| {
        let mut out = std::io::stdout();
        out.write_all(b"!").and_then(|()| out.flush()).map_err(CliError::Pipe)
    })
}

/// Starts the process on a pool that nobody has open, and kills it while it writes. It leaves the
/// records as they were, or one more.
pub(crate) fn write_and_kill(index: &str, pool: &Path, medium: MediumArgs) -> Result<(), CliError> {
    let program = std::env::current_exe().map_err(CliError::Child)?;
    let mut child = Command::new(program)
        .args([NAME, index])
        .arg(pool)
        .args(medium.to_arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(CliError::Child)?;
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
