//! Which vector instructions this CPU has, resolved once.

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

/// Vector instruction sets, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Level {
    /// Plain words.
    Portable = 0,
    /// AVX2 and POPCNT.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "an x86-64 level"))]
    Avx2 = 1,
    /// AVX-512 F, BW, VL, and POPCNT.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "an x86-64 level"))]
    Avx512 = 2,
}

/// Until [`resolve`] has run, the portable variant serves: slower, never wrong.
static LEVEL: AtomicU8 = AtomicU8::new(Level::Portable as u8);

/// Finds out what the CPU has. Each medium does so when it is made.
pub(crate) fn resolve() {
    LEVEL.store(detect() as u8, Relaxed);
}

/// What the CPU has.
pub(crate) fn detect() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("popcnt") && has!("avx2") {
            return if has!("avx512f") && has!("avx512bw") && has!("avx512vl") {
                Level::Avx512
            } else {
                Level::Avx2
            };
        }
    }
    Level::Portable
}

/// Whether `level` is the one in use.
#[inline(always)]
pub(crate) fn is(level: Level) -> bool {
    LEVEL.load(Relaxed) == level as u8
}
