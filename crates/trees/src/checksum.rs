//! Checksums of several runs of words at once.

use pmindex_record::hash_words;

/// [`hash_words`] of each body, side by side: one word of a body has to wait for the word before.
pub(crate) fn hash_bodies<const N: usize>(bodies: [&[u64]; N]) -> [u64; N] {
    let step = |hash: u64, word: u64| hash_words(&[hash.rotate_left(29) ^ word]);
    let common = bodies.iter().map(|body| body.len()).min().unwrap_or_default();
    let mut hashes = [0; N];
    for at in 0..common {
        for (hash, body) in hashes.iter_mut().zip(&bodies) {
            *hash = step(*hash, body[at]);
        }
    }
    for (hash, body) in hashes.iter_mut().zip(&bodies) {
        *hash = body[common..].iter().fold(*hash, |hash, &word| step(hash, word));
    }
    hashes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_side_by_side_are_those_of_each_body() {
        let words: Vec<u64> = (1..40).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        for lens in [[0, 0, 0], [1, 2, 3], [39, 7, 0], [20, 20, 20]] {
            let bodies = lens.map(|len| &words[39 - len..]);
            assert_eq!(hash_bodies(bodies), bodies.map(hash_words), "{lens:?}");
        }
    }
}
