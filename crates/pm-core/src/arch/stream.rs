//! Write-back, fence, prefetch and non-temporal stores, one interface for all architectures.

use crate::cell::PmU64;
use crate::mode::FlushInstruction;

#[cfg(target_arch = "x86_64")]
use super::x86_64::flush as isa;

/// Writes back the line at address `line`, which must be one that `words` touches.
#[inline(always)]
pub(crate) fn flush_line(instruction: FlushInstruction, words: &[PmU64], line: usize) {
    debug_assert!(line < words.as_ptr_range().end.addr());
    isa::flush_line(instruction, words, line);
}

/// Orders every earlier store and flush of this thread before every later one.
#[inline(always)]
pub(crate) fn store_fence() {
    isa::store_fence();
}

/// The best flush instruction of this CPU.
pub(crate) fn best_flush() -> FlushInstruction {
    isa::best_flush()
}

/// Fetches the line at `address` for reading. Any address is allowed.
#[inline(always)]
pub(crate) fn prefetch_read(address: *const u8) {
    isa::prefetch_read(address);
}

/// Fetches the line at `address` for writing. Any address is allowed.
#[inline(always)]
pub(crate) fn prefetch_write(address: *const u8) {
    isa::prefetch_write(address);
}
