//! The keys of leaves: kept outside the tree, by its user.

use pmindex_core::PmError;

/// The bytes of a key that a [`KeyBuf`] holds without a heap allocation.
const SHORT: usize = 40;

/// A copy of a key; short ones need no heap allocation.
#[derive(Clone, Debug)]
pub struct KeyBuf {
    short: [u8; SHORT],
    /// Bytes in `short`, unless `long` is in use.
    len: usize,
    long: Vec<u8>,
}

impl Default for KeyBuf {
    fn default() -> Self {
        Self { short: [0; SHORT], len: 0, long: Vec::new() }
    }
}

impl KeyBuf {
    /// Makes an empty key.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the bytes.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        if self.long.is_empty() { &self.short[..self.len] } else { &self.long }
    }

    /// Removes all bytes.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.len = 0;
        self.long.clear();
    }

    /// Appends bytes.
    #[inline(always)]
    pub fn push(&mut self, bytes: &[u8]) {
        if self.long.is_empty() {
            if let Some(room) = self.short.get_mut(self.len..self.len + bytes.len()) {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
                return;
            }
            self.long.extend_from_slice(&self.short[..self.len]);
        }
        self.long.extend_from_slice(bytes);
    }

    /// Returns `len` zero bytes, to be filled.
    pub fn zeroed(&mut self, len: usize) -> &mut [u8] {
        self.clear();
        if len <= SHORT {
            self.len = len;
            self.short[..len].fill(0);
            &mut self.short[..len]
        } else {
            self.long.resize(len, 0);
            &mut self.long
        }
    }
}

/// Loads the keys of a tree's leaves.
///
/// A leaf's value identifies a key that is kept elsewhere: in a persistent leaf, or in a node of the layer
/// below. The tree keeps only the bytes that distinguish the key from its neighbours (lazy expansion), and
/// loads the rest when a new key shares all of these.
///
/// The key of a leaf must not change while the leaf is in the tree. A call may race with the leaf's removal
/// and reuse; its result is discarded then, errors included.
///
/// Any `Fn(u64, &mut KeyBuf) -> Result<(), PmError>` is a `Leaves`.
pub trait Leaves {
    /// Appends the key of `leaf` to `key`, which is empty.
    ///
    /// # Errors
    /// The errors of reading it; the tree's operation returns them, and changes nothing.
    fn load_key(&self, leaf: u64, key: &mut KeyBuf) -> Result<(), PmError>;

    /// Returns `true` if the key of `leaf` is `key`.
    ///
    /// # Errors
    /// As [`load_key`](Self::load_key).
    #[inline]
    fn key_is(&self, leaf: u64, key: &[u8]) -> Result<bool, PmError> {
        let mut buffer = KeyBuf::new();
        self.load_key(leaf, &mut buffer)?;
        Ok(buffer.bytes() == key)
    }
}

impl<F: Fn(u64, &mut KeyBuf) -> Result<(), PmError>> Leaves for F {
    #[inline(always)]
    fn load_key(&self, leaf: u64, key: &mut KeyBuf) -> Result<(), PmError> {
        self(leaf, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_keys_come_out_as_they_went_in() {
        let mut key = KeyBuf::new();
        for len in [0, 1, SHORT - 1, SHORT, SHORT + 1, 200] {
            key.clear();
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            for part in bytes.chunks(7) {
                key.push(part);
            }
            assert_eq!(key.bytes(), bytes);
            key.zeroed(len).copy_from_slice(&bytes);
            assert_eq!(key.bytes(), bytes);
        }
    }
}
