//! Reports the progress of long work on standard error: a bar on a terminal, elsewhere a line every few
//! seconds.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::table::bytes;

/// Returns a bar of `len` steps.
pub(crate) fn bar(len: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:<28} {wide_bar:.cyan/blue} {percent:>3}% {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━╸─");
    let bar = ProgressBar::new(len).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// Returns a spinner, for work of unknown length.
pub(crate) fn spinner(message: &'static str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(message);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Returns a spinner for the next stage of long work. Where no spinner is seen, prints the stage's name.
pub(crate) fn stage(message: &'static str) -> ProgressBar {
    announce(message);
    spinner(message)
}

/// Prints the name of the next stage where no bar is seen.
pub(crate) fn announce(message: &str) {
    if !std::io::stderr().is_terminal() {
        eprintln!("{message}");
    }
}

/// The time before the first line: short work prints none.
const FIRST: Duration = Duration::from_secs(3);
/// The time between two lines.
const NEXT: Duration = Duration::from_secs(10);
/// Steps between two readings of the clock.
const STEPS: u64 = 512;

/// Progress of long work: a bar on a terminal, elsewhere a line every few seconds.
pub(crate) struct Progress {
    bar: ProgressBar,
    what: RefCell<String>,
    /// The number of steps; `None` for bytes of a number that is not known.
    len: Option<u64>,
    lines: bool,
    done: Cell<u64>,
    /// When the next line is due.
    due: Cell<Instant>,
}

impl Progress {
    /// Starts work of `len` steps.
    pub(crate) fn new(what: &str, len: u64) -> Self {
        Self::with(bar(len), what, Some(len))
    }

    /// Starts work on bytes whose number may be unknown: then it shows how many are done.
    #[cfg(feature = "tools")]
    pub(crate) fn of_bytes(what: &str, len: Option<u64>) -> Self {
        let bar = len.map_or_else(
            || {
                let style = ProgressStyle::with_template("{spinner} {msg:<26} {binary_bytes}");
                let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
                spinner("").with_style(style)
            },
            bar,
        );
        Self::with(bar, what, len)
    }

    fn with(bar: ProgressBar, what: &str, len: Option<u64>) -> Self {
        bar.set_message(what.to_owned());
        let (done, due) = (Cell::new(0), Cell::new(Instant::now() + FIRST));
        Self {
            bar,
            what: RefCell::new(what.into()),
            len,
            lines: !std::io::stderr().is_terminal(),
            done,
            due,
        }
    }

    /// Counts a step.
    pub(crate) fn step(&self) {
        self.done.set(self.done.get() + 1);
        if !self.done.get().is_multiple_of(STEPS) {
            return;
        }
        self.show();
    }

    /// Says that `done` steps are done, and `what` comes next.
    pub(crate) fn at(&self, done: u64, what: String) {
        self.done.set(done);
        self.say(what);
    }

    /// Says what is being done.
    pub(crate) fn say(&self, what: String) {
        self.bar.set_message(what.clone());
        self.what.replace(what);
        self.show();
    }

    fn show(&self) {
        self.bar.set_position(self.done.get());
        if self.lines
            && let Some(line) = self.line(Instant::now())
        {
            eprintln!("{line}");
        }
    }

    /// Returns the line that is due now.
    fn line(&self, now: Instant) -> Option<String> {
        if now < self.due.get() {
            return None;
        }
        self.due.set(now + NEXT);
        let (what, done) = (self.what.borrow(), self.done.get());
        Some(match self.len {
            // Work by time has more steps than were expected.
            Some(len) => format!("{what}: {} %", (done * 100 / len.max(1)).min(100)),
            None => format!("{what}: {}", bytes(done)),
        })
    }

    /// Removes the bar.
    pub(crate) fn end(self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_work_prints_its_progress_where_no_bar_is_seen() {
        let progress = Progress::new("loading", 2048);
        let started = Instant::now();
        (0..1024).for_each(|_| progress.step());
        assert_eq!(progress.line(started), None, "short work is silent");
        let line = progress.line(started + 2 * FIRST);
        assert_eq!(line.as_deref(), Some("loading: 50 %"));
        assert_eq!(progress.line(started + 3 * FIRST), None, "one was just printed");
        assert!(progress.line(started + 2 * FIRST + NEXT).is_some());
        progress.at(4000, "killing".into());
        let line = progress.line(started + 2 * FIRST + 2 * NEXT);
        assert_eq!(line.as_deref(), Some("killing: 100 %"));
        progress.end();
    }

    #[cfg(feature = "tools")]
    #[test]
    fn work_of_unknown_length_shows_what_is_done_and_no_percentage() {
        for (len, line) in [(Some(8 << 20), "restoring: 25 %"), (None, "restoring: 2 MiB")] {
            let progress = Progress::of_bytes("restoring", len);
            progress.at(2 << 20, "restoring".into());
            assert_eq!(progress.line(Instant::now() + 2 * FIRST).as_deref(), Some(line));
            progress.end();
        }
    }
}
