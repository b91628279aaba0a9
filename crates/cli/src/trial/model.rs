//! What must be in the pool: every acknowledged write, and nothing else.

use std::fmt;
use std::ops::Bound;

use pmindex::{Index, IndexError, Key, Value};
use pmindex_pibench::BATCH;

use super::script::{Change, Script, Side};
use super::source::Universes;
use super::store::Store;
use super::universe::Universe;

/// What an index should hold: for each place of its universe, the number that stands for the value.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    values: Vec<Option<u64>>,
    /// Changes that had begun and were not acknowledged: each place may have the old or the new value.
    in_flight: Vec<(usize, Option<u64>)>,
}

impl Expected {
    /// Returns a model of `len` empty places.
    pub(crate) fn empty(len: usize) -> Self {
        Self { values: vec![None; len], in_flight: Vec::new() }
    }

    /// Returns what a place should hold.
    pub(crate) fn at(&self, at: usize) -> Option<u64> {
        self.values[at]
    }

    /// Sets what a place should hold.
    pub(crate) fn set(&mut self, at: usize, value: Option<u64>) {
        self.values[at] = value;
    }

    /// Applies an acknowledged change.
    fn apply(&mut self, change: &Change) {
        for (at, value) in change.effects(|at| self.values[at]) {
            self.values[at] = value;
        }
    }

    /// Notes a change that may or may not have happened.
    fn attempt(&mut self, change: &Change) {
        let effects = change.effects(|at| self.values[at]);
        self.in_flight.extend(effects.into_iter().filter(|(at, new)| self.values[*at] != *new));
    }
}

/// The models of both indexes.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// The byte strings.
    pub(crate) words: Expected,
    /// The integers.
    pub(crate) integers: Expected,
}

impl Model {
    /// Returns the model of empty indexes.
    pub(crate) fn empty(universes: &Universes) -> Self {
        Self {
            words: Expected::empty(universes.words.len()),
            integers: Expected::empty(universes.integers.len()),
        }
    }

    /// Follows the scripts of this seed, as far as each thread has acknowledged; after a kill, one more
    /// step may have begun.
    pub(crate) fn follow(
        &mut self,
        universes: &Universes,
        seed: u64,
        acknowledged: &[u64],
        killed: bool,
    ) {
        let (words, integers) = (universes.words.len(), universes.integers.len());
        for (thread, &steps) in acknowledged.iter().enumerate() {
            let script = Script::new(seed, thread, acknowledged.len(), words, integers);
            self.follow_one(script, steps, killed);
        }
    }

    /// Compares both indexes of a pool with the model, which then becomes what was found.
    pub(crate) fn verify(
        &mut self,
        store: &Store,
        universes: &Universes,
    ) -> Result<Verdict, IndexError> {
        let mut verdict = verify(&store.words, &universes.words, &mut self.words)?;
        verdict.add(&verify(&store.integers, &universes.integers, &mut self.integers)?);
        Ok(verdict)
    }

    fn follow_one(&mut self, script: Script, acknowledged: u64, killed: bool) {
        let mut script = script.into_iter();
        for (side, change) in script.by_ref().take(usize::try_from(acknowledged).unwrap_or(0)) {
            self.side(side).apply(&change);
        }
        if let Some((side, change)) = script.next().filter(|_| killed) {
            self.side(side).attempt(&change);
        }
    }

    fn side(&mut self, side: Side) -> &mut Expected {
        match side {
            Side::Words => &mut self.words,
            Side::Integers => &mut self.integers,
        }
    }
}

/// The number of differences that are described in words.
const EXAMPLES: usize = 5;

/// How indexes differ from the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Verdict {
    /// Records found.
    pub(crate) records: u64,
    /// The changes in flight that took effect.
    pub(crate) in_flight_done: u64,
    /// All changes in flight.
    pub(crate) in_flight: u64,
    /// Acknowledged records that are missing.
    pub(crate) lost: u64,
    /// Records that no thread wrote, or that were removed.
    pub(crate) ghosts: u64,
    /// Records whose value is not the one written last.
    pub(crate) wrong: u64,
    /// The first few differences, in words.
    pub(crate) examples: Vec<String>,
}

impl Verdict {
    /// Returns `true` if every acknowledged write is there, and nothing else.
    pub(crate) fn holds(&self) -> bool {
        self.lost + self.ghosts + self.wrong == 0
    }

    /// Adds another verdict.
    pub(crate) fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.in_flight_done += other.in_flight_done;
        self.in_flight += other.in_flight;
        self.lost += other.lost;
        self.ghosts += other.ghosts;
        self.wrong += other.wrong;
        let room = EXAMPLES.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.iter().take(room).cloned());
    }

    fn note(&mut self, what: &str, key: &impl fmt::Debug) {
        if self.examples.len() < EXAMPLES {
            self.examples.push(format!("{what}: {key:?}"));
        }
    }
}

/// Compares an index with the model, by full scans in both directions. `expected` then becomes what was
/// found, with the changes in flight decided.
fn verify<K: Key, V: Value>(
    index: &impl Index<K, V>,
    universe: &Universe<K, V>,
    expected: &mut Expected,
) -> Result<Verdict, IndexError> {
    let mut verdict = Verdict::default();
    let mut found = vec![false; universe.len()];
    let in_flight = std::mem::take(&mut expected.in_flight);
    verdict.in_flight = in_flight.len() as u64;
    for item in index.range_bounds(Bound::Unbounded, Bound::Unbounded) {
        let (key, value) = item?;
        verdict.records += 1;
        let Some(at) = universe.find(&key) else {
            verdict.ghosts += 1;
            verdict.note("no thread ever wrote this key", &key);
            continue;
        };
        if std::mem::replace(&mut found[at], true) {
            verdict.ghosts += 1;
            verdict.note("twice in one scan", &key);
            continue;
        }
        let is = |number: Option<u64>| number.is_some_and(|n| universe.value(n) == value);
        if is(expected.at(at)) {
            continue;
        }
        let begun = in_flight.iter().find(|(place, new)| *place == at && is(*new));
        if let Some((_, new)) = begun {
            verdict.in_flight_done += 1;
            expected.set(at, *new);
        } else if expected.at(at).is_some() {
            verdict.wrong += 1;
            verdict.note("another value than was written", &key);
        } else {
            verdict.ghosts += 1;
            verdict.note("was removed, or never acknowledged", &key);
        }
    }
    for (at, found) in found.iter().enumerate() {
        if *found || expected.at(at).is_none() {
            continue;
        }
        if in_flight.iter().any(|(place, new)| *place == at && new.is_none()) {
            verdict.in_flight_done += 1;
            expected.set(at, None);
        } else {
            verdict.lost += 1;
            verdict.note("acknowledged and lost", universe.key(at));
        }
    }
    if verdict.holds() {
        look_up(index, universe, expected, &mut verdict)?;
    }
    Ok(verdict)
}

/// Looks up every key, present or not: unlike scans, lookups use the upper levels.
fn look_up<K: Key, V: Value>(
    index: &impl Index<K, V>,
    universe: &Universe<K, V>,
    expected: &Expected,
    verdict: &mut Verdict,
) -> Result<(), IndexError> {
    let mut values = vec![None; BATCH];
    for (batch, keys) in universe.keys().chunks(BATCH).enumerate() {
        index.get_many(keys, &mut values[..keys.len()])?;
        for ((at, key), value) in (batch * BATCH..).zip(keys).zip(&values) {
            if *value != expected.at(at).map(|number| universe.value(number)) {
                verdict.wrong += 1;
                verdict.note("a lookup and a scan disagree", key);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pmindex::{FpTree, Pool};

    use super::super::universe;
    use super::*;

    /// Returns an index that holds every other key of a universe, and its model.
    fn sample() -> (FpTree<u64, u64>, Universe<u64, u64>, Expected) {
        let pool = Arc::new(Pool::volatile(4 << 20).expect("memory"));
        let index = FpTree::create(&pool, "integers").expect("room");
        let universe = universe::integers(500, 1);
        let mut expected = Expected::empty(universe.len());
        for at in (0..universe.len()).step_by(2) {
            index.try_insert(universe.key(at), &7).expect("room").expect("done");
            expected.set(at, Some(7));
        }
        (index, universe, expected)
    }

    #[test]
    fn what_was_acknowledged_and_nothing_else_holds() {
        let (index, universe, mut expected) = sample();
        let verdict = verify(&index, &universe, &mut expected).expect("readable");
        assert!(verdict.holds());
        assert_eq!(verdict.records, 500);
    }

    #[test]
    fn a_lost_a_foreign_and_a_changed_record_are_found() {
        let (index, universe, mut expected) = sample();
        index.remove(universe.key(10)).expect("room"); // lost
        index.try_insert(universe.key(11), &7).expect("room").expect("done"); // never acknowledged
        index.update(universe.key(12), &8).expect("room").expect("done"); // another value
        let foreign = (0..1_000_000).find(|key| universe.find(key).is_none()).expect("few keys");
        index.try_insert(&foreign, &7).expect("room").expect("done"); // of no script
        let verdict = verify(&index, &universe, &mut expected).expect("readable");
        assert!(!verdict.holds());
        assert_eq!((verdict.lost, verdict.ghosts, verdict.wrong), (1, 2, 1));
        assert_eq!(verdict.examples.len(), 4);
    }

    #[test]
    fn a_change_in_flight_may_be_done_or_not_but_nothing_between() {
        for (done, value, holds) in [(false, 7, true), (true, 8, true), (true, 9, false)] {
            let (index, universe, mut expected) = sample();
            expected.attempt(&Change::Update(20, 8));
            expected.attempt(&Change::Remove(22));
            expected.attempt(&Change::Insert(23, 8));
            if done {
                index.update(universe.key(20), &value).expect("room").expect("done");
                index.remove(universe.key(22)).expect("room");
                index.try_insert(universe.key(23), &8).expect("room").expect("done");
            }
            let verdict = verify(&index, &universe, &mut expected).expect("readable");
            assert_eq!(verdict.holds(), holds, "{value}: {verdict:?}");
            if holds {
                assert_eq!(verdict.in_flight, 3);
                assert_eq!(verdict.in_flight_done, if done { 3 } else { 0 });
                // From now on the model is what was found.
                let again = verify(&index, &universe, &mut expected).expect("readable");
                assert!(again.holds(), "{again:?}");
            }
        }
    }
}
