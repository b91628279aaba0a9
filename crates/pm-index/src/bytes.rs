//! Byte strings: vectors, text, arrays.

use std::borrow::Cow;

use crate::key::{Key, MAX_INLINE_WORDS, Shape, Storable, Words};

impl Storable for Vec<u8> {
    type Ref = [u8];
    const SHAPE: Shape = Shape::Bytes;
    fn type_name() -> String {
        "bytes".into()
    }
    fn borrowed(&self) -> &[u8] {
        self
    }
    fn to_words(_: &[u8]) -> Words {
        unreachable!("a byte string")
    }
    fn from_words(_: &[u64]) -> Self {
        unreachable!("a byte string")
    }
    fn to_bytes(value: &[u8]) -> Cow<'_, [u8]> {
        Cow::Borrowed(value)
    }
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(bytes.to_vec())
    }
    #[inline]
    fn from_vec(bytes: Vec<u8>) -> Option<Self> {
        Some(bytes)
    }
}
impl Key for Vec<u8> {}

impl Storable for String {
    type Ref = str;
    const SHAPE: Shape = Shape::Bytes;
    fn type_name() -> String {
        "str".into()
    }
    fn borrowed(&self) -> &str {
        self
    }
    fn to_words(_: &str) -> Words {
        unreachable!("a byte string")
    }
    fn from_words(_: &[u64]) -> Self {
        unreachable!("a byte string")
    }
    fn to_bytes(value: &str) -> Cow<'_, [u8]> {
        Cow::Borrowed(value.as_bytes())
    }
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        String::from_utf8(bytes.to_vec()).ok()
    }
    #[inline]
    fn from_vec(bytes: Vec<u8>) -> Option<Self> {
        String::from_utf8(bytes).ok()
    }
}
impl Key for String {}

/// In the node up to 32 bytes, a byte string beyond.
impl<const N: usize> Storable for [u8; N] {
    type Ref = Self;
    const SHAPE: Shape = if N > 8 * MAX_INLINE_WORDS {
        Shape::Bytes
    } else if N == 0 {
        Shape::Inline(1)
    } else {
        Shape::Inline(N.div_ceil(8))
    };
    fn type_name() -> String {
        format!("[u8; {N}]")
    }
    #[inline(always)]
    fn borrowed(&self) -> &Self {
        self
    }
    #[inline]
    fn to_words(value: &Self) -> Words {
        let mut words = Words::default();
        for (word, chunk) in words.iter_mut().zip(value.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_be_bytes(bytes);
        }
        words
    }
    #[inline]
    fn from_words(words: &[u64]) -> Self {
        let mut value = [0; N];
        for (chunk, word) in value.chunks_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_be_bytes()[..chunk.len()]);
        }
        value
    }
    fn to_bytes(value: &Self) -> Cow<'_, [u8]> {
        Cow::Borrowed(value)
    }
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok()
    }
}
impl<const N: usize> Key for [u8; N] {}
