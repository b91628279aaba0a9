//! Any other 64-bit CPU: no instruction that writes a cache line back is known.
//!
//! Pools in files work, in `Msync` and `Process` mode; persistent memory is treated as an ordinary
//! file (its file system writes back the lines of dirty pages), and cannot be emulated.

use core::sync::atomic::Ordering::SeqCst;
use std::sync::OnceLock;
use std::time::Instant;

use crate::cell::PmU64;
use crate::mode::FlushInstruction;

#[inline(always)]
pub(super) fn flush_line(_instruction: FlushInstruction, _words: &[PmU64], _line: usize) {}

#[inline(always)]
pub(super) fn store_fence() {
    core::sync::atomic::fence(SeqCst);
}

pub(super) fn has_flush(_instruction: FlushInstruction) -> bool {
    false
}

pub(super) fn best_flush() -> FlushInstruction {
    FlushInstruction::Unknown
}

#[inline(always)]
pub(super) fn prefetch_read(_address: *const u8) {}

#[inline(always)]
pub(super) fn prefetch_write(_address: *const u8) {}

pub(super) fn ticks() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let nanos = START.get_or_init(Instant::now).elapsed().as_nanos();
    u64::try_from(nanos).unwrap_or(u64::MAX)
}
