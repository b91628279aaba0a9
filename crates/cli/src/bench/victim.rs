//! The process that a benchmark kills: it opens the pool and writes until it dies, so that the time
//! of recovery is that after a real SIGKILL.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::bench::bed::Ground;
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

    /// Whether its keys are byte strings
    #[arg(long)]
    bytes: bool,

    #[command(flatten)]
    medium: MediumArgs,
}

/// Writes until it is killed.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let entry = registry::find(&args.index)?;
    let write = if args.bytes {
        entry.bytes.as_ref().and_then(|makers| makers.write_for_ever)
    } else {
        entry.integers.write_for_ever
    };
    let Some(write) = write else {
        return Err(CliError::UnknownIndex { name: args.index.clone() });
    };
    let (path, medium) = (args.pool.as_path(), args.medium);
    let ground = Ground { name: entry.name, path, medium, write_latency: Duration::ZERO, room: 0 };
    write(ground, &|| {
        let mut out = std::io::stdout();
        out.write_all(b"!").and_then(|()| out.flush()).map_err(CliError::Pipe)
    })
}

/// A pool that nobody has open.
pub(crate) struct Target<'a> {
    /// The index in it.
    pub(crate) index: &'a str,
    /// Its file.
    pub(crate) pool: &'a Path,
    /// Whether its keys are byte strings.
    pub(crate) bytes: bool,
    /// How to open it.
    pub(crate) medium: MediumArgs,
}

impl Target<'_> {
    /// This program with a hidden command, on the pool.
    pub(super) fn command(&self, name: &str) -> Result<Command, CliError> {
        let mut command = Command::new(std::env::current_exe().map_err(CliError::Child)?);
        command
            .args([name, self.index])
            .arg(self.pool)
            .args(self.bytes.then_some("--bytes"))
            .args(self.medium.to_arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        Ok(command)
    }
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
