//! Finds the process that has a pool open for writing, and stops it for a while.
//!
//! A stopped process (SIGSTOP) stores nothing, and all its earlier stores are in the pages of the file,
//! where every process can read them. So the file is the pool that a kill at this moment would leave, and
//! every index recovers from that.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use crate::error::CliError;

/// The hidden command that continues a stopped process after the process that stopped it has died.
pub(crate) const CONTINUER: &str = "continue-later";
/// How long a process may take to stop.
const PATIENCE: Duration = Duration::from_secs(5);

/// A process that writes to a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    /// Its process id.
    pub(crate) process: u32,
    /// The name of its program.
    pub(crate) name: String,
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.process, self.name)
    }
}

/// Returns the process that holds the writer's lock on the pool, if the kernel shows it; it hides processes
/// of another namespace or user.
pub(crate) fn of(pool: &Path) -> Option<Writer> {
    let file = fs::metadata(pool).ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let inode = format!(":{}", file.ino());
    let holders = locks.lines().filter_map(|line| {
        // 3: FLOCK  ADVISORY  WRITE 1234 00:1b:5678 0 EOF
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", process, place, ..] = fields[..] else { return None };
        place.ends_with(&inode).then(|| process.parse::<u32>().ok()).flatten()
    });
    // Two file systems may have the same inode number, so compare with the files that the process has open.
    let holds = |process: &u32| {
        let open = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        open.filter_map(|entry| fs::metadata(entry.path()).ok())
            .any(|other| (other.dev(), other.ino()) == (file.dev(), file.ino()))
    };
    let process = holders.into_iter().find(holds)?;
    let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(Writer { process, name: name.trim().to_owned() })
}

/// A process that is stopped until this is dropped.
pub(crate) struct Stopped {
    process: OwnedFd,
    /// Continues the process if this program is killed meanwhile.
    continuer: Child,
}

impl Stopped {
    /// Stops the writer of a pool, and waits until each of its threads has stopped.
    pub(crate) fn stop(pool: &Path) -> Result<Self, CliError> {
        let fault = |what: String| CliError::WriterBusy { path: pool.to_path_buf(), what };
        let unseen = || {
            fault(
                "cannot find the process that writes to it; run this as its user, or as root"
                    .into(),
            )
        };
        let writer = of(pool).ok_or_else(unseen)?;
        let number = i32::try_from(writer.process).ok().and_then(Pid::from_raw);
        let refused = |e| fault(format!("{writer} cannot be stopped: {e}"));
        // A handle: if the process ends now, its number may be given to another one.
        let process =
            pidfd_open(number.ok_or_else(unseen)?, PidfdFlags::empty()).map_err(refused)?;
        if of(pool).as_ref() != Some(&writer) {
            return Err(fault(format!("{writer} has just ended; try again")));
        }
        if is_stopped(writer.process) {
            return Err(fault(format!(
                "{writer} is stopped already; continue it first (kill -CONT)"
            )));
        }
        let mut continuer = Command::new(std::env::current_exe().map_err(CliError::Child)?);
        // A process group of its own, so that Ctrl-C reaches only the backup.
        continuer.args([CONTINUER, &writer.process.to_string()]).process_group(0);
        continuer.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let continuer = continuer.spawn().map_err(CliError::Child)?;
        let stopped = Self { process, continuer };
        pidfd_send_signal(&stopped.process, Signal::STOP).map_err(refused)?;
        let begun = Instant::now();
        while !is_stopped(writer.process) {
            if begun.elapsed() > PATIENCE {
                return Err(fault(format!("{writer} did not stop in time")));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Fails if the process has ended, which is fine.
        let _ = pidfd_send_signal(&self.process, Signal::CONT);
        drop(self.continuer.stdin.take());
        let _ = self.continuer.wait();
    }
}

/// Returns `true` if every thread of a process is stopped.
fn is_stopped(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return false };
    let mut states = threads.flatten().map(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name before it is in parentheses, and may contain any character.
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
    });
    states.all(|state| matches!(state, Some('T' | 't' | 'Z' | 'X')))
}

/// The arguments of the hidden command.
#[derive(clap::Args)]
pub(crate) struct ContinuerArgs {
    /// The process
    process: i32,
}

/// Waits until standard input ends, then continues the process.
pub(crate) fn continue_later(args: &ContinuerArgs) -> Result<(), CliError> {
    let ended = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    if let Some(process) = Pid::from_raw(args.process) {
        // Fails if the process has ended, which is fine.
        let _ = kill_process(process, Signal::CONT);
    }
    ended.map(drop).map_err(CliError::Pipe)
}
