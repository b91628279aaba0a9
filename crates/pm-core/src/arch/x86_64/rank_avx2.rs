//! Ranks with AVX2, on private memory only. Only called when the CPU's level says so.

use core::arch::x86_64::{
    _mm256_cmpgt_epi32, _mm256_loadu_si256, _mm256_set1_epi32, _mm256_setzero_si256,
    _mm256_storeu_si256, _mm256_sub_epi32,
};

use crate::arch::rank::{MOST, cut};

/// The lanes of a vector.
const VECTOR: usize = 8;
/// The vectors in which keys are counted at a time: a comparison with one hides that with the other.
const BOTH: usize = 2;

/// See `portable`.
pub(in crate::arch) fn ranks(keys: &[u64; MOST], count: usize) -> [u32; MOST] {
    // SAFETY: the level in use says that the CPU has AVX2.
    unsafe { counted(keys, count) }
}

#[target_feature(enable = "avx2")]
fn counted(keys: &[u64; MOST], count: usize) -> [u32; MOST] {
    let cut = cut(keys, count);
    let vectors = cut.as_chunks::<VECTOR>().0.as_chunks::<BOTH>().0;
    let mut ranks = [0; MOST];
    let counts = ranks.as_chunks_mut::<VECTOR>().0.as_chunks_mut::<BOTH>().0;
    for (group, ranks) in vectors.iter().zip(counts).take(count.div_ceil(VECTOR * BOTH)) {
        // SAFETY: 32 private bytes.
        let group =
            group.each_ref().map(|keys| unsafe { _mm256_loadu_si256(keys.as_ptr().cast()) });
        let mut counts = [_mm256_setzero_si256(); BOTH];
        for &other in &cut[..count] {
            let other = _mm256_set1_epi32(other);
            for (count, keys) in counts.iter_mut().zip(group) {
                // A lane that is greater is -1.
                *count = _mm256_sub_epi32(*count, _mm256_cmpgt_epi32(keys, other));
            }
        }
        for (ranks, count) in ranks.iter_mut().zip(counts) {
            // SAFETY: 32 private bytes.
            unsafe { _mm256_storeu_si256(ranks.as_mut_ptr().cast(), count) };
        }
    }
    ranks
}
