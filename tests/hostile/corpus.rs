//! Attacks as bytes, as the fuzzer makes them, and its corpus.

use crate::{Damage, How, Target};

/// One input a line, in hexadecimal. `cargo xtask fuzz` starts with them; with `--keep` it rewrites them.
const KEPT: &str = include_str!("corpus.txt");

/// Returns the checked-in inputs, which together have all the coverage that the fuzzer ever reached.
///
/// # Panics
/// If a line of the file is not hexadecimal.
pub fn kept() -> impl Iterator<Item = Vec<u8>> {
    KEPT.lines().map(|line| {
        let digits = line.as_bytes().as_chunks::<2>().0;
        let byte = |pair: &[u8; 2]| {
            let pair = str::from_utf8(pair).expect("ASCII");
            u8::from_str_radix(pair, 16).expect("hexadecimal digits")
        };
        digits.iter().map(byte).collect()
    })
}

/// Runs the attack in `bytes`: the first byte chooses the target, the second whether checksums are fixed, and
/// each ten of the others are one damage, at most twelve.
pub fn carry_out(targets: &[Target], bytes: &[u8]) {
    let [which, forge, damages @ ..] = bytes else { return };
    let target = &targets[usize::from(*which) % targets.len()];
    let damages: Vec<Damage> = damages.as_chunks().0.iter().take(12).map(damage).collect();
    if target.words() > 0 {
        target.attack(&damages, forge & 1 == 1);
    }
}

/// Where (two bytes), how (one), and seven for a number.
fn damage(bytes: &[u8; 10]) -> Damage {
    let short = |at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let mut word = [0; 8];
    word[..7].copy_from_slice(&bytes[3..]);
    let how = match bytes[2] % 6 {
        0 => How::Flip(bytes[3]),
        1 => How::Set(u64::from_le_bytes(word)),
        2 => How::Set(u64::from(short(3))),
        3 => How::CopyOf(short(3)),
        4 => How::PointTo(short(3)),
        _ => How::Add(bytes[3].cast_signed()),
    };
    Damage { at: short(0), how }
}
