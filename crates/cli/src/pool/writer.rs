//! Finds the process that has a pool open for writing, and stops it for a while.
//!
//! A stopped process (SIGSTOP) stores nothing, and all its earlier stores are in the pages of the file,
//! where every process can read them. So the file is the pool that a kill at this moment would leave, and
//! every index recovers from that.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) use pmindex::core::Writer;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use crate::error::CliError;

/// The hidden command that continues a stopped process after the process that stopped it has died.
pub(crate) const CONTINUER: &str = "continue-later";
/// How long a process may take to stop.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the process that has the pool open for writing, if the kernel shows it.
pub(crate) fn of(pool: &Path) -> Option<Writer> {
    Writer::of(pool)
}

/// A process that is stopped until this is dropped.
pub(crate) struct Stopped {
    writer: Writer,
    pool: PathBuf,
    /// The pool's file.
    file: Metadata,
    process: OwnedFd,
    /// Continues the process if this program is killed meanwhile.
    continuer: Child,
}

impl Stopped {
    /// Stops the writer of a pool, which is in this file, and waits until each of its threads has stopped.
    pub(crate) fn stop(pool: &Path, file: &File) -> Result<Self, CliError> {
        Self::stop_with(pool, file, || ())
    }

    /// Does the same, and calls `between` before the signal.
    fn stop_with(pool: &Path, file: &File, between: impl FnOnce()) -> Result<Self, CliError> {
        let fault = |what: String| CliError::WriterBusy { path: pool.to_path_buf(), what };
        let unseen = || {
            fault(
                "cannot find the process that writes to it; run this as its user, or as root"
                    .into(),
            )
        };
        let file = file.metadata();
        let file = file.map_err(|error| CliError::File { path: pool.to_path_buf(), error })?;
        let writer = Writer::of_file(&file).ok_or_else(unseen)?;
        let number = i32::try_from(writer.process).ok().and_then(Pid::from_raw);
        // A handle: if the process ends now, its number may be given to another one.
        let process = pidfd_open(number.ok_or_else(unseen)?, PidfdFlags::empty())
            .map_err(|e| fault(format!("{writer} cannot be stopped: {e}")))?;
        if Writer::of_file(&file).as_ref() != Some(&writer) {
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
        let number = writer.process;
        let stopped = Self { writer, pool: pool.to_path_buf(), file, process, continuer };
        between();
        pidfd_send_signal(&stopped.process, Signal::STOP)
            .map_err(|e| fault(format!("{} cannot be stopped: {e}", stopped.writer)))?;
        let begun = Instant::now();
        while !is_stopped(number) {
            if begun.elapsed() > PATIENCE {
                return Err(fault(format!("{} did not stop in time", stopped.writer)));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        // It may have closed the pool before the signal, and another process have opened it.
        stopped.confirm()?;
        Ok(stopped)
    }

    /// Returns an error unless the process is still stopped, and still the writer of the file, which is still the
    /// pool.
    pub(crate) fn confirm(&self) -> Result<(), CliError> {
        let Self { writer, pool, file, .. } = self;
        let fault = |what: String| Err(CliError::WriterBusy { path: pool.clone(), what });
        let named = fs::metadata(pool);
        if !named.is_ok_and(|named| (named.dev(), named.ino()) == (file.dev(), file.ino())) {
            return fault("it was replaced meanwhile; try again".into());
        }
        if Writer::of_file(file).as_ref() != Some(writer) {
            return fault(format!("{writer} has just closed it; try again"));
        }
        if !is_stopped(writer.process) {
            return fault(format!("another process let {writer} go on; try again"));
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{ChildStdin, ChildStdout};

    use rustix::fs::{FlockOperation, flock};

    use super::*;

    /// The variable with the file for [`in_a_child`].
    const FILE: &str = "PMINDEX_TEST_HOLDER";

    /// What the child of the tests below does: it locks a file, and unlocks it when it is told to.
    #[test]
    fn in_a_child() {
        let Some(path) = std::env::var_os(FILE) else { return };
        let file = File::options().write(true).open(path).expect("a file");
        let mut lines = std::io::stdin().lines();
        for how in [FlockOperation::LockExclusive, FlockOperation::Unlock] {
            flock(&file, how).expect("free");
            println!("done");
            lines.next();
        }
    }

    struct Holder {
        child: Child,
        told: ChildStdin,
        says: BufReader<ChildStdout>,
    }

    impl Holder {
        fn new(path: &Path) -> Self {
            let mut child = Command::new(std::env::current_exe().expect("this program"))
                .args(["pool::writer::tests::in_a_child", "--exact", "--nocapture"])
                .env(FILE, path)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("it starts");
            let told = child.stdin.take().expect("a pipe");
            let says = BufReader::new(child.stdout.take().expect("a pipe"));
            let mut holder = Self { child, told, says };
            holder.wait();
            holder
        }

        fn wait(&mut self) {
            let mut lines = self.says.by_ref().lines();
            assert!(lines.any(|line| line.is_ok_and(|line| line.ends_with("done"))), "it ended");
        }

        /// Lets it unlock the file. It lives on.
        fn let_go(&mut self) {
            self.told.write_all(b"\n").expect("it reads");
            self.wait();
        }
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn busy(result: Result<impl Sized, CliError>, why: &str) {
        match result.map(drop) {
            Err(CliError::WriterBusy { what, .. }) => assert!(what.contains(why), "{what}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_writer_that_hands_the_pool_over_before_it_stops_is_noticed() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a.pm");
        let file = File::create(&path).expect("a file");
        let mut first = Holder::new(&path);
        Stopped::stop(&path, &file).expect("it holds the pool").confirm().expect("still");
        let mut second = None;
        let handed_over = Stopped::stop_with(&path, &file, || {
            first.let_go();
            second = Some(Holder::new(&path));
        });
        busy(handed_over, "has just closed it");
        drop(first);
        assert!(Stopped::stop(&path, &file).is_ok());
    }

    #[test]
    fn a_writer_that_another_process_continues_is_noticed() {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, new) = (dir.path().join("a.pm"), dir.path().join("new.pm"));
        let file = File::create(&path).expect("a file");
        let _writer = Holder::new(&path);
        let first = Stopped::stop(&path, &file).expect("it stops");
        busy(Stopped::stop(&path, &file), "is stopped already");
        first.confirm().expect("stopped");
        pidfd_send_signal(&first.process, Signal::CONT).expect("it lives");
        busy(first.confirm(), "go on");
        drop(first);

        let stopped = Stopped::stop(&path, &file).expect("it stops");
        fs::write(&new, "written anew").and_then(|()| fs::rename(&new, &path)).expect("renamed");
        busy(stopped.confirm(), "was replaced");
    }
}
