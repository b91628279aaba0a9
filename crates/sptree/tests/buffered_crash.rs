//! Buffered SPTree crashed, everywhere: a small share of what `cargo xtask crash` explores.
//! `PMINDEX_LONG=n` explores so many times as much, and mutants.

#[path = "subjects/buffered.rs"]
mod buffered;

use pmindex_testkit::conformance::scaled;
use pmindex_testkit::crash::{Campaign, CrashSubject, Indexed};

fn holds<S: CrashSubject>() {
    let states = u64::from(scaled(15_000));
    let findings = Campaign { states, seed: 5, mutate: scaled(1) > 1 }.run::<S>();
    println!("{findings}");
    assert!(findings.hold(), "{findings}");
}

#[test]
fn words_keep_what_was_acknowledged() {
    holds::<Indexed<buffered::SpTreeBuffered>>();
}

#[test]
fn wide_records_keep_what_was_acknowledged() {
    holds::<Indexed<buffered::SpTreeBufferedWide>>();
}
