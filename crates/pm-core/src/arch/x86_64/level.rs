//! Which vector instructions this CPU has, resolved once.

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

/// Vector instruction sets, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(in crate::arch) enum Level {
    /// Plain words.
    Portable = 0,
    /// AVX2 and POPCNT.
    Avx2 = 1,
    /// AVX-512 F, BW, VL, and POPCNT.
    Avx512 = 2,
}

/// Until [`resolve`] has run, the portable variant serves: slower, never wrong.
static LEVEL: AtomicU8 = AtomicU8::new(Level::Portable as u8);

/// Finds out what the CPU has. Each medium does so when it is made.
pub(in crate::arch) fn resolve() {
    LEVEL.store(detect() as u8, Relaxed);
}

/// What the CPU has.
pub(in crate::arch) fn detect() -> Level {
    use std::arch::is_x86_feature_detected as has;
    if !has!("popcnt") || !has!("avx2") {
        Level::Portable
    } else if has!("avx512f") && has!("avx512bw") && has!("avx512vl") {
        Level::Avx512
    } else {
        Level::Avx2
    }
}

/// Whether `level` is the one in use.
#[inline(always)]
pub(in crate::arch) fn is(level: Level) -> bool {
    LEVEL.load(Relaxed) == level as u8
}
