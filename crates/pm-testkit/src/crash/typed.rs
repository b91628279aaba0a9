//! The interface of tests, with the type of a subject.

use std::marker::PhantomData;

use super::config::Config;
use super::erased::{AnyOp, AnyValue, erased, subject};
use super::explore::AnyExplorer;
use super::failure::Failure;
use super::oracle::{Allowed, AnyOracle};
use super::report::Report;
use super::run::Plan;
use super::subject::CrashSubject;
use super::survivors::Mutants;
use super::{search, survivors};

/// Explores until `config.states` different crash states were checked.
///
/// # Errors
/// The first failure, reduced to a minimal sequence of operations if `config.shrink`.
pub fn explore<S: CrashSubject>(config: &Config) -> Result<Report, Box<Failure>> {
    search::explore(subject::<S>(), config)
}

/// Explores every mutant of the steps that `reports` list, each in every configuration until one
/// catches it.
///
/// Flushes and fences are explored where they are expected to matter, in the configurations with
/// [`Persistency::Lines`](super::Persistency::Lines), and barriers in those with
/// [`Persistency::Barriers`](super::Persistency::Barriers).
#[must_use]
pub fn mutants<S: CrashSubject>(configs: &[Config], reports: &[Report]) -> Mutants {
    survivors::mutants(subject::<S>(), configs, reports)
}

/// Explores runs of one subject in one configuration.
#[derive(Debug)]
pub struct Explorer<S> {
    explorer: AnyExplorer,
    subject: PhantomData<fn() -> S>,
}

impl<S: CrashSubject> Explorer<S> {
    /// Makes an explorer that has seen nothing.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { explorer: AnyExplorer::new(subject::<S>(), config), subject: PhantomData }
    }

    /// Returns the report of the exploration so far.
    #[must_use]
    pub fn report(&self) -> &Report {
        self.explorer.report()
    }

    /// Runs a plan and explores its crash states, until `states` were checked in all.
    ///
    /// # Errors
    /// The first crash state, or run, that breaks the contract.
    pub fn explore(&mut self, plan: &Plan<S::Op>, seed: u64) -> Result<(), Box<Failure>> {
        self.explorer.explore(&erased(plan), seed).map(drop)
    }

    /// Runs a plan, and returns a number that identifies what the last operation of its setup did to the medium.
    pub(crate) fn effect(&mut self, plan: &Plan<S::Op>, seed: u64) -> u64 {
        self.explorer.effect(&erased(plan), seed)
    }
}

/// All explanations of a history.
#[derive(Debug)]
pub struct Oracle<S> {
    oracle: AnyOracle,
    subject: PhantomData<fn() -> S>,
}

impl<S: CrashSubject> Oracle<S> {
    /// Makes the oracle of a run that begins in a known state.
    #[must_use]
    pub fn from_state(model: S::Model, threads: usize) -> Self {
        let oracle = AnyOracle::from_state(subject::<S>(), AnyValue::new(model), threads);
        Self { oracle, subject: PhantomData }
    }

    /// Records that a thread starts an operation.
    pub fn invoke(&mut self, thread: usize, op: &S::Op) {
        self.oracle.invoke(thread, &AnyOp::new(op.clone()));
    }

    /// Records that a thread's operation returned.
    ///
    /// # Errors
    /// If no linearization explains the result: a fault even without a crash.
    pub fn respond(&mut self, thread: usize, ret: &S::Ret) -> Result<(), String> {
        self.oracle.respond(thread, &AnyValue::new(ret.clone()))
    }

    /// Returns the states that a crash may leave now.
    #[must_use]
    pub fn allowed(&self) -> Allowed<S::Model> {
        let Allowed { absent, models } = self.oracle.allowed();
        Allowed {
            absent,
            models: models.iter().map(|model| model.get::<S::Model>().clone()).collect(),
        }
    }
}
