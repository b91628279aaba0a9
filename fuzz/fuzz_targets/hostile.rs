//! Hostile pool files: the fuzzer chooses a kind of index and the damage to its image.
//!
//! The first byte chooses the target, the second whether checksums are put right; each ten after
//! them are one damage. See `tests/hostile/attack.rs` for what is done with the image.
#![no_main]
#![forbid(unsafe_code)]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pmindex_hostile::{Damage, How, Target};

static TARGETS: LazyLock<Vec<Target>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a folder");
    let targets = Target::all(dir.path());
    for target in &targets {
        assert!(target.is_sound(), "{}", target.name);
    }
    targets
});

fn damage(bytes: &[u8; 10]) -> Damage {
    let [a, b, kind, rest @ ..] = *bytes;
    let at = u32::from(u16::from_le_bytes([a, b]));
    let [c, d, e, ..] = rest;
    let other = u32::from(u16::from_le_bytes([c, d]));
    let how = match kind % 6 {
        0 => How::Flip(c),
        1 => How::Set(u64::from_le_bytes([c, d, e, rest[3], rest[4], rest[5], rest[6], 0])),
        2 => How::Set(u64::from(other)),
        3 => How::CopyOf(other),
        4 => How::PointTo(other),
        _ => How::Add(c.cast_signed()),
    };
    Damage { at, how }
}

fuzz_target!(|bytes: &[u8]| {
    let [which, forge, damages @ ..] = bytes else { return };
    let target = &TARGETS[usize::from(*which) % TARGETS.len()];
    let damages: Vec<Damage> = damages.as_chunks().0.iter().take(12).map(damage).collect();
    if target.words() > 0 {
        target.attack(&damages, forge & 1 == 1);
    }
});
