//! Tests of known histories, and of all small ones against a search that tries every order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Call, Event, History, Outcome, Tag, check_key};

fn event(span: (u64, u64), call: Call, outcome: Outcome) -> Event {
    let (start, end) = span;
    Event { thread: 0, key: 1, call, outcome: Some(outcome), start, end }
}

fn lost(start: u64, call: Call) -> Event {
    Event { thread: 0, key: 1, call, outcome: None, start, end: u64::MAX }
}

fn value(tag: Tag) -> Outcome {
    Outcome::Value(Some(tag))
}

const NONE: Outcome = Outcome::Value(None);
const YES: Outcome = Outcome::Done(true);
const NO: Outcome = Outcome::Done(false);

fn accepted(initial: Option<Tag>, events: &[Event]) {
    check_key(initial, events).unwrap_or_else(|violation| panic!("{violation}"));
}

fn rejected(initial: Option<Tag>, events: &[Event]) {
    assert!(check_key(initial, events).is_err(), "accepted: {events:?}");
}

#[test]
fn sequential_histories() {
    use Call::{Contains, Get, Insert, Put, Remove, RemoveExact, TryInsert, Update};
    accepted(
        None,
        &[
            event((0, 1), Get, NONE),
            event((2, 3), TryInsert(7), YES),
            event((4, 5), TryInsert(8), NO),
            event((6, 7), Update(9), YES),
            event((8, 9), Contains, YES),
            event((10, 11), Put(10), NO),
            event((12, 13), Remove, value(10)),
            event((14, 15), Update(11), NO),
            event((16, 17), Put(12), YES),
            event((18, 19), Get, value(12)),
            event((20, 21), Insert(13), value(12)),
            event((22, 23), RemoveExact(12), NONE),
            event((24, 25), RemoveExact(13), value(13)),
            event((26, 27), Insert(14), NONE),
        ],
    );
    rejected(None, &[event((0, 1), TryInsert(7), YES), event((2, 3), Get, NONE)]);
    rejected(None, &[event((0, 1), TryInsert(7), YES), event((2, 3), TryInsert(8), YES)]);
    rejected(None, &[event((0, 1), Get, value(5))]);
    rejected(Some(5), &[event((0, 1), Contains, NO)]);
    rejected(Some(5), &[event((0, 1), Update(6), YES), event((2, 3), Get, value(5))]);
    rejected(Some(5), &[event((0, 1), Remove, value(5)), event((2, 3), Remove, value(5))]);
    rejected(Some(5), &[event((0, 1), Update(6), NO)]);
    rejected(Some(5), &[event((0, 1), Insert(6), NONE)]);
    rejected(Some(5), &[event((0, 1), Insert(6), value(5)), event((2, 3), Get, value(5))]);
    rejected(Some(5), &[event((0, 1), RemoveExact(6), value(5))]);
    rejected(Some(5), &[event((0, 1), RemoveExact(5), NONE)]);
    rejected(Some(5), &[event((0, 1), RemoveExact(5), value(5)), event((2, 3), Get, value(5))]);
    rejected(Some(5), &[event((0, 1), Put(6), YES)]);
}

#[test]
fn a_read_may_see_either_side_of_a_concurrent_write() {
    let write = event((0, 10), Call::Update(2), YES);
    accepted(Some(1), &[write, event((3, 4), Call::Get, value(1))]);
    accepted(Some(1), &[write, event((3, 4), Call::Get, value(2))]);
    accepted(
        Some(1),
        &[write, event((1, 2), Call::Get, value(1)), event((3, 4), Call::Get, value(2))],
    );
}

#[test]
fn reads_do_not_go_back() {
    rejected(
        Some(1),
        &[
            event((0, 10), Call::Update(2), YES),
            event((1, 2), Call::Get, value(2)),
            event((3, 4), Call::Get, value(1)),
        ],
    );
}

#[test]
fn of_two_concurrent_inserts_one_wins() {
    let won = event((0, 5), Call::TryInsert(1), YES);
    accepted(None, &[won, event((1, 4), Call::TryInsert(2), NO)]);
    rejected(None, &[won, event((1, 4), Call::TryInsert(2), YES)]);
    rejected(None, &[event((0, 5), Call::TryInsert(1), NO), event((1, 4), Call::TryInsert(2), NO)]);
    rejected(
        None,
        &[won, event((1, 4), Call::TryInsert(2), NO), event((6, 7), Call::Get, value(2))],
    );
}

#[test]
fn a_concurrent_update_is_not_lost() {
    let both = [event((0, 5), Call::Update(2), YES), event((1, 6), Call::Update(3), YES)];
    for last in [2, 3] {
        accepted(Some(1), &[both[0], both[1], event((7, 8), Call::Get, value(last))]);
    }
    rejected(Some(1), &[both[0], both[1], event((7, 8), Call::Get, value(1))]);
}

#[test]
fn a_call_that_did_not_return_happened_or_did_not() {
    let cut = lost(2, Call::Put(2));
    accepted(Some(1), &[cut, event((3, 4), Call::Get, value(1))]);
    accepted(Some(1), &[cut, event((3, 4), Call::Get, value(2))]);
    accepted(
        Some(1),
        &[cut, event((3, 4), Call::Get, value(1)), event((5, 6), Call::Get, value(2))],
    );
    rejected(
        Some(1),
        &[cut, event((3, 4), Call::Get, value(2)), event((5, 6), Call::Get, value(1))],
    );
    rejected(Some(1), &[cut, event((0, 1), Call::Get, value(2))]);
}

#[test]
fn a_crash_may_not_take_back_what_was_read() {
    let crashed = |read: Tag, found: Option<Tag>| {
        let mut history = History::new(BTreeMap::from([(1, 10)]));
        history.add([lost(0, Call::Update(11)), event((1, 2), Call::Get, value(read))]);
        history.ends_with([1], &found.map(|tag| (1, tag)).into_iter().collect());
        history.check()
    };
    crashed(10, Some(10)).expect("the update did not happen");
    crashed(10, Some(11)).expect("the update happened at the end");
    crashed(11, Some(11)).expect("the update happened");
    assert!(crashed(11, Some(10)).is_err(), "an effect was read, then lost");
    assert!(crashed(10, None).is_err(), "the record vanished");
}

#[test]
fn keys_are_independent_and_the_guilty_one_is_named() {
    let at = |key, span: (u64, u64), call, outcome| Event { key, ..event(span, call, outcome) };
    let mut history = History::new(BTreeMap::from([(2, 20)]));
    history.add([
        at(1, (0, 1), Call::TryInsert(1), YES),
        at(2, (2, 3), Call::Get, value(20)),
        at(3, (4, 5), Call::Get, NONE),
        at(1, (6, 7), Call::Get, value(1)),
    ]);
    history.check().expect("linearizable");
    history.add([at(3, (8, 9), Call::Get, value(3))]);
    assert_eq!(history.check().expect_err("key 3 was never written").key, 3);
}

/// Returns `true` if an order of all returned calls, and of any subset of the others, explains the outcomes.
fn any_order(state: Option<Tag>, left: &[Event]) -> bool {
    if left.iter().all(|event| event.outcome.is_none()) {
        return true;
    }
    (0..left.len()).any(|next| {
        let event = left[next];
        if left.iter().any(|other| other.end < event.start) {
            return false;
        }
        let (outcome, after) = event.call.apply(state);
        let mut rest = left.to_vec();
        rest.remove(next);
        event.outcome.is_none_or(|returned| returned == outcome) && any_order(after, &rest)
    })
}

fn calls() -> impl Strategy<Value = Call> {
    let tag = 1..4u64;
    prop_oneof![
        Just(Call::Get),
        Just(Call::Contains),
        Just(Call::Remove),
        tag.clone().prop_map(Call::TryInsert),
        tag.clone().prop_map(Call::Update),
        tag.prop_map(Call::Put),
    ]
}

fn events() -> impl Strategy<Value = Event> {
    (calls(), 0..12u64, 1..6u64, 0..9u64).prop_map(|(call, start, length, outcome)| {
        let returned = match call {
            Call::Get | Call::Remove => Outcome::Value(Some(outcome % 4).filter(|&tag| tag > 0)),
            _ => Outcome::Done(outcome % 2 == 0),
        };
        if outcome == 8 {
            lost(2 * start, call)
        } else {
            event((2 * start, 2 * (start + length) - 1), call, returned)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn agrees_with_the_search_of_every_order(
        initial in proptest::option::of(1..4u64),
        history in proptest::collection::vec(events(), 0..7),
    ) {
        prop_assert_eq!(check_key(initial, &history).is_ok(), any_order(initial, &history));
    }

    /// Outcomes computed at a moment within each call's interval are linearizable, whatever the intervals; a
    /// value that no call wrote is not.
    #[test]
    fn accepts_what_an_index_did(
        history in proptest::collection::vec((calls(), 0..400u64, 0..4u64, 0..4u64), 1..250),
        wrong in any::<prop::sample::Index>(),
    ) {
        let mut moments = history;
        moments.sort_by_key(|call| call.1);
        let mut state = None;
        let mut events = Vec::new();
        for (at, (call, _, before, after)) in moments.into_iter().enumerate() {
            let moment = 1000 + 10 * at as u64;
            let (outcome, next) = call.apply(state);
            state = next;
            events.push(event((moment - 9 * before, moment + 9 * after + 1), call, outcome));
        }
        prop_assert!(check_key(None, &events).is_ok());
        let wrong = wrong.index(events.len());
        events.push(event((events[wrong].start, events[wrong].end), Call::Get, value(99)));
        prop_assert!(check_key(None, &events).is_err());
    }
}
