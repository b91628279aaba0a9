//! Fingerprint match with SSE2, which every x86-64 has: inlined where a call to the portable variant,
//! though never made, would cost every caller the registers it would have to save.

use core::arch::asm;

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
