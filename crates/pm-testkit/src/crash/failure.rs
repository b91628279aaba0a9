//! A broken contract, and how to reproduce it.

use std::error::Error;
use std::fmt;

use super::config::Config;
use super::explore::Broken;
use super::report::slots_text;
use super::run::Plan;

/// A crash state, or a run, that breaks the contract.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The subject.
    pub subject: &'static str,
    /// The configuration.
    pub config: Config,
    /// The seed of the trial: `Config::seed` with this value runs it first.
    pub seed: u64,
    /// The fault.
    pub what: String,
    /// The crashes that lead to it, outermost first.
    pub path: Vec<String>,
    /// The operations.
    pub plan: Vec<String>,
    /// The calls and results after the setup, in the order of the run.
    pub history: Vec<String>,
}

impl Failure {
    pub(crate) fn new<Op: fmt::Debug>(
        subject: &'static str,
        config: &Config,
        seed: u64,
        plan: &Plan<Op>,
    ) -> Self {
        let mut lines = vec![format!("setup:    {:?}", plan.setup)];
        for (i, ops) in plan.threads.iter().enumerate() {
            lines.push(format!("thread {i}: {ops:?}"));
        }
        lines.push(format!("tail:     {:?}", plan.tail));
        let config = config.clone();
        let (what, path, history) = (String::new(), Vec::new(), Vec::new());
        Self { subject, config, seed, what, path, plan: lines, history }
    }

    pub(crate) fn without_crash(mut self, what: &str) -> Box<Self> {
        self.what = format!("without any crash: {what}");
        Box::new(self)
    }

    pub(crate) fn broken(mut self, broken: Broken) -> Box<Self> {
        self.what = broken.what;
        self.path = broken.path;
        self.path.reverse();
        Box::new(self)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.subject, self.what)?;
        for line in self.path.iter().chain(&self.plan) {
            writeln!(f, "  {line}")?;
        }
        if self.config.threads > 1 {
            writeln!(f, "  the run: {}", self.history.join("; "))?;
        }
        let Config { persistency, threads, slots, ops, setup, mutation, .. } = &self.config;
        let slots = slots_text(*slots);
        if let Some(mutation) = mutation {
            writeln!(f, "  mutant: {mutation}")?;
        }
        write!(
            f,
            "  replay: seed {}, {persistency:?}, {threads} thread(s){slots}, {ops} ops, setup {setup}",
            self.seed
        )
    }
}

impl Error for Failure {}
