//! Hostile pool files: the fuzzer chooses a kind of index and the damage to its image.
//!
//! See `tests/hostile`: `corpus.rs` for what bytes mean, `attack.rs` for what is done with the image.
#![no_main]
#![forbid(unsafe_code)]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pmindex_hostile::{Target, carry_out};

static TARGETS: LazyLock<Vec<Target>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a folder");
    let targets = Target::all(dir.path());
    for target in &targets {
        assert!(target.is_sound(), "{}", target.name);
    }
    targets
});

fuzz_target!(|bytes: &[u8]| carry_out(&TARGETS, bytes));
