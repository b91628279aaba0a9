//! Hardware counters of the CPU during a job, if the system grants them.

use serde::{Deserialize, Serialize};

/// Counts of the CPU, summed over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Cycles in user mode.
    pub cycles: u64,
    /// Instructions retired.
    pub instructions: u64,
    /// Accesses that missed the last level of the caches.
    pub cache_misses: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.cycles += other.cycles;
        self.instructions += other.instructions;
        self.cache_misses += other.cache_misses;
    }
}

/// Counts events of the calling thread while `job` runs; returns `None` if the system grants no counters.
pub(crate) fn around<R>(job: impl FnOnce() -> R) -> (R, Option<Counters>) {
    match granted::Group::open() {
        Ok(mut group) => {
            let result = job();
            (result, group.read().ok())
        }
        Err(_) => (job(), None),
    }
}

/// Returns the reason why the system grants no counters; `None` if it does.
#[must_use]
pub fn refusal() -> Option<String> {
    granted::Group::open()
        .and_then(|mut group| group.read())
        .err()
        .map(|error| format!("not counted: the system grants no hardware counters here ({error})"))
}

#[cfg(target_os = "linux")]
mod granted {
    use std::io;

    use perf_event::events::Hardware;
    use perf_event::{Builder, Counter};

    use super::Counters;

    /// Open counters of the calling thread.
    pub(super) struct Group {
        all: perf_event::Group,
        cycles: Counter,
        instructions: Counter,
        cache_misses: Counter,
    }

    impl Group {
        pub(super) fn open() -> io::Result<Self> {
            let mut all = perf_event::Group::new()?;
            let mut counter = |event| Builder::new().group(&mut all).kind(event).build();
            let cycles = counter(Hardware::CPU_CYCLES)?;
            let instructions = counter(Hardware::INSTRUCTIONS)?;
            let cache_misses = counter(Hardware::CACHE_MISSES)?;
            all.enable()?;
            Ok(Self { all, cycles, instructions, cache_misses })
        }

        pub(super) fn read(&mut self) -> io::Result<Counters> {
            self.all.disable()?;
            let counts = self.all.read()?;
            Ok(Counters {
                cycles: counts[&self.cycles],
                instructions: counts[&self.instructions],
                cache_misses: counts[&self.cache_misses],
            })
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod granted {
    use std::io;

    use super::Counters;

    /// Counters exist only on Linux.
    pub(super) struct Group;

    impl Group {
        pub(super) fn open() -> io::Result<Self> {
            Err(io::Error::from(io::ErrorKind::Unsupported))
        }

        pub(super) fn read(&mut self) -> io::Result<Counters> {
            Self::open().map(|_| Counters::default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_count_or_a_word_says_why_not() {
        let (sum, counters) = around(|| (0..std::hint::black_box(100_000_u64)).sum::<u64>());
        assert_eq!(sum, 4_999_950_000);
        match (counters, refusal()) {
            (Some(counters), None) => assert!(counters.instructions > 0, "{counters:?}"),
            (None, Some(why)) => assert!(why.contains("no hardware counters"), "{why}"),
            other => panic!("both or neither: {other:?}"),
        }
    }
}
