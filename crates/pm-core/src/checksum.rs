//! The checksum of pool metadata: 64 bits over words.
//!
//! Each step is a bijection of the state for a given word and of the word for a given state, so any change
//! confined to one word (a flipped bit, a torn store) is always detected; any other change is missed with
//! probability 2^-64. It detects rot and torn writes, not malice.

/// Computes the checksum of `words`, different for every `seed`. It detects rot and torn writes, not malice.
pub fn checksum(seed: u64, words: impl IntoIterator<Item = u64>) -> u64 {
    let mut state = seed ^ START;
    for word in words {
        state = mix(state ^ word);
    }
    mix(state)
}

/// Computes the checksums of several sequences of words at once, which have the same number of words: what
/// [`checksum`] returns for each. A processor works on all of them together.
pub(crate) fn checksums<const N: usize>(seeds: [u64; N], sequences: [&[[u8; 8]]; N]) -> [u64; N] {
    let mut states = seeds.map(|seed| seed ^ START);
    let len = sequences.iter().map(|words| words.len()).min().unwrap_or(0);
    let sequences = sequences.map(|words| &words[..len]);
    for at in 0..len {
        for (state, words) in states.iter_mut().zip(sequences) {
            *state = mix(*state ^ u64::from_le_bytes(words[at]));
        }
    }
    states.map(mix)
}

const START: u64 = 0x5151_f0f0_9e37_79b9;

const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 29)).wrapping_mul(0xcf1b_bcdc_bfa5_63cb);
    x ^ (x >> 32)
}

#[cfg(test)]
mod tests {
    use super::{checksum, checksums};

    #[test]
    fn several_at_once_are_the_same_as_one_after_another() {
        let words: Vec<u64> = (0..99).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let bytes: Vec<[u8; 8]> = words.iter().map(|word| word.to_le_bytes()).collect();
        let found = checksums([3, 9, 27], [&bytes[..33], &bytes[33..66], &bytes[66..]]);
        for (nth, seed) in [3, 9, 27].into_iter().enumerate() {
            assert_eq!(found[nth], checksum(seed, words[33 * nth..][..33].iter().copied()));
        }
    }

    #[test]
    fn checksum_detects_every_single_bit_flip() {
        let words = [1u64, 2, 3, u64::MAX, 0, 0, 7, 1 << 63];
        let good = checksum(5, words);
        for word in 0..words.len() {
            for bit in 0..64 {
                let mut bad = words;
                bad[word] ^= 1 << bit;
                assert_ne!(checksum(5, bad), good, "word {word} bit {bit}");
            }
        }
        assert_ne!(checksum(6, words), good);
        assert_ne!(checksum(5, words[..7].iter().copied()), good);
    }
}
