//! AArch64: DC CVADP, DC CVAP, DC CVAC, DSB, PRFM.
//!
//! The cache operations are spelled as system instructions, so that they need no target feature.
//! Same-line order is not assumed: [`Medium::store`](crate::Medium::store) is a store-release, the
//! barrier between a record and its commit word.

use core::arch::asm;
use std::arch::is_aarch64_feature_detected as has;

use crate::cell::PmU64;
use crate::mode::FlushInstruction;

#[inline(always)]
pub(super) fn flush_line(instruction: FlushInstruction, words: &[PmU64], line: usize) {
    let address = words.as_ptr().with_addr(line);
    match instruction {
        // SAFETY: cleans a cache line and changes no memory or register; the line is one that
        // `words` touches, so the address is mapped. No `nomem`: stores stay before it.
        FlushInstruction::DcCvadp => unsafe {
            asm!("sys #3, c7, c13, #1, {0}", in(reg) address, options(nostack, preserves_flags));
        },
        // SAFETY: as above, to the point of persistence.
        FlushInstruction::DcCvap => unsafe {
            asm!("sys #3, c7, c12, #1, {0}", in(reg) address, options(nostack, preserves_flags));
        },
        // SAFETY: as above, to the point of coherency: all a CPU without persistence has.
        _ => unsafe {
            asm!("sys #3, c7, c10, #1, {0}", in(reg) address, options(nostack, preserves_flags));
        },
    }
}

#[inline(always)]
pub(super) fn store_fence() {
    // SAFETY: waits for stores and cache maintenance; changes no memory or register.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) }
}

pub(super) fn has_flush(instruction: FlushInstruction) -> bool {
    match instruction {
        FlushInstruction::DcCvadp => has!("dpb2"),
        FlushInstruction::DcCvap => has!("dpb"),
        FlushInstruction::DcCvac => true,
        _ => false,
    }
}

pub(super) fn best_flush() -> FlushInstruction {
    if has_flush(FlushInstruction::DcCvadp) {
        FlushInstruction::DcCvadp
    } else if has_flush(FlushInstruction::DcCvap) {
        FlushInstruction::DcCvap
    } else {
        FlushInstruction::DcCvac
    }
}

#[inline(always)]
pub(super) fn prefetch_read(address: *const u8) {
    // SAFETY: a prefetch is a hint: it changes no register or memory and never faults.
    unsafe {
        asm!("prfm pldl1keep, [{0}]", in(reg) address.addr(), options(nostack, nomem, preserves_flags));
    }
}

#[inline(always)]
pub(super) fn prefetch_write(address: *const u8) {
    // SAFETY: as above.
    unsafe {
        asm!("prfm pstl1keep, [{0}]", in(reg) address.addr(), options(nostack, nomem, preserves_flags));
    }
}

pub(super) fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: reads the virtual counter, which user code may.
    unsafe { asm!("mrs {0}, cntvct_el0", out(reg) ticks, options(nostack, nomem, preserves_flags)) }
    ticks
}
