//! Ranks with AVX-512, on private memory only. Only called when the CPU's level says so.

use core::arch::x86_64::{
    __m512i, _mm_cvtsi32_si128, _mm512_castsi256_si512, _mm512_cmplt_epi32_mask,
    _mm512_cvtepi64_epi32, _mm512_inserti64x4, _mm512_loadu_si512, _mm512_mask_add_epi32,
    _mm512_mask_mov_epi32, _mm512_or_si512, _mm512_reduce_or_epi64, _mm512_set1_epi32,
    _mm512_set1_epi64, _mm512_setzero_si512, _mm512_sll_epi64, _mm512_srli_epi64,
    _mm512_storeu_si512, _mm512_xor_si512,
};

use crate::arch::rank::{LANES, MOST, common_prefix};

/// See `portable`.
pub(in crate::arch) fn ranks(keys: &[u64; MOST], count: usize) -> [u32; MOST] {
    match count.div_ceil(LANES) {
        // SAFETY: the level in use says that the CPU has AVX-512 F.
        0 | 1 => unsafe { groups::<1>(keys, count) },
        // SAFETY: as above.
        2 => unsafe { groups::<2>(keys, count) },
        // SAFETY: as above.
        3 => unsafe { groups::<3>(keys, count) },
        // SAFETY: as above.
        _ => unsafe { groups::<4>(keys, count) },
    }
}

#[target_feature(enable = "avx512f")]
fn groups<const N: usize>(keys: &[u64; MOST], count: usize) -> [u32; MOST] {
    let first = _mm512_set1_epi64(keys[0].cast_signed());
    let differing = (0..2 * N).fold(_mm512_setzero_si512(), |bits, i| {
        _mm512_or_si512(bits, _mm512_xor_si512(load(keys, i), first))
    });
    let prefix = common_prefix(_mm512_reduce_or_epi64(differing).cast_unsigned());
    let shift = _mm_cvtsi32_si128(prefix.cast_signed());
    let cut = |i| {
        let key = _mm512_sll_epi64(load(keys, i), shift);
        _mm512_cvtepi64_epi32(_mm512_srli_epi64::<33>(key))
    };
    let most = _mm512_set1_epi32(i32::MAX);
    let mut group = [most; N];
    let mut others = [[0i32; LANES]; N];
    for (i, (group, others)) in group.iter_mut().zip(&mut others).enumerate() {
        let both = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(cut(2 * i)), cut(2 * i + 1));
        let used = ((1u32 << (count - LANES * i).min(LANES)) - 1) as u16;
        *group = _mm512_mask_mov_epi32(most, used, both);
        // SAFETY: 64 private bytes.
        unsafe { _mm512_storeu_si512(others.as_mut_ptr().cast(), *group) };
    }
    let one = _mm512_set1_epi32(1);
    let mut counts = [_mm512_setzero_si512(); N];
    for &other in others.as_flattened() {
        let other = _mm512_set1_epi32(other);
        for (count, group) in counts.iter_mut().zip(group) {
            *count =
                _mm512_mask_add_epi32(*count, _mm512_cmplt_epi32_mask(other, group), *count, one);
        }
    }
    let mut ranks = [0; MOST];
    for (count, ranks) in counts.iter().zip(ranks.as_chunks_mut::<LANES>().0) {
        // SAFETY: 64 private bytes.
        unsafe { _mm512_storeu_si512(ranks.as_mut_ptr().cast(), *count) };
    }
    ranks
}

/// The `i`-th group of 8 keys.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(keys: &[u64; MOST], i: usize) -> __m512i {
    let group = &keys.as_chunks::<8>().0[i];
    // SAFETY: 64 private bytes.
    unsafe { _mm512_loadu_si512(group.as_ptr().cast()) }
}
