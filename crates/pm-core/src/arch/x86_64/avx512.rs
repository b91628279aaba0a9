//! Bulk reads with AVX-512 (F, BW, VL). Only called when the CPU's level says so.
//!
//! Every block names `zmm16` and above and mask registers in its text and declares them clobbered,
//! so that it needs no target feature and is inlined into code for any x86-64.

use core::arch::asm;
use core::cmp::Ordering;
use core::sync::atomic::Ordering::Relaxed;

use crate::cell::PmU64;

/// Returns the lowest `n` bits; `n` is 1 to 64.
#[inline(always)]
const fn ones(n: usize) -> u64 {
    u64::MAX >> (64 - n)
}

#[inline(always)]
pub(in crate::arch) fn read_words(src: &[PmU64], dst: &mut [u64]) {
    let count = src.len().min(dst.len());
    let (mut from, mut to) = (src.as_ptr(), dst.as_mut_ptr());
    for _ in 0..count / 8 {
        // SAFETY: 64 bytes at `from` and at `to` are in `src` and `dst`; `dst` is exclusively
        // ours. The read of racing words is what the block stands for.
        unsafe {
            asm!(
                "vmovdqu64 zmm16, [{from}]",
                "vmovdqu64 [{to}], zmm16",
                from = in(reg) from, to = in(reg) to, out("xmm16") _,
                options(nostack, preserves_flags)
            );
        }
        from = from.wrapping_add(8);
        to = to.wrapping_add(8);
    }
    if !count.is_multiple_of(8) {
        // SAFETY: as above, for the `count % 8` words that the mask enables.
        unsafe {
            asm!(
                "kmovd k1, {mask:e}",
                "vmovdqu64 zmm16{{k1}}{{z}}, [{from}]",
                "vmovdqu64 [{to}]{{k1}}, zmm16",
                from = in(reg) from, to = in(reg) to, mask = in(reg) ones(count % 8),
                out("xmm16") _, out("k1") _,
                options(nostack, preserves_flags)
            );
        }
    }
}

#[inline(always)]
pub(in crate::arch) fn match_byte(src: &[PmU64], byte: u8) -> u64 {
    let count = src.len().min(8);
    if count == 0 {
        return 0;
    }
    let start = src.as_ptr().cast::<u8>();
    if count == 8 {
        return match_line(start, byte);
    }
    // A vector that reaches into the next line would fetch it, though masked: if the words are all
    // in one line, load that line.
    let mask = ones(8 * count);
    let shift = start.addr() % 64;
    if shift + 8 * count <= 64 {
        match_masked(start.wrapping_sub(shift), byte, mask << shift) >> shift
    } else {
        match_masked(start, byte, mask)
    }
}

/// Returns a mask of the 64 bytes at `start` that equal `byte`.
#[inline(always)]
fn match_line(start: *const u8, byte: u8) -> u64 {
    let result: u64;
    // SAFETY: the caller passes the start of 8 pool words; their racing read is what the block
    // stands for.
    unsafe {
        asm!(
            "vpbroadcastb zmm16, {byte:e}",
            "vpcmpeqb k1, zmm16, [{start}]",
            "kmovq {result}, k1",
            start = in(reg) start, byte = in(reg) u32::from(byte), result = lateout(reg) result,
            out("xmm16") _, out("k1") _,
            options(nostack, preserves_flags, readonly)
        );
    }
    result
}

/// Returns a mask of the bytes at `start`, among those that `mask` selects, that equal `byte`.
#[inline(always)]
fn match_masked(start: *const u8, byte: u8, mask: u64) -> u64 {
    let result: u64;
    // SAFETY: as above, for the bytes that the mask enables; the others are not accessed.
    unsafe {
        asm!(
            "vpbroadcastb zmm16, {byte:e}",
            "kmovq k1, {mask}",
            "vpcmpeqb k1{{k1}}, zmm16, [{start}]",
            "kmovq {result}, k1",
            start = in(reg) start, byte = in(reg) u32::from(byte), mask = in(reg) mask,
            result = lateout(reg) result, out("xmm16") _, out("k1") _,
            options(nostack, preserves_flags, readonly)
        );
    }
    result
}

/// The predicate of `vpcmpuq`, with the probe on the left and the stored word on the right.
const EQUAL: u8 = 0;
/// `vpcmpuq`'s predicate "the probe is greater than the stored word".
const GREATER: u8 = 6;

/// Returns a mask of the words, up to 64, that stand in the relation to `probe`.
#[inline(always)]
fn compare<const RELATION: u8>(src: &[PmU64], probe: u64) -> u64 {
    let count = src.len().min(64);
    let start = src.as_ptr();
    let (mut at, mut mask) = (0, 0);
    while at + 16 <= count {
        mask |= compare16::<RELATION>(start.wrapping_add(at), probe) << at;
        at += 16;
    }
    // The last 8 words, which may overlap those before: no mask to load.
    let last = count.wrapping_sub(8);
    if at == count {
        return mask;
    } else if count < 8 {
        return compare8::<RELATION>(start, probe, ones(count));
    } else if at + 8 < count {
        let (low, high) =
            compare_two::<RELATION>(start.wrapping_add(at), start.wrapping_add(last), probe);
        mask |= low << at | high << last;
    } else {
        mask |= compare8::<RELATION>(start.wrapping_add(last), probe, 0xff) << last;
    }
    mask
}

/// Returns a mask of the 16 words at `start` that stand in the relation to `probe`.
#[inline(always)]
fn compare16<const RELATION: u8>(start: *const PmU64, probe: u64) -> u64 {
    let result: u64;
    // SAFETY: the caller passes the start of 16 pool words; their racing read is what the block
    // stands for.
    unsafe {
        asm!(
            "vpbroadcastq zmm16, {probe}",
            "vpcmpuq k1, zmm16, [{start}], {relation}",
            "vpcmpuq k2, zmm16, [{start} + 64], {relation}",
            "kunpckbw k1, k2, k1",
            "kmovd {result:e}, k1",
            start = in(reg) start, probe = in(reg) probe, relation = const RELATION,
            result = lateout(reg) result, out("xmm16") _, out("k1") _, out("k2") _,
            options(nostack, preserves_flags, readonly)
        );
    }
    result
}

/// Returns a mask of the 8 words at `low` and the 8 at `high` that stand in the relation to `probe`.
#[inline(always)]
fn compare_two<const RELATION: u8>(
    low: *const PmU64,
    high: *const PmU64,
    probe: u64,
) -> (u64, u64) {
    let (masks, masks_high): (u64, u64);
    // SAFETY: as above, for both groups of 8 words.
    unsafe {
        asm!(
            "vpbroadcastq zmm16, {probe}",
            "vpcmpuq k1, zmm16, [{low}], {relation}",
            "vpcmpuq k2, zmm16, [{high}], {relation}",
            "kmovd {masks:e}, k1",
            "kmovd {masks_high:e}, k2",
            low = in(reg) low, high = in(reg) high, probe = in(reg) probe,
            relation = const RELATION,
            masks = lateout(reg) masks, masks_high = lateout(reg) masks_high,
            out("xmm16") _, out("k1") _, out("k2") _,
            options(nostack, preserves_flags, readonly)
        );
    }
    (masks, masks_high)
}

/// Returns a mask of the words at `start`, among those that `mask` selects, that stand in the relation to
/// `probe`.
#[inline(always)]
fn compare8<const RELATION: u8>(start: *const PmU64, probe: u64, mask: u64) -> u64 {
    let result: u64;
    // SAFETY: as above, for the words that the mask enables; the others are not accessed.
    unsafe {
        asm!(
            "vpbroadcastq zmm16, {probe}",
            "kmovd k1, {mask:e}",
            "vpcmpuq k1{{k1}}, zmm16, [{start}], {relation}",
            "kmovd {result:e}, k1",
            start = in(reg) start, probe = in(reg) probe, mask = in(reg) mask,
            relation = const RELATION,
            result = lateout(reg) result, out("xmm16") _, out("k1") _,
            options(nostack, preserves_flags, readonly)
        );
    }
    result
}

#[inline(always)]
pub(in crate::arch) fn match_word(src: &[PmU64], word: u64) -> u64 {
    compare::<EQUAL>(src, word)
}

#[inline(always)]
pub(in crate::arch) fn match_less(src: &[PmU64], bound: u64) -> u64 {
    compare::<GREATER>(src, bound)
}

#[inline(always)]
pub(in crate::arch) fn count_less(src: &[PmU64], bound: u64) -> usize {
    let mut total = 0;
    for chunk in src.chunks(64) {
        total += popcnt(compare::<GREATER>(chunk, bound));
    }
    total as usize
}

/// Counts the bits that are set, in one instruction whatever the build's target.
#[inline(always)]
fn popcnt(mask: u64) -> u64 {
    let result: u64;
    // SAFETY: POPCNT reads and writes registers only.
    unsafe {
        asm!("popcnt {0}, {1}", lateout(reg) result, in(reg) mask, options(nostack, nomem, pure));
    }
    result
}

pub(in crate::arch) fn cmp_prefix(src: &[PmU64], probe: &[u8]) -> Ordering {
    for (cells, bytes) in src.chunks(8).zip(probe.chunks(64)) {
        let enabled = bytes.len().min(8 * cells.len());
        let different: u64;
        // SAFETY: the mask enables bytes that `cells` and `bytes` both have; the others are not
        // accessed. The racing read of the cells is what the block stands for.
        unsafe {
            asm!(
                "kmovq k1, {mask}",
                "vmovdqu8 zmm16{{k1}}{{z}}, [{bytes}]",
                "vpcmpub k1{{k1}}, zmm16, [{cells}], 4",
                "kmovq {different}, k1",
                mask = in(reg) ones(enabled), bytes = in(reg) bytes.as_ptr(),
                cells = in(reg) cells.as_ptr(), different = lateout(reg) different,
                out("xmm16") _, out("k1") _,
                options(nostack, preserves_flags, readonly)
            );
        }
        if different != 0 {
            let first = different.trailing_zeros() as usize;
            let word = cells[first / 8].atomic().load(Relaxed);
            return word.to_le_bytes()[first % 8].cmp(&bytes[first]);
        }
    }
    Ordering::Equal
}
