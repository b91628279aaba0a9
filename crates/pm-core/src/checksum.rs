//! The checksum of pool metadata: 64 bits over words.
//!
//! Each step is a bijection of the state for a given word and of the word for a given state, so any change
//! confined to one word (a flipped bit, a torn store) is always detected; any other change is missed with
//! probability 2^-64. It detects rot and torn writes, not malice.

/// Computes the checksum of `words`, different for every `seed`. It detects rot and torn writes, not malice.
pub fn checksum(seed: u64, words: impl IntoIterator<Item = u64>) -> u64 {
    let mut state = seed ^ 0x5151_f0f0_9e37_79b9;
    for word in words {
        state = mix(state ^ word);
    }
    mix(state)
}

const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 29)).wrapping_mul(0xcf1b_bcdc_bfa5_63cb);
    x ^ (x >> 32)
}

#[cfg(test)]
mod tests {
    use super::checksum;

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
