//! Mixing words: hashes and checksums.
//!
//! These do not resist an adversary who chooses the input; the ids of blocks are numbers of an engine.

use std::hash::Hasher;

/// Maps words to words one to one, spreading every bit over all bits.
#[inline]
pub(crate) const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 32)).wrapping_mul(0xbea2_25f9_eb34_556d);
    x = (x ^ (x >> 29)).wrapping_mul(0xbea2_25f9_eb34_556d);
    x ^ (x >> 32)
}

/// Hashes values that consist of words.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        // Both halves of a product: each bit of a word affects low and high bits.
        let product = u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xbea2_25f9_eb34_556d;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }
}
