//! Keys: distinct, scattered evenly over all of `u64`, and identified by numbers.
//!
//! Key number `i` is a bijection of `i`, so disjoint ranges of numbers give disjoint keys: for loaded
//! records, for later inserts, and for keys that never exist.

/// Keys by number, and random choices of them. Deterministic for a seed.
#[derive(Clone, Debug)]
pub struct KeySpace {
    seed: u64,
    state: u64,
}

/// Numbers from here on give keys that are never inserted.
pub(crate) const MISSING: u64 = 1 << 62;

impl KeySpace {
    /// Returns the keys of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let seed = scatter(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1));
        Self { seed, state: seed }
    }

    /// Returns key number `number`; different numbers give different keys.
    #[must_use]
    pub fn key(&self, number: u64) -> u64 {
        scatter(number ^ self.seed)
    }

    /// Returns a random key that no number below 2^62 gives.
    pub fn miss(&mut self) -> u64 {
        let number = MISSING | self.random() >> 2;
        self.key(number)
    }

    /// Returns the next random number.
    pub fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scatter(self.state)
    }

    /// Returns a random number in `0.0..1.0`, of 53 bits.
    #[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
    pub fn unit(&mut self) -> f64 {
        (self.random() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a random number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.random()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or_default()
    }
}

/// Permutes `u64` so that every input bit changes every output bit with probability 1/2:
/// the multiplicative finalizer of `SplitMix64` (Steele, Lea, Flood 2014).
pub(crate) const fn scatter(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_are_distinct_and_missing_keys_are_none_of_them() {
        let mut space = KeySpace::new(7);
        let keys: BTreeSet<u64> = (0..10_000).map(|i| space.key(i)).collect();
        assert_eq!(keys.len(), 10_000);
        assert!((0..10_000).all(|_| !keys.contains(&space.miss())));
    }

    #[test]
    fn keys_cover_the_whole_domain_evenly() {
        let space = KeySpace::new(1);
        let mut sixteenths = [0_u32; 16];
        for i in 0..16_000 {
            sixteenths[(space.key(i) >> 60) as usize] += 1;
        }
        assert!(sixteenths.iter().all(|n| (850..1150).contains(n)), "{sixteenths:?}");
    }

    #[test]
    fn another_seed_gives_other_keys() {
        assert_ne!(KeySpace::new(1).key(0), KeySpace::new(2).key(0));
    }
}
