//! CLWB, CLFLUSHOPT, CLFLUSH, SFENCE, prefetches.

use core::arch::asm;

use crate::cell::PmU64;
use crate::mode::FlushInstruction;

#[inline(always)]
pub(in crate::arch) fn flush_line(instruction: FlushInstruction, words: &[PmU64], line: usize) {
    let address = words.as_ptr().with_addr(line);
    if instruction == FlushInstruction::Clwb {
        // SAFETY: CLWB writes a cache line back and changes no memory or register; the line is one
        // that `words` touches, so the address is mapped. No `nomem`: it must not be moved across
        // the stores before it.
        return unsafe { asm!("clwb [{0}]", in(reg) address, options(nostack, preserves_flags)) };
    }
    crate::arch::cold_path();
    if instruction == FlushInstruction::ClflushOpt {
        // SAFETY: as above; CLFLUSHOPT also evicts the line.
        unsafe { asm!("clflushopt [{0}]", in(reg) address, options(nostack, preserves_flags)) }
    } else {
        // SAFETY: as above; CLFLUSH is ordered besides, and every x86-64 has it.
        unsafe { asm!("clflush [{0}]", in(reg) address, options(nostack, preserves_flags)) }
    }
}

#[inline(always)]
pub(in crate::arch) fn store_fence() {
    // SAFETY: SFENCE changes no memory or register. No `nomem`: stores stay before it.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}

pub(in crate::arch) fn best_flush() -> FlushInstruction {
    if has_flush(FlushInstruction::Clwb) {
        FlushInstruction::Clwb
    } else if has_flush(FlushInstruction::ClflushOpt) {
        FlushInstruction::ClflushOpt
    } else {
        FlushInstruction::Clflush
    }
}

pub(in crate::arch) fn has_flush(instruction: FlushInstruction) -> bool {
    #[allow(unused_unsafe, reason = "a safe function in newer Rust")]
    // SAFETY: every x86-64 has CPUID.
    let leaf7 = unsafe { core::arch::x86_64::__cpuid_count(7, 0) };
    match instruction {
        FlushInstruction::Clwb => leaf7.ebx & (1 << 24) != 0,
        FlushInstruction::ClflushOpt => leaf7.ebx & (1 << 23) != 0,
        FlushInstruction::Clflush => true,
        _ => false,
    }
}

#[inline(always)]
pub(in crate::arch) fn prefetch_read(address: *const u8) {
    // SAFETY: a prefetch is a hint: it changes no register or memory and never faults, whatever
    // the address.
    unsafe {
        asm!("prefetcht0 [{0}]", in(reg) address.addr(), options(nostack, nomem, preserves_flags));
    }
}

#[inline(always)]
pub(in crate::arch) fn prefetch_write(address: *const u8) {
    // SAFETY: as above; a CPU without PREFETCHW executes it as a no-op.
    unsafe {
        asm!("prefetchw [{0}]", in(reg) address.addr(), options(nostack, nomem, preserves_flags));
    }
}

pub(in crate::arch) fn ticks() -> u64 {
    // SAFETY: RDTSC reads a counter; user code may execute it on every system that runs Rust's std.
    unsafe { core::arch::x86_64::_rdtsc() }
}
