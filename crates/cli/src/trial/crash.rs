//! The parent's side: starts a writing process, watches its acknowledgements, and ends it.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::CliError;

use super::acks::Acks;

/// When to end the child.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    /// This long after the first acknowledgement: always in the middle of writing.
    AfterFirstWrite(Duration),
    /// This long after the start: possibly while the pool is being opened.
    AfterStart(Duration),
}

/// How the child ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By SIGKILL.
    Kill,
    /// The parent asks it to end; it finishes its steps, and closes the pool.
    Close,
}

/// When and how the child ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// When it ends.
    pub(crate) moment: Moment,
    /// How it ends.
    pub(crate) end: End,
    /// `true` if it is stopped and continued (SIGSTOP, SIGCONT) now and then.
    pub(crate) pauses: bool,
}

impl Plan {
    /// Plans a kill at a moment.
    pub(crate) fn kill(moment: Moment) -> Self {
        Self { moment, end: End::Kill, pauses: false }
    }
}

/// What a child had acknowledged when it ended.
#[derive(Clone, Debug)]
pub(crate) struct Acknowledged {
    /// Steps of each thread.
    pub(crate) steps: Vec<u64>,
    /// The time from the first acknowledgement to the end.
    pub(crate) writing: Duration,
}

impl Acknowledged {
    /// Returns the steps of all threads.
    pub(crate) fn total(&self) -> u64 {
        self.steps.iter().sum()
    }
}

/// Runs `command`, a writer with `threads` threads, and ends it as planned; calls `progress` with the
/// number of acknowledged steps.
///
/// # Errors
/// If the child ends by itself, or in another way than planned: it failed, and printed the reason to
/// standard error.
pub(crate) fn write_and_end(
    mut command: Command,
    threads: usize,
    plan: Plan,
    progress: &dyn Fn(u64),
) -> Result<Acknowledged, CliError> {
    let acks = Acks::anonymous().map_err(CliError::Pipe)?;
    command.stdin(Stdio::piped()).stdout(acks.to_stdout().map_err(CliError::Pipe)?);
    let mut victim = Victim::start(command)?;
    let first = victim.wait_for(plan, &mut || {
        let steps = acks.read(threads).map_err(CliError::Pipe)?.iter().sum();
        progress(steps);
        Ok(steps)
    })?;
    victim.end(plan.end)?;
    let writing = first.map_or(Duration::ZERO, |first| first.elapsed());
    Ok(Acknowledged { steps: acks.read(threads).map_err(CliError::Pipe)?, writing })
}

/// A process that is to be ended; it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Victim(Child);

impl Victim {
    /// Starts it.
    pub(crate) fn start(mut command: Command) -> Result<Self, CliError> {
        command.spawn().map(Self).map_err(CliError::Child)
    }

    /// Returns the process.
    pub(crate) fn process(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Ends it.
    ///
    /// # Errors
    /// [`CliError::ChildEnded`] if it ended in another way.
    pub(crate) fn end(mut self, end: End) -> Result<(), CliError> {
        match end {
            End::Kill => self.0.kill().map_err(CliError::Child)?,
            End::Close => drop(self.0.stdin.take()), // what it waits for
        }
        let status = self.0.wait().map_err(CliError::Child)?;
        let as_planned = match end {
            End::Kill => status.code().is_none(),
            End::Close => status.success(),
        };
        if as_planned { Ok(()) } else { Err(CliError::ChildEnded { status }) }
    }

    /// Waits for the moment; returns the time of the first acknowledgement, if there was one. `seen`
    /// returns the number of acknowledgements.
    fn wait_for(
        &mut self,
        plan: Plan,
        seen: &mut dyn FnMut() -> Result<u64, CliError>,
    ) -> Result<Option<Instant>, CliError> {
        let started = Instant::now();
        let mut first = None;
        loop {
            if seen()? > 0 && first.is_none() {
                first = Some(Instant::now());
            }
            let left = match (plan.moment, first) {
                (Moment::AfterFirstWrite(time), Some(first)) => time.checked_sub(first.elapsed()),
                (Moment::AfterFirstWrite(_), None) => Some(Duration::from_millis(1)),
                (Moment::AfterStart(time), _) => time.checked_sub(started.elapsed()),
            };
            let Some(left) = left.filter(|left| !left.is_zero()) else { return Ok(first) };
            if let Some(status) = self.0.try_wait().map_err(CliError::Child)? {
                return Err(CliError::ChildEnded { status });
            }
            std::thread::sleep(left.min(Duration::from_millis(10)));
            if plan.pauses {
                self.pause()?;
            }
        }
    }

    /// Stops it, and continues it.
    fn pause(&self) -> Result<(), CliError> {
        let Some(pid) = Pid::from_raw(self.0.id().cast_signed()) else { return Ok(()) };
        for signal in [Signal::STOP, Signal::CONT] {
            kill_process(pid, signal).map_err(|e| CliError::Child(e.into()))?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Both fail if it has ended, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// Acknowledges one step of thread 0, and continues to write.
    const WRITES: &str = "printf '\\001'; while :; do sleep 1; done";

    #[test]
    fn a_writer_is_killed_after_its_first_write() {
        let plan = Plan::kill(Moment::AfterFirstWrite(Duration::from_millis(5)));
        let done = write_and_end(shell(WRITES), 2, plan, &|_| ()).expect("killed");
        assert_eq!(done.steps, [1, 0]);
        assert!(done.writing >= Duration::from_millis(5), "{done:?}");
    }

    #[test]
    fn a_writer_that_is_asked_to_ends_properly_and_one_that_ends_by_itself_has_failed() {
        let moment = Moment::AfterFirstWrite(Duration::ZERO);
        let close = Plan { moment, end: End::Close, pauses: true };
        let done = write_and_end(shell("printf '\\001'; cat"), 1, close, &|_| ()).expect("closed");
        assert_eq!(done.total(), 1);
        let failed = write_and_end(shell("exit 3"), 1, close, &|_| ()).expect_err("it ended");
        assert!(matches!(failed, CliError::ChildEnded { status } if status.code() == Some(3)));
        let late = write_and_end(shell("printf '\\001'; cat; exit 4"), 1, close, &|_| ());
        let late = late.expect_err("it failed while it closed");
        assert!(matches!(late, CliError::ChildEnded { status } if status.code() == Some(4)));
    }
}
