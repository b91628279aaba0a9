//! The structured log crashed, everywhere: a small share of what `cargo xtask crash` explores.

#[path = "subjects/log.rs"]
mod log;

use pmindex_testkit::crash::Campaign;

#[test]
fn log_keeps_what_was_acknowledged() {
    let findings = Campaign { states: 12_000, seed: 3, mutate: false }.run::<log::SpTreeLog>();
    assert!(findings.hold(), "{findings}");
}
