//! Bulk accesses by their definition: relaxed loads and stores of words.

use core::cmp::Ordering;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::fence;

use crate::cell::{PmU64, short_word};

pub(crate) fn read_words(src: &[PmU64], dst: &mut [u64]) {
    for (cell, out) in src.iter().zip(dst) {
        *out = cell.atomic().load(Relaxed);
    }
}

pub(crate) fn match_byte(src: &[PmU64], byte: u8) -> u64 {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const SEVEN: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let pattern = LOW * u64::from(byte);
    let mut mask = 0;
    for (i, cell) in src.iter().take(8).enumerate() {
        let x = cell.atomic().load(Relaxed) ^ pattern;
        let zero = !(((x & SEVEN) + SEVEN) | x | SEVEN); // 0x80 in every byte that is zero
        // gather the high bits of the 8 bytes into one byte
        let bits = (zero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask |= bits << (8 * i);
    }
    mask
}

pub(crate) fn match_word(src: &[PmU64], word: u64) -> u64 {
    src.iter()
        .take(64)
        .enumerate()
        .fold(0, |mask, (i, cell)| mask | u64::from(cell.atomic().load(Relaxed) == word) << i)
}

#[inline(always)]
pub(crate) fn match_less(src: &[PmU64], bound: u64) -> u64 {
    (0..)
        .zip(src.iter().take(64))
        .fold(0, |mask, (i, cell)| mask | u64::from(cell.atomic().load(Relaxed) < bound) << i)
}

/// Returns the number of words less than `bound`.
#[inline(always)]
pub(crate) fn count_less(src: &[PmU64], bound: u64) -> usize {
    src.iter().map(|cell| usize::from(cell.atomic().load(Relaxed) < bound)).sum()
}

/// Compares the first `probe.len()` stored bytes with `probe`, word by word.
#[inline(always)]
pub(crate) fn cmp_prefix(src: &[PmU64], probe: &[u8]) -> Ordering {
    let (whole, rest) = probe.as_chunks::<8>();
    for (cell, bytes) in src.iter().zip(whole) {
        let stored = cell.atomic().load(Relaxed);
        let wanted = u64::from_le_bytes(*bytes);
        if stored != wanted {
            return stored.swap_bytes().cmp(&wanted.swap_bytes());
        }
    }
    match src.get(whole.len()) {
        Some(cell) if !rest.is_empty() => {
            let unused = 64 - 8 * rest.len(); // bits of the last word behind the string
            let stored = cell.atomic().load(Relaxed) << unused;
            stored.swap_bytes().cmp(&(short_word(rest) << unused).swap_bytes())
        }
        _ => Ordering::Equal,
    }
}

/// Copies words to `dst`, up to the shorter length: a release fence, then relaxed stores. The fence keeps the
/// stores after the lock that the writer took (see `sync::protocol`).
#[inline(always)]
pub(crate) fn write_words(dst: &[PmU64], src: &[u64]) {
    fence(Release);
    for (cell, &word) in dst.iter().zip(src) {
        cell.atomic().store(word, Relaxed);
    }
}
