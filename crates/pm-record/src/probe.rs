//! Keys and values of a call: borrowed, encoded, measured and hashed once per operation.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::marker::PhantomData;

use pmindex_core::short_word;
use pmindex_index::{
    IndexError, Key, MAX_INLINE_WORDS, MAX_KEY_BYTES, MAX_VALUE_BYTES, Shape, Value, Words,
};

use crate::hash::{hash_bytes, hash_words};

/// A key to search for.
#[derive(Debug)]
pub struct Probe<'k, K> {
    words: Words,
    bytes: Cow<'k, [u8]>,
    hash: u64,
    key: PhantomData<fn() -> K>,
}

impl<'k, K: Key> Probe<'k, K> {
    /// Encodes a key.
    ///
    /// # Errors
    /// [`IndexError::KeyTooLong`].
    #[inline(always)]
    pub fn new(key: &'k K::Ref) -> Result<Self, IndexError> {
        let probe = Self::encode(key);
        let len = probe.bytes.len();
        if len > MAX_KEY_BYTES {
            return Err(IndexError::KeyTooLong { len, max: MAX_KEY_BYTES });
        }
        Ok(probe)
    }

    /// Encodes a key that was stored, so its length is within the limits.
    #[must_use]
    pub fn of_stored(key: &'k K) -> Self {
        Self::encode(key.borrowed())
    }

    /// Returns the inline key that was stored as these words. No conversion runs, so none can panic.
    #[inline(always)]
    #[must_use]
    pub fn of_stored_words(stored: &[u64]) -> Self {
        let mut words = [0; MAX_INLINE_WORDS];
        words[..stored.len()].copy_from_slice(stored);
        let (bytes, hash) = (Cow::Borrowed([].as_slice()), hash_words(stored));
        Self { words, bytes, hash, key: PhantomData }
    }

    #[inline(always)]
    fn encode(key: &'k K::Ref) -> Self {
        match K::SHAPE {
            Shape::Inline(n) => {
                let words = K::to_words(key);
                let hash = hash_words(&words[..n]);
                Self { words, bytes: Cow::Borrowed(&[]), hash, key: PhantomData }
            }
            Shape::Bytes => {
                let bytes = K::to_bytes(key);
                let words = [prefix_word(&bytes), 0, 0, 0];
                let hash = hash_bytes(&bytes);
                Self { words, bytes, hash, key: PhantomData }
            }
        }
    }

    /// Keeps the encoding, without the key.
    #[must_use]
    pub fn into_owned(self) -> Probe<'static, K> {
        let Self { words, bytes, hash, key } = self;
        Probe { words, bytes: Cow::Owned(bytes.into_owned()), hash, key }
    }

    /// Returns the first word in key order: the first word of an inline key, or the first 8 bytes of a byte
    /// string (most significant first, padded with zeros). Orders keys, except for ties.
    #[inline(always)]
    #[must_use]
    pub fn prefix(&self) -> u64 {
        self.words[0]
    }

    /// Returns the words of an inline key.
    #[inline(always)]
    #[must_use]
    pub fn words(&self) -> &Words {
        &self.words
    }

    /// Returns the bytes of a byte-string key.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the hash.
    #[inline(always)]
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns one byte of the hash, for fingerprints.
    #[inline(always)]
    #[must_use]
    pub fn fingerprint(&self) -> u8 {
        (self.hash >> 56) as u8
    }

    /// Returns the slot of `slots` that a record with this key takes if it is free; independent of the
    /// fingerprint.
    #[inline(always)]
    #[must_use]
    pub fn preferred_slot(&self, slots: usize) -> usize {
        (((self.hash & 0xffff_ffff) * slots as u64) >> 32) as usize
    }
}

/// Returns the first 8 bytes as a number that orders byte strings, except for ties.
#[inline(always)]
#[must_use]
pub(crate) fn prefix_word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => short_word(bytes).swap_bytes(),
    }
}

impl<K: Key> Probe<'_, K> {
    /// Compares two probes by their keys.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        match K::SHAPE {
            Shape::Inline(_) => self.words.cmp(&other.words),
            Shape::Bytes => self.bytes.cmp(&other.bytes),
        }
    }
}

/// A value to store.
#[derive(Debug)]
pub struct EncodedValue<'v, V> {
    words: Words,
    bytes: Cow<'v, [u8]>,
    value: PhantomData<fn() -> V>,
}

impl<'v, V: Value> EncodedValue<'v, V> {
    /// Encodes a value.
    ///
    /// # Errors
    /// [`IndexError::ValueTooLong`].
    #[inline(always)]
    pub fn new(value: &'v V::Ref) -> Result<Self, IndexError> {
        match V::SHAPE {
            Shape::Inline(_) => Ok(Self {
                words: V::to_words(value),
                bytes: Cow::Borrowed(&[]),
                value: PhantomData,
            }),
            Shape::Bytes => {
                let bytes = V::to_bytes(value);
                if bytes.len() > MAX_VALUE_BYTES {
                    let len = bytes.len();
                    return Err(IndexError::ValueTooLong { len, max: MAX_VALUE_BYTES });
                }
                Ok(Self { words: [0; 4], bytes, value: PhantomData })
            }
        }
    }

    /// Keeps the encoding, without the value.
    #[must_use]
    pub fn into_owned(self) -> EncodedValue<'static, V> {
        let Self { words, bytes, value } = self;
        EncodedValue { words, bytes: Cow::Owned(bytes.into_owned()), value }
    }

    /// Returns the words of an inline value.
    #[inline(always)]
    #[must_use]
    pub fn words(&self) -> &Words {
        &self.words
    }

    /// Returns the bytes of a byte-string value.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
