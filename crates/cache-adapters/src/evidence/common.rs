//! Code that the parts share: random numbers, time, tables.

use std::cell::Cell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pmindex_core::{Pool, PoolOptions};

pub(crate) type Fault = Box<dyn std::error::Error>;

/// Folders that are removed at the end.
pub(crate) struct Places {
    pub(crate) memory: PathBuf,
    pub(crate) disk: PathBuf,
}

impl Places {
    pub(crate) fn make(memory: &Path, disk: &Path) -> Result<Self, Fault> {
        let name = format!("pmindex-cache-{}", std::process::id());
        let places = Self { memory: memory.join(&name), disk: disk.join(&name) };
        std::fs::create_dir_all(&places.memory)?;
        std::fs::create_dir_all(&places.disk)?;
        Ok(places)
    }

    /// Creates a pool of this many bytes.
    pub(crate) fn pool(&self, name: &str, bytes: u64) -> Result<Arc<Pool>, Fault> {
        let path = self.memory.join(name);
        let _ = std::fs::remove_file(&path);
        Ok(Arc::new(Pool::create(&path, &PoolOptions::new().size(bytes))?))
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.memory);
        let _ = std::fs::remove_dir_all(&self.disk);
    }
}

pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ x >> 32
}

/// A generator of pseudo-random numbers, the same in each run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number from 0 to below 1.
    pub(crate) fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A distribution of accesses over ids.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Skew {
    Uniform,
    /// Four of five accesses are to the first fifth.
    EightyTwenty,
}

impl Skew {
    pub(crate) fn next(self, random: &mut Random, of: u64) -> u64 {
        match self {
            Self::Uniform => random.below(of),
            Self::EightyTwenty => {
                let hot = random.below(5) > 0;
                if hot { random.below(of / 5) } else { of / 5 + random.below(of - of / 5) }
            }
        }
    }
}

thread_local! {
    /// The time that this thread waited for a medium.
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Notes a wait for a medium. No thread sleeps: the time is added to the measured time.
pub(crate) fn wait(time: Duration) {
    WAITED.set(WAITED.get() + time);
}

/// A time of this thread: processor time plus the time it [waited](wait). Neither other programs nor a lock
/// that another thread holds make it longer.
#[derive(Clone, Copy)]
pub(crate) struct Began(Duration);

impl Began {
    pub(crate) fn now() -> Self {
        Self(processor(rustix::time::ClockId::ThreadCPUTime) + WAITED.get())
    }

    pub(crate) fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

/// Returns the time of this process since its start, including this thread's waits.
pub(crate) fn since_start() -> Duration {
    processor(rustix::time::ClockId::ProcessCPUTime) + WAITED.get()
}

fn processor(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Adds the longer latency of a read of this many bytes in persistent memory.
pub(crate) fn pm_delay(is_delayed: bool, bytes: usize) {
    if is_delayed {
        let lines = bytes.div_ceil(64) as u32;
        wait(Duration::from_nanos(270) * (9 + lines) / 10);
    }
}

/// A table of a page.
pub(crate) struct Sheet(String);

impl Sheet {
    pub(crate) fn new(columns: &[String]) -> Self {
        let mut text = String::from("| |");
        columns.iter().for_each(|column| write!(text, " {column} |").unwrap_or(()));
        text.push_str("\n| --- |");
        columns.iter().for_each(|_| text.push_str(" ---: |"));
        text.push('\n');
        Self(text)
    }

    pub(crate) fn row(&mut self, name: &str, cells: &[String]) {
        write!(self.0, "| {name} |").unwrap_or(());
        cells.iter().for_each(|cell| write!(self.0, " {cell} |").unwrap_or(()));
        self.0.push('\n');
    }

    pub(crate) fn text(self) -> String {
        self.0
    }
}

/// Formats a claim, then a table.
pub(crate) fn chapter(title: &str, claim: &str, sheet: Sheet, found: &str) -> String {
    format!("## {title}\n\n**The thesis**: {claim}\n\n{}\n{found}\n", sheet.text())
}

pub(crate) fn texts<T: ToString>(of: impl IntoIterator<Item = T>) -> Vec<String> {
    of.into_iter().map(|one| one.to_string()).collect()
}
