//! A partition crashed in the simulator, with the right steps and with wrong ones.

use pmindex_testkit::crash::{Config, CrashSubject, explore};

use crate::Options;
use crate::wrong::Wrong;

/// What `cargo xtask crash --index rstore` crashes.
#[path = "../../../../tests/crash/rstore.rs"]
mod rstore;

use rstore::{Partitioned, Right, Variant};

const WRONG: [(Wrong, &str); 9] = [
    (Wrong::VoidedEarly, "a block is free before the copies of its records are durable"),
    (Wrong::NewestByPlace, "recovery takes the last version that it reads"),
    (Wrong::NoTombstones, "tombstones are dropped at once"),
    (
        Wrong::SameGeneration,
        "blocks are used anew with the generation and the length that they had",
    ),
    (Wrong::CutEarly, "the log is cut before the blocks are durable"),
    (Wrong::LargeLate, "a large value is durable after its record in the log"),
    (Wrong::LargeFreedEarly, "a large value is freed before what replaces it is durable"),
    (Wrong::VoidedUncommitted, "a block is void before the writes are durable that emptied it"),
    (Wrong::BatchInParts, "each key of a batch has a record of the log"),
];

// No explored state shows 2 and 7: a removed key comes back only if its older version outlives two collections, and
// a block that emptied by itself is seldom collected before the commit that emptied it.
/// One of the [`WRONG`].
struct Goes<const WRONG_STEP: usize>;

impl<const WRONG_STEP: usize> Variant for Goes<WRONG_STEP> {
    fn vary(options: Options) -> Options {
        options.go_wrong(WRONG[WRONG_STEP].0)
    }
}

fn crash<S: CrashSubject>(seed: u64, states: u64) -> Result<u64, String> {
    let config = Config::new().seed(seed).states(states).threads(1);
    match explore::<S>(&config) {
        Ok(report) => Ok(report.states),
        Err(failure) => Err(failure.to_string()),
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash() {
    let states =
        crash::<Partitioned<Right>>(3, 5_000).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(states >= 5_000, "{states}");
}

fn is_caught<const WRONG_STEP: usize>() {
    let caught = (1..=4).any(|seed| crash::<Partitioned<Goes<WRONG_STEP>>>(seed, 8_000).is_err());
    assert!(caught, "{}: not noticed", WRONG[WRONG_STEP].1);
}

#[test]
fn wrong_collection_is_caught() {
    is_caught::<0>();
    is_caught::<3>();
}

#[test]
fn wrong_order_of_versions_is_caught() {
    is_caught::<1>();
}

#[test]
fn a_wrong_log_is_caught() {
    is_caught::<4>();
    is_caught::<8>();
}

#[test]
fn wrong_large_values_are_caught() {
    is_caught::<5>();
    is_caught::<6>();
}
