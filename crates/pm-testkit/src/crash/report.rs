//! The report of an exploration: counts of states by kind, and the coverage of every persistence step.

use std::fmt;
use std::time::{Duration, Instant};

use super::config::Config;
use super::erased::AnySubject;
use super::memory::Persistency;
use super::site::{Site, SiteTable};

/// A persistence step and the crash states just before it.
#[derive(Clone, Debug)]
pub struct Covered {
    /// The step.
    pub site: Site,
    /// Crash points just before it.
    pub points: u64,
    /// Their images.
    pub states: u64,
}

/// The report of an exploration.
#[derive(Clone, Debug)]
pub struct Report {
    /// The subject.
    pub subject: &'static str,
    /// The medium.
    pub persistency: Persistency,
    /// Threads.
    pub threads: usize,
    /// Operation slots of the pools, unless the subject chose their number.
    pub slots: Option<u64>,
    /// Runs.
    pub trials: u64,
    /// Of these, runs of directed plans in which at most one thread was preempted, once.
    pub preempted: u64,
    /// Different crash states checked: distinct image and history.
    pub states: u64,
    /// Of these, states of a structure whose creation had not returned.
    pub in_creation: u64,
    /// Of these, states of a recovery (or of what followed it) that crashed in its turn.
    pub nested: u64,
    /// Processes that died alone with non-durable stores in the caches; the power failed while the next one
    /// recovered, or after.
    pub kills: u64,
    /// Images skipped because they had been checked with the same history.
    pub duplicates: u64,
    /// Crash points whose images were all checked.
    pub exhaustive_points: u64,
    /// Crash points of which a mix was checked.
    pub sampled_points: u64,
    /// The persistence steps that belong to the subject.
    pub steps: Vec<Covered>,
    /// The time it took.
    pub elapsed: Duration,
    counts: Vec<(u64, u64)>,
    started: Instant,
}

impl Report {
    pub(crate) fn new(subject: &'static str, config: &Config) -> Self {
        Self {
            subject,
            persistency: config.persistency,
            threads: config.threads,
            slots: config.slots,
            trials: 0,
            preempted: 0,
            states: 0,
            in_creation: 0,
            nested: 0,
            kills: 0,
            duplicates: 0,
            exhaustive_points: 0,
            sampled_points: 0,
            steps: Vec::new(),
            elapsed: Duration::ZERO,
            counts: Vec::new(),
            started: Instant::now(),
        }
    }

    pub(crate) fn point(&mut self, exhaustive: bool) {
        if exhaustive {
            self.exhaustive_points += 1;
        } else {
            self.sampled_points += 1;
        }
    }

    pub(crate) fn has_crashed_at(&self, number: usize) -> bool {
        self.counts.get(number).is_some_and(|&(_, states)| states > 0)
    }

    pub(crate) fn at_step(&mut self, number: usize, states: usize) {
        if self.counts.len() <= number {
            self.counts.resize(number + 1, (0, 0));
        }
        self.counts[number].0 += 1;
        self.counts[number].1 += states as u64;
    }

    pub(crate) fn state(&mut self, depth: usize, in_creation: bool) {
        self.states += 1;
        self.nested += u64::from(depth > 0);
        self.in_creation += u64::from(in_creation);
    }

    pub(crate) fn finish(&mut self, sites: &SiteTable, subject: AnySubject) {
        self.elapsed = self.started.elapsed();
        self.counts.resize(sites.sites.len(), (0, 0));
        let owned = sites.sites.iter().zip(&self.counts).filter(|((_, at), _)| subject.owns(at));
        self.steps =
            owned.map(|(&(site, _), &(points, states))| Covered { site, points, states }).collect();
        self.steps.sort_by_key(|c| c.site);
    }

    /// Returns the number of crash states per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate is printed with few digits")]
    pub fn rate(&self) -> f64 {
        self.states as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Returns the steps without a crash state.
    pub fn uncovered(&self) -> impl Iterator<Item = &Covered> {
        self.steps.iter().filter(|c| c.states == 0)
    }

    /// Returns one line: the number of states of each kind.
    #[must_use]
    pub fn summary(&self) -> String {
        format!(
            "{}: {:?}, {} thread(s){}: {} states ({} in creation, {} in recovery or after it), \
             {} kills, {} duplicates, {} points exhaustive, {} sampled, \
             {} runs ({} with at most one preemption), {:.1} s, {:.0} states/s",
            self.subject,
            self.persistency,
            self.threads,
            slots_text(self.slots),
            self.states,
            self.in_creation,
            self.nested,
            self.kills,
            self.duplicates,
            self.exhaustive_points,
            self.sampled_points,
            self.trials,
            self.preempted,
            self.elapsed.as_secs_f64(),
            self.rate(),
        )
    }
}

/// Describes the number of slots, unless the subject chose it.
pub(crate) fn slots_text(slots: Option<u64>) -> String {
    slots.map_or(String::new(), |slots| format!(", {slots} slot(s)"))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.summary())?;
        for step in &self.steps {
            writeln!(f, "  {:>9} states {:>7} points  {}", step.states, step.points, step.site)?;
        }
        Ok(())
    }
}
