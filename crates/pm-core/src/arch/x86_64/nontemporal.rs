//! MOVNTI and VMOVNTDQ. Weakly ordered: only a fence orders them with anything.

use core::arch::asm;
use core::arch::x86_64::__cpuid;

use crate::cell::PmU64;

/// Stores one word, aligned and therefore whole.
#[inline(always)]
pub(in crate::arch) fn store_word(cell: &PmU64, word: u64) {
    // SAFETY: an aligned 8-byte store to a cell, which racing threads access atomically too.
    unsafe {
        asm!("movnti [{cell}], {word}", cell = in(reg) cell.atomic().as_ptr(), word = in(reg) word,
            options(nostack, preserves_flags));
    }
}

/// Stores one line; `cells` are aligned to it. Needs AVX-512.
#[inline(always)]
pub(in crate::arch) fn store_line(cells: &[PmU64; 8], words: &[u64; 8]) {
    debug_assert_eq!(cells.as_ptr().addr() % 64, 0);
    // SAFETY: reads 64 private bytes and stores the 8 cells of an aligned line, each lane whole.
    unsafe {
        asm!(
            "vmovdqu64 zmm16, [{words}]",
            "vmovntdq [{cells}], zmm16",
            words = in(reg) words.as_ptr(), cells = in(reg) cells[0].atomic().as_ptr(),
            out("xmm16") _, options(nostack, preserves_flags)
        );
    }
}

/// AMD combines a non-temporal word into memory faster than it flushes a line; Intel does not.
pub(in crate::arch) fn streams_words() -> bool {
    #[allow(unused_unsafe, reason = "a safe function in newer Rust")]
    // SAFETY: every x86-64 has CPUID.
    let vendor = unsafe { __cpuid(0) };
    [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD"
}
