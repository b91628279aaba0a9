//! Instructions: the only flushes, fences, non-temporal stores and vector reads of the workspace.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::cell::PmU64;
use crate::mode::FlushInstruction;

#[cfg(target_arch = "x86_64")]
mod x86_64;

/// Writes back the line at address `line`, which must be one that `words` touches.
#[inline(always)]
pub(crate) fn flush_line(instruction: FlushInstruction, words: &[PmU64], line: usize) {
    debug_assert!(line < words.as_ptr_range().end.addr());
    #[cfg(target_arch = "x86_64")]
    x86_64::flush_line(instruction, words, line);
}

/// Orders every earlier store and flush of this thread before every later one.
#[inline(always)]
pub(crate) fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    x86_64::sfence();
}

/// The best flush instruction of this CPU.
pub(crate) fn best_flush() -> FlushInstruction {
    #[cfg(target_arch = "x86_64")]
    return x86_64::best_flush();
}

/// Copies words out: relaxed loads, then an acquire fence.
#[inline(always)]
pub(crate) fn read_words(src: &[PmU64], dst: &mut [u64]) {
    for (cell, out) in src.iter().zip(dst) {
        *out = cell.atomic().load(Relaxed);
    }
    core::sync::atomic::fence(Acquire);
}

/// Which bytes of up to 8 words equal `byte`.
#[inline(always)]
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
    core::sync::atomic::fence(Acquire);
    mask
}
