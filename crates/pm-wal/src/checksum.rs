//! The checksum of heads and batches: 64 bits over bytes.
//!
//! Four states take every fourth word, so that a processor works on all of them at once. Each step is a
//! bijection of its state for a given word and of the word for a given state: any change within one word is
//! always detected; any other change is missed with probability 2^-64. It detects torn and stale blocks and
//! rot, not malice.

/// Computes the checksum of `parts`, each padded with zeros to a multiple of 32 bytes; different for every
/// seed.
pub(crate) fn checksum(seed: &[u64], parts: &[&[u8]]) -> u64 {
    let mut states = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0];
    for (i, &word) in seed.iter().enumerate() {
        states[i % 4] = mix(states[i % 4] ^ word);
    }
    let mut len = 0u64;
    for part in parts {
        len += part.len() as u64;
        let (rounds, rest) = part.as_chunks::<32>();
        for round in rounds {
            absorb(&mut states, round);
        }
        if !rest.is_empty() {
            let mut last = [0; 32];
            last[..rest.len()].copy_from_slice(rest);
            absorb(&mut states, &last);
        }
    }
    states.into_iter().fold(len, |sum, state| mix(sum.rotate_left(17) ^ state))
}

fn absorb(states: &mut [u64; 4], round: &[u8; 32]) {
    for (state, word) in states.iter_mut().zip(round.as_chunks::<8>().0) {
        *state = mix(*state ^ u64::from_le_bytes(*word));
    }
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
    fn every_bit_the_length_and_each_word_of_the_seed_count() {
        let bytes: Vec<u8> = (0..100).collect();
        let good = checksum(&[1, 2, 3, 4, 5], &[&bytes]);
        for bit in 0..800 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksum(&[1, 2, 3, 4, 5], &[&bad]), good, "bit {bit}");
        }
        for word in 0..5 {
            let mut seed = [1, 2, 3, 4, 5];
            seed[word] += 1;
            assert_ne!(checksum(&seed, &[&bytes]), good, "word {word} of the seed");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_ne!(checksum(&[1, 2, 3, 4, 5], &[&longer]), good);
        assert_eq!(checksum(&[1, 2, 3, 4, 5], &[&bytes[..64], &bytes[64..]]), good);
    }
}
