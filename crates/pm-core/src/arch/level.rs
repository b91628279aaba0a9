//! The vector instructions of this CPU.

/// Vector instruction sets, weakest first.
///
/// Each medium keeps the level it detected, on the line of its other constants: dispatch is a load from a
/// line that every access uses, and a predicted branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "levels of x86-64"))]
pub(crate) enum Level {
    /// Plain words.
    Portable,
    /// AVX2 and POPCNT.
    Avx2,
    /// AVX-512 F, BW, VL, and POPCNT.
    Avx512,
}

impl Level {
    /// Detects the CPU's level.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("popcnt") && has!("avx2") {
                return if has!("avx512f") && has!("avx512bw") && has!("avx512vl") {
                    Self::Avx512
                } else {
                    Self::Avx2
                };
            }
        }
        Self::Portable
    }
}
