//! How much to explore.

use super::memory::Persistency;
use super::mutate::Mutation;

/// How much to explore, and on which medium.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where all choices come from. Trial `i` uses `seed + i`.
    pub seed: u64,
    /// How many different crash states to check.
    pub states: u64,
    /// The medium.
    pub persistency: Persistency,
    /// Threads; 1 runs without a scheduler.
    pub threads: usize,
    /// Operation slots of the pools; `None`: as many as the subject asks for. With fewer than threads,
    /// these take over each other's slots, and what waits there.
    pub slots: Option<u64>,
    /// Operations of each thread in a trial.
    pub ops: usize,
    /// Most operations executed, uncrashed, before those.
    pub setup: usize,
    /// The most images of one crash point; up to so many are enumerated completely.
    pub exhaustive: usize,
    /// Random images of a crash point that has more.
    pub random: usize,
    /// One recovery in so many is crashed too (and the first of each kind).
    pub nest_every: usize,
    /// The most states of one crashed recovery.
    pub nested_states: u64,
    /// At one crash point in so many the process dies alone: another one opens what is in the
    /// caches, and then the power fails. 0: never.
    pub kill_every: usize,
    /// The most states of one such opening.
    pub killed_states: u64,
    /// Accesses after which a run counts as endless.
    pub step_limit: u64,
    /// Whether a failure is reduced to a minimal sequence.
    pub shrink: bool,
    /// Which mutant to explore instead of the program.
    pub mutation: Option<Mutation>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            states: 20_000,
            persistency: Persistency::Lines,
            threads: 1,
            slots: None,
            ops: 6,
            setup: 24,
            exhaustive: 64,
            random: 8,
            nest_every: 200,
            nested_states: 150,
            kill_every: 24,
            killed_states: 60,
            step_limit: 2_000_000,
            shrink: true,
            mutation: None,
        }
    }
}

impl Config {
    /// One thread, flushed lines.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same from another seed.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same with another number of states.
    #[must_use]
    pub fn states(self, states: u64) -> Self {
        Self { states, ..self }
    }

    /// The same on another medium.
    #[must_use]
    pub fn persistency(self, persistency: Persistency) -> Self {
        Self { persistency, ..self }
    }

    /// The same with several threads, each with fewer operations.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        let ops = if threads > 1 { (self.ops / 2).max(2) } else { self.ops };
        Self { threads, ops, ..self }
    }

    /// The same with so many operation slots in each pool.
    #[must_use]
    pub fn slots(self, slots: Option<u64>) -> Self {
        Self { slots, ..self }
    }

    /// The same with another number of operations per thread.
    #[must_use]
    pub fn ops(self, ops: usize) -> Self {
        Self { ops, ..self }
    }

    /// The same with up to `setup` operations before the crashed ones.
    #[must_use]
    pub fn setup(self, setup: usize) -> Self {
        Self { setup, ..self }
    }
}
