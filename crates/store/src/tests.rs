//! A store crashed in the simulator, with the right steps and with wrong ones.

use pmindex_testkit::crash::{Config, CrashSubject, explore};

use crate::wrong::Wrong;

#[path = "../../../tests/crash/expiring.rs"]
mod expiring;
/// What `cargo xtask crash --index store` crashes.
#[path = "../../../tests/crash/store.rs"]
pub(crate) mod store;

use expiring::Expires;
use store::{Kept, Right, SmallStore, Stored, Variant};

const WRONG: [(Wrong, &str); 12] = [
    (Wrong::ChangesFirst, "changes before the record"),
    (Wrong::RetiredFirst, "the record gone before the changes"),
    (Wrong::NoRecord, "no record"),
    (Wrong::UnlockedFirst, "keys unlocked before the record is gone"),
    (Wrong::NotChecked, "what was read is not checked"),
    (Wrong::NotedLate, "single writes note nothing"),
    (Wrong::NotAwaited, "moments begin with commits unfinished"),
    (Wrong::ReadInBetween, "a read does not wait for a commit"),
    (Wrong::NotFinished, "interrupted commits are left"),
    (Wrong::RegisteredLate, "a record is needed only after it may be given back"),
    (Wrong::SaidElsewhere, "what is said of a record is not in its lane"),
    (Wrong::SweptBlindly, "a sweeper removes a record whatever has become of it"),
];

/// One of the [`WRONG`].
struct Goes<const WRONG_STEP: usize>;

impl<const WRONG_STEP: usize> Variant for Goes<WRONG_STEP> {
    fn vary(store: &SmallStore) {
        store.go_wrong(WRONG[WRONG_STEP].0);
    }
}

/// A step that goes wrong, if there is one, in a store whose records have parts.
struct Cut<const WRONG_STEP: usize>;

impl<const WRONG_STEP: usize> Variant for Cut<WRONG_STEP> {
    fn vary(store: &SmallStore) {
        store.cut_records();
        if let Some((wrong, _)) = WRONG.get(WRONG_STEP) {
            store.go_wrong(*wrong);
        }
    }
}

/// Explores one thread and two; the first failure.
fn crash<S: CrashSubject>(seed: u64, states: u64) -> Result<u64, String> {
    let mut all = 0;
    for threads in [1, 2] {
        let config = Config::new().seed(seed).states(states).threads(threads);
        match explore::<S>(&config) {
            Ok(report) => all += report.states,
            Err(failure) => return Err(failure.to_string()),
        }
    }
    Ok(all)
}

/// The explorer of crashes has more states of the first and the last one; this has the one of records with parts.
#[test]
fn a_transaction_happens_wholly_or_not_at_all() {
    let right = crash::<Stored<Right>>(3, 1_500);
    let cut = crash::<Stored<Cut<{ WRONG.len() }>>>(4, 5_000);
    let kept = crash::<Stored<Kept>>(5, 1_500);
    for (explored, least) in [(right, 2_000), (cut, 7_000), (kept, 2_000)] {
        let states = explored.unwrap_or_else(|failure| panic!("{failure}"));
        assert!(states >= least, "{states}");
    }
}

fn is_caught<V: Variant>(wrong: usize) {
    let caught = (1..=8).any(|seed| crash::<Stored<V>>(seed, 30_000).is_err());
    assert!(caught, "{}: not noticed", WRONG[wrong].1);
}

#[test]
fn wrong_steps_of_a_commit_are_caught() {
    is_caught::<Goes<0>>(0);
    is_caught::<Goes<1>>(1);
    is_caught::<Goes<2>>(2);
    is_caught::<Goes<3>>(3);
    is_caught::<Goes<8>>(8);
}

#[test]
fn giving_back_what_is_needed_is_caught() {
    is_caught::<Cut<9>>(9);
    is_caught::<Goes<10>>(10);
}

#[test]
fn a_sweeper_removes_what_is_over_and_nothing_else() {
    let states = crash::<Expires>(1, 2_000).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(states >= 3_000, "{states}");
    let caught = (1..=8).any(|seed| crash::<Expires<Goes<11>>>(seed, 30_000).is_err());
    assert!(caught, "{}: not noticed", WRONG[11].1);
}

#[test]
fn wrong_isolation_is_caught() {
    is_caught::<Goes<4>>(4);
    is_caught::<Goes<5>>(5);
    is_caught::<Goes<6>>(6);
    is_caught::<Goes<7>>(7);
}
