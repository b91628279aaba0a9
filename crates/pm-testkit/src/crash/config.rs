//! The extent of an exploration.

use super::memory::Persistency;
use super::mutate::Mutation;

/// The extent of an exploration, and the medium.
#[derive(Clone, Debug)]
pub struct Config {
    /// The seed of all choices. Trial `i` uses `seed + i`.
    pub seed: u64,
    /// The number of different crash states to check.
    pub states: u64,
    /// The medium.
    pub persistency: Persistency,
    /// Threads; 1 runs without a scheduler.
    pub threads: usize,
    /// Operation slots of the pools; `None` leaves it to the subject. With fewer slots than threads, these
    /// take over each other's slots and quarantines.
    pub slots: Option<u64>,
    /// Operations of each thread in a trial.
    pub ops: usize,
    /// The largest number of operations executed, without crashes, before those.
    pub setup: usize,
    /// The largest number of images of one crash point; up to that number all are enumerated.
    pub exhaustive: usize,
    /// The number of random images of a crash point that has more.
    pub random: usize,
    /// `true` if a crash point before a store has two images only: none of the unfenced stores, and all of them.
    pub brief_stores: bool,
    /// One recovery in this many is crashed too (and the first of each kind).
    pub nest_every: usize,
    /// The largest number of states of one crashed recovery.
    pub nested_states: u64,
    /// At one crash point in this many the process dies alone: another one opens what is in the caches, and
    /// then the power fails. 0 means never.
    pub kill_every: usize,
    /// The largest number of states of one such opening.
    pub killed_states: u64,
    /// Accesses after which a run counts as endless.
    pub step_limit: u64,
    /// `true` if a failure is reduced to a minimal sequence.
    pub shrink: bool,
    /// The mutant to explore instead of the program.
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
            brief_stores: false,
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
    /// Returns the defaults: one thread, flushed lines.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the seed.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets the number of states.
    #[must_use]
    pub fn states(self, states: u64) -> Self {
        Self { states, ..self }
    }

    /// Sets the medium.
    #[must_use]
    pub fn persistency(self, persistency: Persistency) -> Self {
        Self { persistency, ..self }
    }

    /// Sets the number of threads, and reduces the operations of each.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        let ops = if threads > 1 { (self.ops / 2).max(2) } else { self.ops };
        Self { threads, ops, ..self }
    }

    /// Sets the number of operation slots in each pool.
    #[must_use]
    pub fn slots(self, slots: Option<u64>) -> Self {
        Self { slots, ..self }
    }

    /// Sets the number of operations per thread.
    #[must_use]
    pub fn ops(self, ops: usize) -> Self {
        Self { ops, ..self }
    }

    /// Sets the largest number of operations before the crashed ones.
    #[must_use]
    pub fn setup(self, setup: usize) -> Self {
        Self { setup, ..self }
    }
}
