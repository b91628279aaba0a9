//! A campaign: one subject on every medium, with every supported number of threads, and with the usual number
//! of operation slots or so few that threads take over each other's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::config::Config;
use super::erased::{AnySubject, subject};
use super::failure::Failure;
use super::memory::Persistency;
use super::report::Report;
use super::search::{explore, explore_plans};
use super::site::Site;
use super::source::steps_in;
use super::subject::CrashSubject;
use super::survivors::{Mutants, mutants};

/// The extent of a campaign.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// The total number of crash states.
    pub states: u64,
    /// The seed of all choices.
    pub seed: u64,
    /// `true` if mutants are explored too.
    pub mutate: bool,
    /// Operation slots of every pool; `None` alternates between the subject's number, one and two.
    pub slots: Option<u64>,
}

/// The findings of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// One report for each configuration without a failure.
    pub reports: Vec<Report>,
    /// The first failure, after which nothing else was explored.
    pub failure: Option<Box<Failure>>,
    /// Steps executed, with the crash states just before them.
    pub covered: BTreeMap<Site, u64>,
    /// Steps of the subject's sources that no run executed.
    pub unreached: Vec<String>,
    /// The mutants, if they were asked for.
    pub mutants: Option<Mutants>,
}

/// The smallest number of states of which other persistency than that of lines gets a part with several threads.
const MANY_STATES: u64 = 60_000;
/// The largest number of states for one mutant in one configuration.
const MUTANT_STATES: u64 = 30_000;

impl Campaign {
    /// Returns the configurations of a subject, with their shares of the states.
    fn configs(&self, subject: AnySubject) -> Vec<Config> {
        let share = |percent: u64, slots: Option<u64>| {
            let config = Config::new().seed(self.seed).states(self.states * percent / 100);
            config.slots(self.slots.or(slots))
        };
        let mut configs = vec![
            share(if subject.concurrent() { 30 } else { 65 }, None),
            share(12, Some(2)).persistency(Persistency::Eadr),
            share(13, Some(1)).persistency(Persistency::Pages),
            share(10, None).persistency(Persistency::Barriers),
        ];
        if subject.concurrent() {
            configs.push(share(12, None).threads(2));
            configs.push(share(9, Some(1)).threads(2));
            configs.push(share(7, Some(1)).threads(3));
            configs.push(share(7, Some(2)).threads(3));
            // Each configuration costs some runs, whatever the number of states.
            if self.states >= MANY_STATES {
                configs.push(share(3, Some(2)).persistency(Persistency::Eadr).threads(2));
                configs.push(share(3, Some(1)).persistency(Persistency::Pages).threads(2));
                configs.push(share(3, None).persistency(Persistency::Barriers).threads(2));
            }
            // If the number of slots is given, some of these are equal.
            configs.dedup_by(|two, one| {
                let same = (two.threads, two.slots) == (one.threads, one.slots)
                    && two.persistency == one.persistency;
                one.states += if same { two.states } else { 0 };
                same
            });
        }
        configs
    }

    /// Explores a subject.
    #[must_use]
    pub fn run<S: CrashSubject>(&self) -> Findings {
        self.run_any(subject::<S>())
    }

    fn run_any(&self, subject: AnySubject) -> Findings {
        let mut findings = Findings::default();
        let configs = self.configs(subject);
        for config in &configs {
            match explore(subject, config) {
                Ok(report) => findings.reports.push(report),
                Err(failure) => {
                    findings.failure = Some(failure);
                    return findings;
                }
            }
        }
        findings.look_what_is_covered(subject);
        if !findings.unreached.is_empty() {
            // Of few states the directed plans get none; what is left is for them.
            for config in configs.iter().filter(|c| c.persistency == Persistency::Lines) {
                match explore_plans(subject, config) {
                    Ok(report) => findings.reports.push(report),
                    Err(failure) => {
                        findings.failure = Some(failure);
                        return findings;
                    }
                }
            }
            findings.look_what_is_covered(subject);
        }
        if self.mutate {
            let mutated: Vec<Config> = configs
                .into_iter()
                .filter(|c| matches!(c.persistency, Persistency::Lines | Persistency::Barriers))
                .map(|c| Config { states: c.states.min(MUTANT_STATES), ..c })
                .flat_map(|c| [many_runs(&c), c])
                .collect();
            findings.mutants = Some(mutants(subject, &mutated, &findings.reports));
        }
        findings
    }
}

/// Returns a configuration with the same number of states from more runs, with fewer states of each: for
/// faults that depend on the operations and the schedule more than on the image, creation included.
fn many_runs(config: &Config) -> Config {
    Config { exhaustive: 16, random: 6, nest_every: 2000, nested_states: 60, ..config.clone() }
}

fn unreached(subject: AnySubject, covered: &BTreeMap<Site, u64>) -> Vec<String> {
    let lines: BTreeSet<(&str, u32)> = covered.keys().map(|s| (s.file, s.line)).collect();
    let reached = |file: &str, line: u32| {
        lines.iter().any(|(f, l)| *l == line && (f.ends_with(file) || file.ends_with(f)))
    };
    let mut missing = Vec::new();
    for (file, text) in subject.sources() {
        for (line, code) in steps_in(text) {
            if !reached(file, line) {
                missing.push(format!("{file}:{line}: {code}"));
            }
        }
    }
    missing
}

impl Findings {
    fn look_what_is_covered(&mut self, subject: AnySubject) {
        self.covered.clear();
        for step in self.reports.iter().flat_map(|r| &r.steps) {
            *self.covered.entry(step.site).or_default() += step.states;
        }
        self.unreached = unreached(subject, &self.covered);
    }

    /// Returns `true` if no state failed, every step was crashed at, and every mutant was caught.
    #[must_use]
    pub fn hold(&self) -> bool {
        self.failure.is_none()
            && self.unreached.is_empty()
            && self.covered.values().all(|&states| states > 0)
            && self.mutants.as_ref().is_none_or(|m| m.survivors().count() == 0)
    }

    /// Returns the number of crash states checked.
    #[must_use]
    pub fn states(&self) -> u64 {
        self.reports.iter().map(|r| r.states).sum()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for report in &self.reports {
            writeln!(f, "{}", report.summary())?;
        }
        for (site, states) in &self.covered {
            let mark = if *states == 0 { "  <- NEVER CRASHED HERE" } else { "" };
            writeln!(f, "  {states:>9} states  {site}{mark}")?;
        }
        for step in &self.unreached {
            writeln!(f, "  NEVER EXECUTED  {step}")?;
        }
        if let Some(mutants) = &self.mutants {
            write!(f, "{mutants}")?;
        }
        if let Some(failure) = &self.failure {
            writeln!(f, "FAILED {failure}")?;
        }
        Ok(())
    }
}
