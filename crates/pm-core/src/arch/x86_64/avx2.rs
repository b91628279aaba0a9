//! Bulk reads with AVX2. Only called when the CPU's level says so.
//!
//! The blocks end with `vzeroupper`, which costs less than what legacy SSE code pays after a dirty
//! upper half; it changes every vector register, so all are declared clobbered.

use core::arch::asm;
use core::cmp::Ordering;
use core::sync::atomic::Ordering::Relaxed;

use super::baseline;
use crate::arch::portable;
use crate::cell::PmU64;

/// An `asm!` block that uses `ymm` registers.
macro_rules! avx2 {
    ([$($option:ident),*] $($body:tt)*) => {
        asm!(
            $($body)*
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, out("ymm4") _,
            out("ymm5") _, out("ymm6") _, out("ymm7") _, out("ymm8") _, out("ymm9") _,
            out("ymm10") _, out("ymm11") _, out("ymm12") _, out("ymm13") _, out("ymm14") _,
            out("ymm15") _,
            options(nostack, $($option),*)
        )
    };
}

#[inline(always)]
pub(in crate::arch) fn read_words(src: &[PmU64], dst: &mut [u64]) {
    let (cells, _) = src.as_chunks::<8>();
    let (words, _) = dst.as_chunks_mut::<8>();
    let whole = 8 * cells.len().min(words.len());
    for (cells, words) in cells.iter().zip(words) {
        // SAFETY: 64 bytes of `cells` and of `words`, which is exclusively ours. The racing read
        // is what the block stands for.
        unsafe {
            avx2!([preserves_flags]
                "vmovdqu ymm0, [{from}]",
                "vmovdqu ymm1, [{from} + 32]",
                "vmovdqu [{to}], ymm0",
                "vmovdqu [{to} + 32], ymm1",
                "vzeroupper",
                from = in(reg) cells.as_ptr(), to = in(reg) words.as_mut_ptr(),
            );
        }
    }
    baseline::read_words(&src[whole..], &mut dst[whole..]);
}

#[inline(always)]
pub(in crate::arch) fn match_byte(src: &[PmU64], byte: u8) -> u64 {
    let count = src.len().min(8);
    if count < 4 {
        return portable::match_byte(src, byte);
    }
    // The first 4 words and the last 4, which may overlap.
    let (low, high): (u64, u64);
    // SAFETY: 4 words at `low` and 4 at `high` are in `src`, which has at least 4. Their racing
    // read is what the block stands for.
    unsafe {
        avx2!([preserves_flags, readonly]
            "vmovd xmm0, {byte:e}",
            "vpbroadcastb ymm0, xmm0",
            "vpcmpeqb ymm1, ymm0, [{low}]",
            "vpcmpeqb ymm2, ymm0, [{high}]",
            "vpmovmskb {low:e}, ymm1",
            "vpmovmskb {high:e}, ymm2",
            "vzeroupper",
            byte = in(reg) u32::from(byte),
            low = inout(reg) src.as_ptr() => low,
            high = inout(reg) src.as_ptr().wrapping_add(count - 4) => high,
        );
    }
    low | high << (8 * (count - 4))
}

#[inline(always)]
pub(in crate::arch) fn match_word(src: &[PmU64], word: u64) -> u64 {
    let src = &src[..src.len().min(64)];
    let (groups, rest) = src.as_chunks::<4>();
    let rest = baseline::match_word(rest, word);
    if groups.is_empty() {
        return rest;
    }
    let mask: u64;
    // SAFETY: reads the words of `groups`, last group to first. Their racing read is what the block
    // stands for.
    unsafe {
        avx2!([readonly]
            "vmovq xmm0, {word}",
            "vpbroadcastq ymm0, xmm0",
            "2:",
            "sub {at}, 32",
            "vpcmpeqq ymm1, ymm0, [{at}]",
            "vmovmskpd {equal:e}, ymm1",
            "shl {mask}, 4",
            "or {mask}, {equal}",
            "cmp {at}, {start}",
            "jne 2b",
            "vzeroupper",
            at = inout(reg) groups.as_ptr_range().end => _, start = in(reg) groups.as_ptr(),
            word = in(reg) word, equal = out(reg) _, mask = inout(reg) 0u64 => mask,
        );
    }
    mask | rest.unbounded_shl(4 * groups.len() as u32)
}

#[inline(always)]
pub(in crate::arch) fn match_less(src: &[PmU64], bound: u64) -> u64 {
    portable::match_less(src, bound)
}

#[inline(always)]
pub(in crate::arch) fn count_less(src: &[PmU64], bound: u64) -> usize {
    let (groups, rest) = src.as_chunks::<4>();
    let rest = baseline::count_less(rest, bound);
    if groups.is_empty() {
        return rest;
    }
    let count: usize;
    // SAFETY: reads the words of `groups`. Their racing read is what the block stands for.
    unsafe {
        avx2!([readonly]
            "vmovq xmm1, {sign}", // unsigned order as signed order
            "vpbroadcastq ymm1, xmm1",
            "vmovq xmm0, {bound}",
            "vpbroadcastq ymm0, xmm0",
            "vpxor ymm0, ymm0, ymm1",
            "vpxor xmm2, xmm2, xmm2",
            "2:",
            "vpxor ymm3, ymm1, [{at}]",
            "vpcmpgtq ymm3, ymm0, ymm3",
            "vpsubq ymm2, ymm2, ymm3",
            "add {at}, 32",
            "cmp {at}, {end}",
            "jne 2b",
            "vextracti128 xmm3, ymm2, 1",
            "vpaddq xmm2, xmm2, xmm3",
            "vpshufd xmm3, xmm2, 0xee",
            "vpaddq xmm2, xmm2, xmm3",
            "vmovq {count}, xmm2",
            "vzeroupper",
            at = inout(reg) groups.as_ptr() => _, end = in(reg) groups.as_ptr_range().end,
            sign = in(reg) 1u64 << 63, bound = in(reg) bound, count = out(reg) count,
        );
    }
    count + rest
}

pub(in crate::arch) fn cmp_prefix(src: &[PmU64], probe: &[u8]) -> Ordering {
    let (words, _) = src.as_chunks::<4>();
    let (bytes, _) = probe.as_chunks::<32>();
    for (cells, bytes) in words.iter().zip(bytes) {
        let equal: u32;
        // SAFETY: 32 bytes of `cells` and of `bytes`. The racing read of the cells is what the
        // block stands for.
        unsafe {
            avx2!([preserves_flags, readonly]
                "vmovdqu ymm0, [{bytes}]",
                "vpcmpeqb ymm0, ymm0, [{cells}]",
                "vpmovmskb {equal:e}, ymm0",
                "vzeroupper",
                bytes = in(reg) bytes.as_ptr(), cells = in(reg) cells.as_ptr(),
                equal = lateout(reg) equal,
            );
        }
        if equal != u32::MAX {
            let first = equal.trailing_ones() as usize;
            let word = cells[first / 8].atomic().load(Relaxed);
            return word.to_le_bytes()[first % 8].cmp(&bytes[first]);
        }
    }
    let whole = words.len().min(bytes.len());
    portable::cmp_prefix(&src[4 * whole..], &probe[32 * whole..])
}
