//! The oracle: the states that a crash may leave, given the calls and results so far.
//!
//! Durable linearizability: the surviving state is the result of some linearization that contains every
//! completed operation (reads included, with the results they returned) and any of the operations in flight.
//! The oracle keeps all *configurations* that explain the history so far: a model, and the operations in
//! flight that have taken effect in it. With one thread this means: everything that returned, and the
//! operation in flight entirely or not at all.

use super::erased::{AnyOp, AnySubject, AnyValue};

#[derive(Clone, Debug, PartialEq)]
struct Config {
    model: AnyValue,
    /// For each thread, the result of its operation in flight, if that has taken effect.
    done: Vec<Option<AnyValue>>,
}

/// All explanations of a history.
#[derive(Debug)]
pub(crate) struct AnyOracle {
    subject: AnySubject,
    configs: Vec<Config>,
    in_flight: Vec<Option<AnyOp>>,
    /// `true` if `create` has returned: before that, the structure may be absent.
    created: bool,
}

/// The states a crash may leave.
#[derive(Clone, Debug)]
pub struct Allowed<M> {
    /// `true` if the structure may be absent.
    pub absent: bool,
    /// The states it may have.
    pub models: Vec<M>,
}

impl AnyOracle {
    /// Makes the oracle of a run that begins by creating the structure.
    #[must_use]
    pub(crate) fn uncreated(subject: AnySubject, threads: usize) -> Self {
        Self { created: false, ..Self::from_state(subject, subject.initial(), threads) }
    }

    /// Makes the oracle of a run that begins in a known state.
    #[must_use]
    pub(crate) fn from_state(subject: AnySubject, model: AnyValue, threads: usize) -> Self {
        Self {
            subject,
            configs: vec![Config { model, done: vec![None; threads] }],
            in_flight: vec![None; threads],
            created: true,
        }
    }

    /// Makes the oracle of a run that begins in one of these states.
    #[must_use]
    pub(crate) fn from_states(subject: AnySubject, models: &[AnyValue]) -> Self {
        let config = |model: &AnyValue| Config { model: model.clone(), done: vec![None] };
        let configs = models.iter().map(config).collect();
        Self { subject, configs, in_flight: vec![None], created: true }
    }

    /// Makes the oracle of a recovery: it is not observed yet which of the allowed states it finds.
    #[must_use]
    pub(crate) fn after_crash(&self, allowed: &Allowed<AnyValue>) -> Self {
        Self { created: self.created, ..Self::from_states(self.subject, &allowed.models) }
    }

    /// Makes the oracle of a run that continues after a state was observed.
    #[must_use]
    pub(crate) fn restarted(&self, observed: &AnyValue) -> Self {
        Self::from_state(self.subject, self.subject.observed(observed), 1)
    }

    /// Records that `create` returned.
    pub(crate) fn created(&mut self) {
        self.created = true;
    }

    /// Returns `true` if `create` has returned.
    #[must_use]
    pub(crate) fn is_created(&self) -> bool {
        self.created
    }

    /// Records that a thread starts an operation.
    pub(crate) fn invoke(&mut self, thread: usize, op: &AnyOp) {
        self.in_flight[thread] = Some(op.clone());
    }

    /// Records that a thread's operation returned.
    ///
    /// # Errors
    /// If no linearization explains the result: a fault even without a crash.
    pub(crate) fn respond(&mut self, thread: usize, ret: &AnyValue) -> Result<(), String> {
        self.close();
        self.configs.retain(|c| c.done[thread].as_ref() == Some(ret));
        self.in_flight[thread] = None;
        let mut kept: Vec<Config> = Vec::with_capacity(self.configs.len());
        for mut config in self.configs.drain(..) {
            config.done[thread] = None;
            if !kept.contains(&config) {
                kept.push(config);
            }
        }
        self.configs = kept;
        if self.configs.is_empty() {
            return Err(format!("no linearization explains that thread {thread} returned {ret:?}"));
        }
        Ok(())
    }

    /// Adds every configuration in which further operations in flight have taken effect.
    fn close(&mut self) {
        let mut next = 0;
        while next < self.configs.len() {
            for thread in 0..self.in_flight.len() {
                let Some(op) = &self.in_flight[thread] else { continue };
                if self.configs[next].done[thread].is_some() {
                    continue;
                }
                for (model, ret) in self.subject.outcomes(&self.configs[next].model, op) {
                    let mut done = self.configs[next].done.clone();
                    done[thread] = Some(ret);
                    let config = Config { model, done };
                    if !self.configs.contains(&config) {
                        self.configs.push(config);
                    }
                }
            }
            next += 1;
        }
    }

    /// Returns the states that a crash may leave now.
    #[must_use]
    pub(crate) fn allowed(&self) -> Allowed<AnyValue> {
        let mut all = Self {
            subject: self.subject,
            configs: self.configs.clone(),
            in_flight: self.in_flight.clone(),
            created: self.created,
        };
        all.close();
        let mut models: Vec<AnyValue> = Vec::with_capacity(all.configs.len());
        for config in all.configs {
            if !models.contains(&config.model) {
                models.push(config.model);
            }
        }
        Allowed { absent: !self.created, models }
    }
}
