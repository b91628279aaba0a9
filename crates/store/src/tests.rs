//! A store crashed in the simulator, with the right steps and with wrong ones.

use pmindex_testkit::crash::{Config, explore};

use crate::wrong::Wrong;

/// What `cargo xtask crash --index store` crashes.
#[path = "../../../tests/crash/store.rs"]
mod stored;

use stored::{Right, SmallStore, Stored, Variant};

const WRONG: [(Wrong, &str); 9] = [
    (Wrong::ChangesFirst, "changes before the record"),
    (Wrong::RetiredFirst, "the record gone before the changes"),
    (Wrong::NoRecord, "no record"),
    (Wrong::UnlockedFirst, "keys unlocked before the record is gone"),
    (Wrong::NotChecked, "what was read is not checked"),
    (Wrong::NotedLate, "single writes note nothing"),
    (Wrong::NotAwaited, "moments begin with commits unfinished"),
    (Wrong::ReadInBetween, "a read does not wait for a commit"),
    (Wrong::NotFinished, "interrupted commits are left"),
];

/// One of the [`WRONG`].
struct Goes<const WRONG_STEP: usize>;

impl<const WRONG_STEP: usize> Variant for Goes<WRONG_STEP> {
    fn vary(store: &SmallStore) {
        store.go_wrong(WRONG[WRONG_STEP].0);
    }
}

/// Explores one thread and two; the first failure.
fn crash<V: Variant>(seed: u64, states: u64) -> Result<u64, String> {
    let mut all = 0;
    for threads in [1, 2] {
        let config = Config::new().seed(seed).states(states).threads(threads);
        match explore::<Stored<V>>(&config) {
            Ok(report) => all += report.states,
            Err(failure) => return Err(failure.to_string()),
        }
    }
    Ok(all)
}

#[test]
fn a_transaction_happens_wholly_or_not_at_all() {
    let states = crash::<Right>(3, 10_000).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(states >= 15_000, "{states}");
}

fn is_caught<const WRONG_STEP: usize>() {
    let caught = (1..=8).any(|seed| crash::<Goes<WRONG_STEP>>(seed, 30_000).is_err());
    assert!(caught, "{}: not noticed", WRONG[WRONG_STEP].1);
}

#[test]
fn wrong_steps_of_a_commit_are_caught() {
    is_caught::<0>();
    is_caught::<1>();
    is_caught::<2>();
    is_caught::<3>();
    is_caught::<8>();
}

#[test]
fn wrong_isolation_is_caught() {
    is_caught::<4>();
    is_caught::<5>();
    is_caught::<6>();
    is_caught::<7>();
}
