//! Racing bulk reads, dispatched to the variant for the CPU: see the module above for their meaning.

use core::cmp::Ordering;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;

use crate::cell::PmU64;

use super::level::Level;
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::x86_64::{avx2, avx512, baseline};

/// Strings up to this length are compared word by word: a vector would reach into lines that the string does
/// not touch.
const SHORT: usize = 32;

macro_rules! dispatch {
    ($level:ident, $function:ident($($arg:expr),*)) => {{
        #[cfg(target_arch = "x86_64")]
        let result = if $level == Level::Avx512 {
            avx512::$function($($arg),*)
        } else {
            crate::arch::cold_path(); // so that their registers are no matter of the first
            if $level == Level::Avx2 {
                avx2::$function($($arg),*)
            } else {
                baseline::$function($($arg),*)
            }
        };
        #[cfg(not(target_arch = "x86_64"))]
        let result = {
            let _ = $level;
            portable::$function($($arg),*)
        };
        fence(Acquire);
        result
    }};
}

/// Copies words from `src` to `dst`, up to the shorter length.
#[inline(always)]
pub(crate) fn read_words(level: Level, src: &[PmU64], dst: &mut [u64]) {
    if src.len().min(dst.len()) < 8 {
        for (cell, out) in src.iter().zip(dst) {
            *out = cell.atomic().load(Relaxed);
        }
        fence(Acquire);
    } else {
        dispatch!(level, read_words(src, dst));
    }
}

/// Returns a mask of the bytes of up to 8 words that equal `byte`.
#[inline(always)]
pub(crate) fn match_byte(level: Level, src: &[PmU64], byte: u8) -> u64 {
    dispatch!(level, match_byte(src, byte))
}

/// Returns a mask of the words, up to 64, that equal `word`.
#[inline(always)]
pub(crate) fn match_word(level: Level, src: &[PmU64], word: u64) -> u64 {
    dispatch!(level, match_word(src, word))
}

/// Returns a mask of the words, up to 64, that are less than `bound`, unsigned.
#[inline(always)]
pub(crate) fn match_less(level: Level, src: &[PmU64], bound: u64) -> u64 {
    dispatch!(level, match_less(src, bound))
}

/// Returns the number of words less than `bound`, unsigned.
#[inline(always)]
pub(crate) fn count_less(level: Level, src: &[PmU64], bound: u64) -> usize {
    dispatch!(level, count_less(src, bound))
}

/// Compares the first `len` stored bytes with `probe`, lexicographically.
#[inline(always)]
pub(crate) fn cmp_bytes(level: Level, src: &[PmU64], len: usize, probe: &[u8]) -> Ordering {
    let common = &probe[..probe.len().min(len).min(8 * src.len())];
    cmp_prefix(level, src, common).then(len.cmp(&probe.len()))
}

/// Returns `true` if the first `len` stored bytes are `probe`.
#[inline(always)]
pub(crate) fn eq_bytes(level: Level, src: &[PmU64], len: usize, probe: &[u8]) -> bool {
    len == probe.len() && len <= 8 * src.len() && cmp_prefix(level, src, probe).is_eq()
}

#[inline(always)]
fn cmp_prefix(level: Level, src: &[PmU64], probe: &[u8]) -> Ordering {
    if probe.len() <= SHORT {
        let ordering = portable::cmp_prefix(src, probe);
        fence(Acquire);
        return ordering;
    }
    dispatch!(level, cmp_prefix(src, probe))
}
