//! A pool on which a benchmark starts a child process: the parent's description of it, and the child's
//! arguments.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::bench::bed::{Setup, Subprocess};
use crate::error::CliError;
use crate::medium::MediumArgs;
use crate::registry;

/// A pool that no process has open.
pub(crate) struct Target<'a> {
    /// The index in it.
    pub(crate) index: &'a str,
    /// Its file.
    pub(crate) pool: &'a Path,
    /// `true` if its keys are byte strings.
    pub(crate) bytes: bool,
    /// How to open it.
    pub(crate) medium: MediumArgs,
}

impl Target<'_> {
    /// Returns this program with a hidden command for the pool.
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

/// A [`Target`] as arguments of the child process.
#[derive(clap::Args)]
pub(super) struct TargetArgs {
    /// The index, by name
    index: String,

    /// Its pool
    pool: PathBuf,

    /// `true` if its keys are byte strings
    #[arg(long)]
    bytes: bool,

    #[command(flatten)]
    medium: MediumArgs,
}

impl TargetArgs {
    /// Returns what a child process can do with the index, and where the index is.
    pub(super) fn find(
        &self,
        write_latency: Duration,
    ) -> Result<(Subprocess, Setup<'_>), CliError> {
        let entry = registry::find(&self.index)?;
        let subprocess = if self.bytes {
            entry.bytes.as_ref().and_then(|makers| makers.subprocess)
        } else {
            entry.integers.subprocess
        };
        let subprocess =
            subprocess.ok_or_else(|| CliError::UnknownIndex { name: self.index.clone() })?;
        let (path, medium) = (self.pool.as_path(), self.medium);
        Ok((subprocess, Setup { name: entry.name, path, medium, write_latency, room: 0 }))
    }
}
