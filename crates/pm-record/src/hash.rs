//! The hash of a key, which determines fingerprints and preferred slots.
//!
//! Part of the format: a stored fingerprint must match the hash of the same key in every later
//! version.

use pmindex_core::short_word;

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;

#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "both halves of the product are used")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Hashes the words of an inline key.
#[inline(always)]
#[must_use]
pub fn hash_words(words: &[u64]) -> u64 {
    words.iter().fold(0, |hash, &word| fold(hash.rotate_left(29) ^ word ^ SEED, FACTOR))
}

/// Hashes a byte-string key.
#[inline]
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = fold(bytes.len() as u64 ^ SEED, FACTOR);
    let (chunks, rest) = bytes.as_chunks::<8>();
    for chunk in chunks {
        hash = fold(hash.rotate_left(29) ^ u64::from_le_bytes(*chunk) ^ SEED, FACTOR);
    }
    if !rest.is_empty() {
        hash = fold(hash.rotate_left(29) ^ short_word(rest) ^ SEED, FACTOR);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_part_of_the_format() {
        assert_eq!(hash_words(&[0]), 0xc9d8_74ca_57d9_e055);
        assert_eq!(hash_words(&[1, 2]), 0x2ea6_b4ed_8dba_9321);
        assert_eq!(hash_bytes(b""), 0xc9d8_74ca_57d9_e055);
        assert_eq!(hash_bytes(b"fingerprint"), 0x3aa7_8556_7df3_ca64);
        assert_eq!(hash_bytes(b"seventh"), 0x15f9_1df3_6936_cdd8);
        assert_eq!(hash_bytes(b"a longer tail"), 0x5015_7035_db68_e9d1);
    }

    #[test]
    fn sequential_keys_spread_over_fingerprints_and_slots() {
        let mut fingerprints = [0u32; 256];
        for key in 0..25_600u64 {
            fingerprints[(hash_words(&[key]) >> 56) as usize] += 1;
        }
        assert!(fingerprints.iter().all(|&n| (40..=180).contains(&n)), "{fingerprints:?}");
    }
}
