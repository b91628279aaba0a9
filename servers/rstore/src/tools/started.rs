//! The process of a node that was started in the background.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;
use crate::client::Client;

/// The maximum time until a node answers that opens its pools.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time until a node answers whose process has ended because it has another one.
const OTHERS_PATIENCE: Duration = Duration::from_secs(3);
/// The maximum time of one attempt: a node accepts connections before its pools are open.
const ATTEMPT: Duration = Duration::from_millis(500);
/// The end of the log that is searched for its last line.
const END: u64 = 16 << 10;

/// The process of a node. It goes on when this is dropped.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) id: u64,
    /// The address of its first partition, for clients.
    pub(super) address: String,
    pub(super) process: Child,
    pub(super) log: PathBuf,
    /// The bytes of the log when it was started.
    pub(super) logged: u64,
    /// The node is new, so it has no other process, of a call that was interrupted.
    pub(super) is_new: bool,
}

/// Returns `true` if a node answers. It need not know a leader for this request.
fn answers(address: impl ToSocketAddrs) -> bool {
    let reply = Client::connect(address).and_then(|mut client| {
        client.patience(ATTEMPT)?;
        client.call(&["CLUSTER", "MYID"])
    });
    reply.is_ok()
}

impl Started {
    /// Waits until the node answers.
    ///
    /// # Errors
    /// It has ended, with the last line of its log, or takes too long.
    pub(super) fn wait(&mut self) -> Result<(), Error> {
        let (started, mut ended) = (Instant::now(), None);
        while !answers(&*self.address) {
            if ended.is_none() && self.has_ended()? {
                ended = Some(Instant::now());
            }
            let patience = if self.is_new { Duration::ZERO } else { OTHERS_PATIENCE };
            if ended.is_some_and(|at: Instant| at.elapsed() >= patience) {
                return Err(self.error("has ended"));
            }
            if started.elapsed() > PATIENCE {
                return Err(self.error("does not serve yet"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Returns an error if the process has ended and no other one serves the node.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        if self.has_ended()? && !answers(&*self.address) {
            return Err(self.error("has ended"));
        }
        Ok(())
    }

    /// Kills the process.
    pub(super) fn kill(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    fn has_ended(&mut self) -> Result<bool, Error> {
        let status = self.process.try_wait().map_err(Error::io("a node"))?;
        Ok(status.is_some())
    }

    fn error(&self, what: &str) -> Error {
        let mut text = format!("of node {} {what}", self.id);
        if let Some(line) = self.last_line() {
            text += &format!(": {line}");
        }
        // The log of a new node is removed with the node.
        if !self.is_new {
            text += &format!("; see {}", self.log.display());
        }
        Error::Server(text)
    }

    /// Returns the last line that the process has logged.
    fn last_line(&self) -> Option<String> {
        let from = fs::metadata(&self.log).ok()?.len().saturating_sub(END).max(self.logged);
        let mut file = File::open(&self.log).ok()?;
        file.seek(SeekFrom::Start(from)).ok()?;
        let mut end = Vec::new();
        file.take(END).read_to_end(&mut end).ok()?;
        let end = String::from_utf8_lossy(&end);
        let line = end.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.strip_prefix("rstore: ").unwrap_or(line).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_what_the_process_itself_logged_is_said() {
        let dir = tempfile::tempdir().expect("a folder");
        let log = dir.path().join("log");
        fs::write(&log, "of an earlier one\n").expect("written");
        let start = |script: &str| {
            let file = File::options().append(true).open(&log).expect("a log");
            let logged = file.metadata().expect("a length").len();
            let process = Command::new("sh").args(["-c", script]).stderr(file).spawn();
            // No process listens at port 0.
            let (address, process) = ("127.0.0.1:0".into(), process.expect("a shell"));
            Started { id: 7, address, process, log: log.clone(), logged, is_new: true }
        };
        let said = |mut one: Started| one.wait().expect_err("it ends").to_string();
        assert_eq!(said(start("kill -9 $$")), "the server of node 7 has ended");
        let text = said(start("echo one >&2; echo rstore: the reason >&2; echo >&2"));
        assert_eq!(text, "the server of node 7 has ended: the reason");
        let mut sleeps = start("sleep 100");
        assert!(sleeps.check().is_ok());
        sleeps.kill();
        assert!(sleeps.check().is_err());
    }
}
