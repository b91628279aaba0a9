//! Tests of correct histories, and of the known anomalies by name.

use super::{Because, Broken, Item, Place, Read, Transaction, Version, replay, search_cycle};

const A: Item = (0, 1);
const B: Item = (1, 1);

/// Makes a transaction with these versions.
fn transaction(
    span: (u64, u64),
    reads: &[(Item, Option<Version>)],
    writes: &[(Item, Version)],
) -> Transaction {
    Transaction {
        span,
        reads: reads.iter().map(|(item, version)| Read::Record(*item, *version)).collect(),
        writes: writes.iter().map(|(item, version)| (*item, Some(*version))).collect(),
        place: None,
    }
}

fn placed(mut history: Vec<Transaction>, places: &[Place]) -> Vec<Transaction> {
    for (transaction, place) in history.iter_mut().zip(places) {
        transaction.place = Some(*place);
    }
    history
}

fn commits(history: Vec<Transaction>) -> Vec<Transaction> {
    let places: Vec<_> = (1..=history.len() as u64).map(Place::Commit).collect();
    placed(history, &places)
}

#[test]
fn one_after_another_is_right() {
    let history = vec![
        transaction((1, 2), &[(A, None)], &[(A, 10)]),
        transaction((3, 6), &[(A, Some(10)), (B, None)], &[(A, 20), (B, 21)]),
        transaction((4, 5), &[(A, Some(10))], &[]),
        transaction((7, 8), &[(A, Some(20)), (B, Some(21))], &[]),
    ];
    assert_eq!(search_cycle(&history), Ok(()));
    let places = [Place::Commit(5), Place::Commit(9), Place::Moment(8), Place::Moment(9)];
    assert_eq!(replay(&placed(history, &places)), Ok(()));
}

#[test]
fn a_lost_update_is_found() {
    let history = vec![
        transaction((1, 4), &[(A, None)], &[(A, 10)]),
        transaction((2, 3), &[(A, None)], &[(A, 20)]),
    ];
    assert_eq!(search_cycle(&history), Err(Broken::LostUpdate { both: (0, 1), item: A }));
    let otherwise = Broken::Otherwise { reader: 1, item: A, read: None, was: Some(10) };
    assert_eq!(replay(&commits(history)), Err(otherwise));
}

#[test]
fn write_skew_is_found() {
    let both = [(A, None), (B, None)];
    let history =
        vec![transaction((1, 4), &both, &[(A, 10)]), transaction((2, 3), &both, &[(B, 20)])];
    let cycle = vec![(0, Because::ItRead(B)), (1, Because::ItRead(A))];
    assert_eq!(search_cycle(&history), Err(Broken::Cycle(cycle)));
    assert!(matches!(replay(&commits(history)), Err(Broken::Otherwise { reader: 1, .. })));
}

#[test]
fn a_phantom_is_found() {
    let range =
        |found: &[(u64, Version)]| Read::Range { map: 0, keys: (0, 9), found: found.to_vec() };
    let appends = |span, key: u64, version| {
        let mut appends = transaction(span, &[], &[((0, key), version)]);
        appends.reads.push(range(&[]));
        appends
    };
    let history = vec![appends((1, 4), 3, 10), appends((2, 3), 4, 20)];
    let cycle = vec![(0, Because::ItRead((0, 4))), (1, Because::ItRead((0, 3)))];
    assert_eq!(search_cycle(&history), Err(Broken::Cycle(cycle)));
    let otherwise = Broken::Otherwise { reader: 1, item: (0, 3), read: None, was: Some(10) };
    assert_eq!(replay(&commits(history)), Err(otherwise));
}

#[test]
fn half_of_a_commit_is_found() {
    let history = vec![
        transaction((1, 4), &[(A, None), (B, None)], &[(A, 10), (B, 11)]),
        transaction((2, 3), &[(A, Some(10)), (B, None)], &[]),
    ];
    assert!(matches!(search_cycle(&history), Err(Broken::Cycle(cycle)) if cycle.len() == 2));
    let places = [Place::Commit(1), Place::Moment(1)];
    assert!(matches!(replay(&placed(history, &places)), Err(Broken::Otherwise { .. })));
}

#[test]
fn a_read_of_the_past_is_found() {
    let history = vec![
        transaction((1, 2), &[(A, None)], &[(A, 10)]),
        transaction((3, 4), &[(A, None)], &[]), // serializable, but not strictly
    ];
    let cycle = vec![(0, Because::ItEnded), (1, Because::ItRead(A))];
    let Err(Broken::Cycle(found)) = search_cycle(&history) else { panic!("not found") };
    assert!(found == cycle || found.iter().rev().eq(&cycle), "{found:?}");
    let places = [Place::Commit(1), Place::Moment(0)];
    assert_eq!(replay(&placed(history, &places)), Err(Broken::Late { both: (0, 1) }));
}

#[test]
fn what_cannot_be_placed_is_told() {
    let nobody = transaction((1, 2), &[(A, Some(7))], &[]);
    assert_eq!(search_cycle(&[nobody]), Err(Broken::Unwritten { reader: 0, item: A }));
    let blind = transaction((1, 2), &[], &[(A, 10)]);
    assert_eq!(search_cycle(std::slice::from_ref(&blind)), Err(Broken::Unknown(0)));
    assert_eq!(replay(&[blind]), Err(Broken::Unknown(0)));
}
