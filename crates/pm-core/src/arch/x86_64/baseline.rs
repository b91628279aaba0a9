//! Bulk reads with the instructions that every x86-64 has, for CPUs without AVX2.
//!
//! They are small and inlined: even a call that is hardly ever made would cost every caller of a bulk read
//! the registers that it has to save for it.

use core::arch::asm;
use core::cmp::Ordering;

use crate::arch::portable;
use crate::cell::PmU64;

#[inline(always)]
pub(in crate::arch) fn match_byte(src: &[PmU64], byte: u8) -> u64 {
    let Some(line) = src.first_chunk::<8>() else {
        return less_than_a_line(src, byte);
    };
    let (low, high): (u64, u64);
    // SAFETY: `line` is 8 words. Their racing read is what the block stands for.
    unsafe {
        asm!(
            "movd xmm0, {byte:e}",
            "punpcklbw xmm0, xmm0",
            "pshuflw xmm0, xmm0, 0",
            "punpcklqdq xmm0, xmm0",
            "movdqu xmm1, [{line}]",
            "movdqu xmm2, [{line} + 16]",
            "movdqu xmm3, [{line} + 32]",
            "movdqu xmm4, [{line} + 48]",
            "pcmpeqb xmm1, xmm0",
            "pcmpeqb xmm2, xmm0",
            "pcmpeqb xmm3, xmm0",
            "pcmpeqb xmm4, xmm0",
            "pmovmskb {low:e}, xmm1",
            "pmovmskb {part:e}, xmm2",
            "shl {part:e}, 16",
            "or {low:e}, {part:e}",
            "pmovmskb {high:e}, xmm3",
            "pmovmskb {part:e}, xmm4",
            "shl {part:e}, 16",
            "or {high:e}, {part:e}",
            byte = in(reg) u32::from(byte), line = in(reg) line.as_ptr(),
            low = out(reg) low, high = out(reg) high, part = out(reg) _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
            options(nostack, readonly)
        );
    }
    low | high << 32
}

#[cold]
#[inline(never)]
fn less_than_a_line(src: &[PmU64], byte: u8) -> u64 {
    portable::match_byte(src, byte)
}

#[inline(always)]
pub(in crate::arch) fn read_words(src: &[PmU64], dst: &mut [u64]) {
    let count = src.len().min(dst.len());
    if count == 0 {
        return;
    }
    // SAFETY: `count` words of `src`, and of `dst`, which is exclusively ours. The racing read is
    // what the block stands for: its loads are the words' one by one.
    unsafe {
        asm!(
            "2:",
            "mov {word}, [{from}]",
            "mov [{to}], {word}",
            "add {from}, 8",
            "add {to}, 8",
            "cmp {from}, {end}",
            "jne 2b",
            from = inout(reg) src.as_ptr() => _, to = inout(reg) dst.as_mut_ptr() => _,
            end = in(reg) src.as_ptr().wrapping_add(count), word = out(reg) _,
            options(nostack)
        );
    }
}

#[inline(always)]
pub(in crate::arch) fn match_word(src: &[PmU64], word: u64) -> u64 {
    let src = &src[..src.len().min(64)];
    if src.is_empty() {
        return 0;
    }
    let mask: u64;
    // SAFETY: reads the words of `src`, last to first, one by one.
    unsafe {
        asm!(
            "2:",
            "sub {at}, 8",
            "xor {equal:e}, {equal:e}",
            "cmp [{at}], {word}",
            "sete {equal:l}",
            "lea {mask}, [{equal} + 2 * {mask}]",
            "cmp {at}, {start}",
            "jne 2b",
            at = inout(reg) src.as_ptr_range().end => _, start = in(reg) src.as_ptr(),
            word = in(reg) word, equal = out(reg) _, mask = inout(reg) 0u64 => mask,
            options(nostack, readonly)
        );
    }
    mask
}

#[inline(always)]
pub(in crate::arch) fn match_less(src: &[PmU64], bound: u64) -> u64 {
    portable::match_less(src, bound)
}

#[inline(always)]
pub(in crate::arch) fn count_less(src: &[PmU64], bound: u64) -> usize {
    if src.is_empty() {
        return 0;
    }
    let count: usize;
    // SAFETY: reads the words of `src` one by one.
    unsafe {
        asm!(
            "2:",
            "cmp [{at}], {bound}",
            "adc {count}, 0", // borrow: the word is below
            "add {at}, 8",
            "cmp {at}, {end}",
            "jne 2b",
            at = inout(reg) src.as_ptr() => _, end = in(reg) src.as_ptr_range().end,
            bound = in(reg) bound, count = inout(reg) 0usize => count,
            options(nostack, readonly)
        );
    }
    count
}

#[cold]
#[inline(never)]
pub(in crate::arch) fn cmp_prefix(src: &[PmU64], probe: &[u8]) -> Ordering {
    portable::cmp_prefix(src, probe)
}
