//! Crashes at every step, with one to three threads.

#[path = "subjects/mod.rs"]
mod subjects;

use pmindex_testkit::attack::attack;
use pmindex_testkit::crash::{Config, CrashSubject, Persistency, explore};
use subjects::blocks::Blocks;
use subjects::list::Linked;
use subjects::words::Words;

#[track_caller]
fn passes<S: CrashSubject>(config: &Config) {
    match explore::<S>(config) {
        Ok(report) => assert!(report.states > 100, "hardly anything explored:\n{report}"),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn words_one_thread() {
    passes::<Words>(&Config::new().states(5000));
}

#[test]
fn words_two_threads() {
    passes::<Words>(&Config::new().states(5000).threads(2).ops(3).setup(6));
}

#[test]
fn words_three_threads() {
    passes::<Words>(&Config::new().states(5000).threads(3).ops(2).setup(6));
}

/// Enough operations that each thread settles its own several times, and the horizon follows.
#[test]
fn words_of_threads_that_settle_their_own() {
    passes::<Words>(&Config::new().states(5000).threads(2).ops(12).setup(0));
    passes::<Words>(&Config::new().states(5000).threads(3).ops(8).setup(0));
}

#[test]
fn words_with_persistent_caches() {
    passes::<Words>(&Config::new().states(2000).persistency(Persistency::Eadr));
    passes::<Words>(&Config::new().states(2000).threads(2).persistency(Persistency::Eadr));
}

#[test]
fn words_written_back_by_pages() {
    passes::<Words>(&Config::new().states(2000).persistency(Persistency::Pages));
    passes::<Words>(&Config::new().states(2000).threads(2).persistency(Persistency::Pages));
}

#[test]
fn blocks_one_thread() {
    passes::<Blocks>(&Config::new().states(5000));
}

#[test]
fn blocks_two_threads() {
    passes::<Blocks>(&Config::new().states(5000).threads(2).ops(3).setup(6));
}

/// Enough states for the plans that are written by hand.
#[test]
fn blocks_by_plan() {
    passes::<Blocks>(&Config::new().states(9000).threads(2));
}

#[test]
fn blocks_three_threads() {
    passes::<Blocks>(&Config::new().states(5000).threads(3).ops(2).setup(6));
}

#[test]
fn blocks_of_threads_that_settle_their_own() {
    passes::<Blocks>(&Config::new().states(100_000).threads(2).ops(10).setup(0));
    passes::<Blocks>(&Config::new().states(100_000).threads(3).ops(6).setup(0));
}

#[test]
fn the_list_of_the_examples() {
    passes::<Linked>(&Config::new().states(5000));
    passes::<Linked>(&Config::new().states(5000).threads(2).ops(3).setup(6));
    passes::<Linked>(&Config::new().states(5000).threads(3).ops(2).setup(6));
}

/// Runs the directed plans, which small explorations leave out: descriptors are used again after their
/// publication was interrupted.
#[test]
fn blocks_in_descriptors_that_are_used_again() {
    passes::<Blocks>(&Config::new().states(120_000));
}

/// A word of the pool is damaged, operations go on, and the power fails.
#[track_caller]
fn withstands<S: CrashSubject>() {
    let attacked = attack::<S>(1500, 1).expect("nothing is wrong without damage");
    assert!(attacked.broken.is_empty(), "{attacked}");
    assert!(attacked.noticed > attacked.tried / 20, "{attacked}");
}

#[test]
fn words_withstand_attacks() {
    withstands::<Words>();
}

#[test]
fn blocks_withstand_attacks() {
    withstands::<Blocks>();
}
