//! The parent's side: start the child, count its acknowledgements, end it.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::CliError;
use crate::medium::MediumArgs;

use super::source::Source;
use super::writer;

/// When to end the child.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    /// So long after the first acknowledgement: certainly in the middle of writing.
    AfterFirstWrite(Duration),
    /// So long after the start: perhaps in the middle of opening.
    AfterStart(Duration),
}

/// How the child ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By SIGKILL.
    Kill,
    /// It is asked to, finishes its steps, and closes the pool.
    Close,
}

/// When and how the child ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// When.
    pub(crate) moment: Moment,
    /// How.
    pub(crate) end: End,
    /// Whether it is stopped and continued (SIGSTOP, SIGCONT) every now and then.
    pub(crate) pauses: bool,
}

impl Plan {
    /// A kill at a moment.
    pub(crate) fn kill(moment: Moment) -> Self {
        Self { moment, end: End::Kill, pauses: false }
    }
}

/// What a child got done before it ended.
#[derive(Clone, Debug)]
pub(crate) struct Acknowledged {
    /// Steps of each thread.
    pub(crate) steps: Vec<u64>,
    /// From the first acknowledgement to the end.
    pub(crate) writing: Duration,
}

impl Acknowledged {
    /// Steps of all threads.
    pub(crate) fn total(&self) -> u64 {
        self.steps.iter().sum()
    }
}

/// Threads of a child: their names are bytes.
pub(crate) const MAX_THREADS: usize = 64;

/// Lets a child write to the pool and ends it; `progress` hears how many steps were acknowledged so
/// far.
///
/// # Errors
/// If the child ends by itself or in another way than planned: then it failed, and said why on
/// standard error.
pub(crate) fn write_and_end(
    pool: &Path,
    source: &Source,
    medium: MediumArgs,
    (threads, script): (usize, u64),
    plan: Plan,
    progress: &(impl Fn(u64) + Sync),
) -> Result<Acknowledged, CliError> {
    let program = std::env::current_exe().map_err(CliError::Child)?;
    let started = Instant::now();
    let mut child = Command::new(program)
        .args(writer::Args::command_line(pool, source, medium, threads, script))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(CliError::Child)?;
    let Some(mut pipe) = child.stdout.take() else {
        return Err(CliError::Child(std::io::Error::other("the child has no pipe")));
    };
    let seen = AtomicU64::new(0);
    std::thread::scope(|threads_here| {
        let counter = threads_here.spawn(|| count(&mut pipe, threads, &seen));
        let first = wait(&mut child, started, plan, &seen, progress);
        // Whatever happened, the child must be dead before its pipe ends.
        let ended = match (plan.end, &first) {
            (End::Close, Ok(_)) => {
                drop(child.stdin.take()); // what it waits for
                Ok(())
            }
            _ => child.kill(),
        };
        let status = child.wait().map_err(CliError::Child)?;
        let steps = counter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let writing = first?.map_or(Duration::ZERO, |first| first.elapsed());
        ended.map_err(CliError::Child)?;
        let as_planned = match plan.end {
            End::Kill => status.code().is_none(),
            End::Close => status.success(),
        };
        if !as_planned {
            return Err(CliError::ChildEnded { status });
        }
        Ok(Acknowledged { steps: steps.map_err(CliError::Pipe)?, writing })
    })
}

/// Waits for the moment; the time of the first acknowledgement, if there was one.
fn wait(
    child: &mut Child,
    started: Instant,
    plan: Plan,
    seen: &AtomicU64,
    progress: &impl Fn(u64),
) -> Result<Option<Instant>, CliError> {
    let mut first = None;
    loop {
        let acknowledged = seen.load(Ordering::Relaxed);
        progress(acknowledged);
        if first.is_none() && acknowledged > 0 {
            first = Some(Instant::now());
        }
        let left = match (plan.moment, first) {
            (Moment::AfterFirstWrite(time), Some(first)) => time.checked_sub(first.elapsed()),
            (Moment::AfterFirstWrite(_), None) => Some(Duration::from_millis(1)),
            (Moment::AfterStart(time), _) => time.checked_sub(started.elapsed()),
        };
        let Some(left) = left.filter(|left| !left.is_zero()) else { return Ok(first) };
        if let Some(status) = child.try_wait().map_err(CliError::Child)? {
            return Err(CliError::ChildEnded { status });
        }
        std::thread::sleep(left.min(Duration::from_millis(10)));
        if plan.pauses {
            pause(child)?;
        }
    }
}

/// Stops a child in the middle of whatever it does, and lets it go on.
fn pause(child: &Child) -> Result<(), CliError> {
    let Some(pid) = rustix::process::Pid::from_raw(child.id().cast_signed()) else {
        return Ok(());
    };
    for signal in [rustix::process::Signal::STOP, rustix::process::Signal::CONT] {
        rustix::process::kill_process(pid, signal).map_err(|e| CliError::Child(e.into()))?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Counts the bytes of each thread until the pipe ends.
fn count(
    pipe: &mut impl Read,
    threads: usize,
    seen: &AtomicU64,
) -> Result<Vec<u64>, std::io::Error> {
    let mut steps = vec![0; threads];
    let mut buffer = vec![0; 1 << 16];
    loop {
        let len = match pipe.read(&mut buffer) {
            Ok(0) => return Ok(steps),
            Ok(len) => len,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        for name in &buffer[..len] {
            let Some(steps) = steps.get_mut(usize::from(*name)) else {
                return Err(std::io::Error::other("an acknowledgement by no thread"));
            };
            *steps += 1;
        }
        seen.fetch_add(len as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_are_counted_by_thread() {
        let seen = AtomicU64::new(0);
        let steps = count(&mut &[0, 1, 1, 0, 1][..], 2, &seen).expect("readable");
        assert_eq!(steps, [2, 3]);
        assert_eq!(seen.into_inner(), 5);
        assert!(count(&mut &[2][..], 2, &AtomicU64::new(0)).is_err());
    }
}
