//! Crashes at every step, with one to three threads. `cargo xtask crash --index pm-log` explores more.

#[path = "subject/transactions.rs"]
mod transactions;

use pmindex_testkit::crash::{Config, Persistency, explore};
use transactions::Transactions;

#[track_caller]
fn passes(config: &Config) {
    match explore::<Transactions>(config) {
        Ok(report) => assert!(report.states > 100, "hardly anything explored:\n{report}"),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn one_thread() {
    passes(&Config::new().states(4000));
}

#[test]
fn two_threads() {
    passes(&Config::new().states(3000).threads(2).ops(4).setup(12));
}

#[test]
fn three_threads_and_one_slot() {
    passes(&Config::new().states(3000).threads(3).ops(3).setup(12).slots(Some(1)));
}

#[test]
fn persistent_caches() {
    passes(&Config::new().states(1500).persistency(Persistency::Eadr));
}

#[test]
fn pages_written_back() {
    passes(&Config::new().states(1500).persistency(Persistency::Pages));
}
