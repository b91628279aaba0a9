//! What the child writes: a script that parent and child derive from the same seed.
//!
//! So an acknowledgement needs no content: a count says how many steps of a thread have returned. A thread
//! owns the keys whose place, modulo the number of threads, is its number. So the state after any number of
//! steps of each thread is known, whatever the interleaving was.

use pmindex_pibench::KeySpace;

/// Which index a step changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Byte strings.
    Words,
    /// `u64`.
    Integers,
}

/// A change of one index, by places in its universe and numbers that stand for values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Adds if missing.
    Insert(usize, u64),
    /// Replaces if present.
    Update(usize, u64),
    /// Adds or replaces.
    Upsert(usize, u64),
    /// Removes if present.
    Remove(usize),
    /// Adds the missing ones of these records, in one call.
    InsertMany(Vec<(usize, u64)>),
}

impl Change {
    /// Returns the places that it may change, and what each holds afterwards, given what it holds now.
    pub(crate) fn effects(&self, now: impl Fn(usize) -> Option<u64>) -> Vec<(usize, Option<u64>)> {
        match *self {
            Self::Insert(at, value) => vec![(at, now(at).or(Some(value)))],
            Self::Update(at, value) => vec![(at, now(at).map(|_| value))],
            Self::Upsert(at, value) => vec![(at, Some(value))],
            Self::Remove(at) => vec![(at, None)],
            Self::InsertMany(ref records) => {
                let mut effects: Vec<(usize, Option<u64>)> = Vec::new();
                for &(at, value) in records {
                    if effects.iter().all(|effect| effect.0 != at) {
                        effects.push((at, now(at).or(Some(value))));
                    }
                }
                effects
            }
        }
    }
}

/// The steps of one thread; it never ends.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    random: KeySpace,
    thread: u64,
    threads: u64,
    words: u64,
    integers: u64,
    steps: u64,
}

/// Records in one call of `insert_many`.
const BATCH: u64 = 16;

impl Script {
    /// Returns the script of thread `thread` of `threads`, over universes of these sizes.
    pub(crate) fn new(
        seed: u64,
        thread: usize,
        threads: usize,
        words: usize,
        integers: usize,
    ) -> Self {
        let random = KeySpace::new(seed ^ ((thread as u64 + 1) << 48));
        let (thread, threads) = (thread as u64, threads as u64);
        Self { random, thread, threads, words: words as u64, integers: integers as u64, steps: 0 }
    }

    fn place(&mut self, len: u64) -> usize {
        // The number of this thread's places: thread, thread + threads, ... below len.
        let mine = (len + self.threads - 1 - self.thread) / self.threads;
        let place = self.random.below(mine.max(1)) * self.threads + self.thread;
        usize::try_from(place.min(len - 1)).unwrap_or_default()
    }

    /// Returns a value that no other step writes.
    fn value(&self) -> u64 {
        (1 << 63) | (self.steps << 8) | self.thread
    }
}

impl Iterator for Script {
    type Item = (Side, Change);

    fn next(&mut self) -> Option<Self::Item> {
        self.steps += 1;
        let value = self.value();
        // With fewer words than threads, a thread without words writes only integers.
        let words = self.words > self.thread && self.random.below(3) == 0;
        let (side, len) =
            if words { (Side::Words, self.words) } else { (Side::Integers, self.integers) };
        let kind = self.random.below(100);
        let at = self.place(len);
        let change = match kind {
            0..30 => Change::Insert(at, value),
            30..50 => Change::Update(at, value),
            50..65 => Change::Upsert(at, value),
            65..95 => Change::Remove(at),
            _ => Change::InsertMany((0..BATCH).map(|_| (self.place(len), value)).collect()),
        };
        Some((side, change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(change: &Change) -> Vec<usize> {
        change.effects(|_| None).into_iter().map(|effect| effect.0).collect()
    }

    #[test]
    fn threads_never_share_a_key() {
        for threads in 1..5 {
            for thread in 0..threads {
                for (side, change) in Script::new(9, thread, threads, 101, 1000).take(2000) {
                    let len = if side == Side::Words { 101 } else { 1000 };
                    for at in places(&change) {
                        assert!(at < len);
                        assert_eq!(at % threads, thread);
                    }
                }
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_steps_and_another_other_ones() {
        let steps = |seed| Script::new(seed, 0, 2, 100, 100).take(50).collect::<Vec<_>>();
        assert_eq!(steps(1), steps(1));
        assert_ne!(steps(1), steps(2));
    }

    #[test]
    fn every_kind_of_change_occurs_on_both_sides() {
        let steps: Vec<_> = Script::new(1, 0, 1, 100, 100).take(1000).collect();
        for side in [Side::Words, Side::Integers] {
            let kinds: std::collections::HashSet<_> = steps
                .iter()
                .filter(|step| step.0 == side)
                .map(|step| std::mem::discriminant(&step.1))
                .collect();
            assert_eq!(kinds.len(), 5, "{side:?}");
        }
    }

    #[test]
    fn effects_follow_the_contract() {
        let now = |at: usize| (at == 1).then_some(10);
        assert_eq!(Change::Insert(1, 5).effects(now), [(1, Some(10))]);
        assert_eq!(Change::Insert(2, 5).effects(now), [(2, Some(5))]);
        assert_eq!(Change::Update(1, 5).effects(now), [(1, Some(5))]);
        assert_eq!(Change::Update(2, 5).effects(now), [(2, None)]);
        assert_eq!(Change::Remove(1).effects(now), [(1, None)]);
        let many = Change::InsertMany(vec![(2, 5), (1, 6), (2, 7)]);
        assert_eq!(many.effects(now), [(2, Some(5)), (1, Some(10))]);
    }
}
