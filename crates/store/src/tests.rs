//! Crashes a store in the simulator, with the right steps and with wrong ones.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use parking_lot::{Mutex, MutexGuard};
use pmindex_testkit::crash::{Config, CrashSubject, explore};

use crate::wrong::Wrong;

#[path = "../../../tests/crash/drops.rs"]
pub(crate) mod drops;
#[path = "../../../tests/crash/expiring.rs"]
mod expiring;
/// The subjects of `cargo xtask crash --index store`.
#[allow(dead_code, reason = "the explorer of crashes has all of it")]
#[path = "../../../tests/crash/store.rs"]
pub(crate) mod store;

use expiring::Expires;
use store::{SmallStore, Stored, Variant};

/// A wrong step; the threads of an exploration that finds it, and the first seed.
type Step = (Wrong, &'static str, usize, u64);

const WRONG: [Step; 11] = [
    (Wrong::ChangesFirst, "changes before the record", 2, 1),
    (Wrong::RetiredFirst, "the record gone before the changes", 2, 1),
    (Wrong::NoRecord, "no record", 2, 1),
    (Wrong::UnlockedFirst, "keys unlocked before the record is gone", 2, 1),
    (Wrong::NotChecked, "what was read is not checked", 2, 1),
    (Wrong::NotedLate, "single writes note nothing", 2, 1),
    (Wrong::NotAwaited, "moments begin with commits unfinished", 2, 1),
    (Wrong::ReadInBetween, "a read does not wait for a commit", 2, 1),
    (Wrong::NotFinished, "interrupted commits are left", 2, 1),
    (Wrong::RegisteredLate, "a record is needed only after it may be given back", 2, 1),
    (Wrong::SaidElsewhere, "what is said of a record is not in its lane", 2, 1),
];

const SWEPT: Step =
    (Wrong::SweptBlindly, "a sweeper removes a record whatever has become of it", 2, 1);

/// The wrong step of the stores of [`Varied`]; see [`Varied::has`].
static GOES: AtomicUsize = AtomicUsize::new(RIGHT);
const RIGHT: usize = usize::MAX;
static TURN: Mutex<()> = Mutex::new(());

/// One type for all wrong steps: each further one would compile the store and its maps again.
struct Varied;

impl Variant for Varied {
    type Kinds = store::Small;
    const KINDS: [(); store::MAPS] = [(); store::MAPS];

    fn vary(store: &SmallStore) {
        let goes = GOES.load(SeqCst);
        let step = if goes == WRONG.len() { Some(&SWEPT) } else { WRONG.get(goes) };
        if step.is_none_or(|(wrong, ..)| *wrong == Wrong::RegisteredLate) {
            store.cut_records(); // in parts, some of them in several segments
        }
        if let Some((wrong, ..)) = step {
            store.go_wrong(*wrong);
        }
    }
}

impl Varied {
    /// Makes all stores of this type have that wrong step, until the result is dropped.
    fn has(step: usize) -> MutexGuard<'static, ()> {
        let turn = TURN.lock();
        GOES.store(step, SeqCst);
        turn
    }
}

/// Explores one or more threads; returns the first failure.
fn crash<S: CrashSubject>(threads: usize, seed: u64, states: u64) -> Result<u64, String> {
    let config = Config::new().seed(seed).states(states).threads(threads);
    explore::<S>(&config).map(|report| report.states).map_err(|failure| failure.to_string())
}

/// The crash explorer covers more states, with records in one part.
#[test]
fn a_transaction_happens_wholly_or_not_at_all() {
    let _has = Varied::has(RIGHT);
    for threads in [1, 2] {
        let explored = crash::<Stored<Varied>>(threads, 4, 4_000);
        let states = explored.unwrap_or_else(|failure| panic!("{failure}"));
        assert!(states >= 4_000, "{states}");
    }
}

fn is_caught<S: CrashSubject>(step: usize, (_, name, threads, seed): Step) {
    let _has = Varied::has(step);
    let caught = (seed..seed + 8).any(|seed| crash::<S>(threads, seed, 30_000).is_err());
    assert!(caught, "{name}: not noticed");
}

fn are_caught(steps: impl IntoIterator<Item = usize>) {
    for step in steps {
        is_caught::<Stored<Varied>>(step, WRONG[step]);
    }
}

#[test]
fn a_savepoint_that_was_rolled_back_over_is_the_one_before() {
    let pool = std::sync::Arc::new(pmindex_core::Pool::emulated(1 << 20).unwrap());
    let store = crate::Store::<store::Small>::in_pool(&pool, &crate::StoreOptions::new()).unwrap();
    let map = store.map::<u64, u64>("map").unwrap();
    let mut tx = store.begin().unwrap();
    let all = |tx: &crate::Transaction| {
        (0..9u64).filter(|key| tx.get(&map, key).unwrap().is_some()).collect::<Vec<_>>()
    };
    tx.put(&map, &0, &0).unwrap();
    let first = tx.savepoint();
    tx.put(&map, &1, &1).unwrap();
    let second = tx.savepoint();
    assert_ne!(first, second);
    tx.roll_back(first);
    assert_eq!(tx.savepoint(), first, "nothing has changed since");
    (2..5).for_each(|key| tx.put(&map, &key, &key).unwrap());
    let third = tx.savepoint();
    tx.put(&map, &5, &5).unwrap();
    tx.roll_back(third);
    assert_eq!(all(&tx), [0, 2, 3, 4]);
    tx.roll_back(second);
    assert_eq!(all(&tx), [0], "what was changed since the first one");
    tx.put(&map, &6, &6).unwrap();
    tx.roll_back(third);
    assert_eq!(all(&tx), [0]);
}

#[test]
fn wrong_steps_of_a_commit_are_caught() {
    are_caught([0, 1, 2, 3, 8]);
}

#[test]
fn wrong_isolation_is_caught() {
    are_caught(4..=7);
}

#[test]
fn giving_back_what_is_needed_is_caught() {
    are_caught([9, 10]);
}

/// The crash explorer covers the right steps.
#[test]
fn a_sweeper_removes_what_is_over_and_nothing_else() {
    is_caught::<Expires<Varied>>(WRONG.len(), SWEPT);
}
