//! Runs of groups, with the right steps and with wrong ones.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::group::{Group, PIECE, Plan, Seen, ZONE};
use crate::wrong::Wrong;

/// What happens seldom in a run, and all of it in some.
const CALM: Plan = Plan {
    steps: 6_000,
    crash: 0,
    partition: 0,
    change: 0,
    lose: 0,
    hand_over: 0,
    full: 0,
    full_log: 0,
    full_state: 0,
    drop: 50,
    padding: 40,
    log_bytes: 1 << 20,
    zone_bytes: ZONE,
};
const CRASHES: Plan = Plan { crash: 120, ..CALM };
const CUTS: Plan = Plan { steps: 12_000, partition: 500, drop: 10, ..CALM };
/// A log that is soon cut, so that who was away gets a snapshot.
const SHORT: Plan = Plan { crash: 200, partition: 300, padding: 900, log_bytes: 6_000, ..CALM };
/// Entries of several records of the log, in different segments; a cut keeps some of them.
const LONG: Plan = Plan { padding: 30_000, zone_bytes: 16 << 10, log_bytes: 64 << 10, ..SHORT };
const HANDED: Plan = Plan { hand_over: 60, crash: 800, ..CUTS };
const FULL: Plan = Plan { full: 60, crash: 400, partition: 800, ..CALM };
const MEMBERS: Plan = Plan { crash: 400, change: 200, lose: 1_500, ..SHORT };

fn run(seed: u64, plan: Plan, wrong: Option<Wrong>) -> Result<Seen, String> {
    let run = AssertUnwindSafe(|| Group::new(seed, plan, wrong).run());
    catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text
            .or_else(|| panic.downcast_ref().map(|text: &&str| (*text).into()))
            .unwrap_or_default())
    })
}

fn runs(plan: Plan, seeds: std::ops::Range<u64>) -> Vec<Seen> {
    let run =
        |seed| run(seed, plan, None).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    seeds.map(run).collect()
}

#[test]
fn calls_are_answered_in_some_order() {
    let seen = runs(CALM, 0..2);
    assert!(seen.iter().all(|seen| seen.answered > 100 && seen.leaders >= 1), "{seen:?}");
}

#[test]
fn crashes_take_nothing_back() {
    let seen = runs(CRASHES, 0..6);
    assert!(seen.iter().map(|seen| seen.crashes).sum::<u64>() > 30, "{seen:?}");
}

#[test]
fn a_cut_network_has_one_leader_at_most() {
    let seen = runs(CUTS, 0..6);
    assert!(seen.iter().map(|seen| seen.leaders).sum::<u64>() > 12, "{seen:?}");
}

#[test]
fn leadership_that_is_handed_over_takes_nothing_back() {
    let seen = runs(HANDED, 0..6);
    let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
    assert!(sum(|seen| seen.handed) > 60 && sum(|seen| seen.leaders) > 60, "{seen:?}");
}

#[test]
fn who_was_away_for_long_gets_a_snapshot() {
    let seen = runs(SHORT, 0..6);
    let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
    assert!(sum(|seen| seen.restored) > 3 && sum(|seen| seen.cuts) > 20, "{seen:?}");
    assert!(sum(|seen| seen.pieces) > 20 && sum(|seen| seen.interrupted) > 3, "{seen:?}");
    // Of every transfer at most two pieces and a record, however many records there are.
    let held = seen.iter().map(|seen| seen.held).max().unwrap_or_default();
    assert!(held > 0 && held <= 3 * (2 * PIECE + 2 * 16 + 8), "{seen:?}");
}

#[test]
fn entries_of_several_records_survive_cuts_and_restarts() {
    let seen = runs(LONG, 0..12);
    let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
    assert!(sum(|seen| seen.cuts) > 40 && sum(|seen| seen.restarts) > 100, "{seen:?}");
}

#[test]
fn members_come_and_go_and_lose_their_pools() {
    let seen = runs(MEMBERS, 0..6);
    let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
    assert!(sum(|seen| seen.changes) > 20 && sum(|seen| seen.lost) > 3, "{seen:?}");
}

#[test]
fn who_has_no_room_waits_and_the_others_go_on() {
    for plan in [FULL, Plan { full: 60, ..MEMBERS }] {
        let seen = runs(plan, 0..6);
        let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
        assert!(sum(|seen| seen.refused) > 200 && sum(|seen| seen.answered) > 600, "{seen:?}");
    }
}

#[test]
fn whose_log_has_no_room_is_silent_until_there_is() {
    let crashes = Plan { crash: 400, partition: 800, ..CALM };
    for plan in [crashes, SHORT, MEMBERS] {
        let plan = Plan { full_log: 300, steps: 12_000, ..plan };
        let seen = runs(plan, 0..8);
        let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
        assert!(sum(|seen| seen.silent) > 200 && sum(|seen| seen.resumed) > 60, "{seen:?}");
        assert!(sum(|seen| seen.answered) > 600, "{seen:?}");
    }
}

#[test]
fn whose_state_cannot_be_made_durable_goes_on_and_keeps_its_log() {
    for plan in [SHORT, MEMBERS] {
        let plan = Plan { full_state: 100, ..plan };
        let seen = runs(plan, 0..6);
        let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
        assert!(sum(|seen| seen.postponed) > 100 && sum(|seen| seen.cuts) > 20, "{seen:?}");
        assert!(sum(|seen| seen.answered) > 600, "{seen:?}");
    }
}

#[test]
fn a_log_that_is_cut_without_room_for_the_state_is_caught() {
    is_caught(Wrong::CutUndurable, Plan { full_state: 40, ..SHORT });
}

#[test]
fn entries_that_are_told_without_room_for_them_are_caught() {
    is_caught(Wrong::ToldUnwritten, Plan { full_log: 60, ..CRASHES });
}

fn is_caught(wrong: Wrong, plan: Plan) {
    let caught = (0..40).any(|seed| run(seed, plan, Some(wrong)).is_err());
    assert!(caught, "{wrong:?}: not noticed");
}

#[test]
fn messages_that_tell_early_are_caught() {
    is_caught(Wrong::ToldEarly, CRASHES);
}

#[test]
fn reads_of_a_leader_that_is_none_are_caught() {
    is_caught(Wrong::ReadUnconfirmed, CUTS);
}

#[test]
fn a_log_that_is_cut_early_is_caught() {
    is_caught(Wrong::CutEarly, SHORT);
}

#[test]
fn a_snapshot_that_counts_early_is_caught() {
    is_caught(Wrong::SwitchedEarly, SHORT);
}

#[test]
fn a_piece_of_a_snapshot_that_counts_twice_is_caught() {
    is_caught(Wrong::PieceTwice, SHORT);
}

#[test]
fn a_forgotten_configuration_is_caught() {
    is_caught(Wrong::ConfigurationForgotten, MEMBERS);
}
