//! Byte strings: vectors, text, arrays.

use std::borrow::Cow;
use std::sync::Arc;

use crate::key::{Key, MAX_INLINE_WORDS, Shape, Storable, Words};

/// Implements [`Storable`] for owners of a byte string or text: the borrowed form, the name, its
/// bytes, the owner of a vector of them.
macro_rules! byte_string {
    ($($t:ty, $borrowed:ty, $name:literal, |$v:ident| $to:expr, |$bytes:ident| $from:expr;)*) => { $(
        impl $crate::key::Storable for $t {
            type Ref = $borrowed;
            const SHAPE: $crate::key::Shape = $crate::key::Shape::Bytes;
            fn type_name() -> String {
                $name.into()
            }
            fn borrowed(&self) -> &$borrowed {
                self
            }
            fn to_words(_: &$borrowed) -> $crate::key::Words {
                unreachable!("a byte string")
            }
            fn from_words(_: &[u64]) -> Self {
                unreachable!("a byte string")
            }
            fn to_bytes($v: &$borrowed) -> std::borrow::Cow<'_, [u8]> {
                std::borrow::Cow::Borrowed($to)
            }
            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                Self::from_vec(bytes.to_vec())
            }
            #[inline]
            fn from_vec($bytes: Vec<u8>) -> Option<Self> {
                $from
            }
        }
        impl $crate::key::Key for $t {}
    )* };
}
#[cfg(feature = "bytes")]
pub(crate) use byte_string;

byte_string! {
    Vec<u8>, [u8], "bytes", |v| v, |bytes| Some(bytes);
    Box<[u8]>, [u8], "bytes", |v| v, |bytes| Some(bytes.into());
    Arc<[u8]>, [u8], "bytes", |v| v, |bytes| Some(bytes.into());
    Cow<'static, [u8]>, [u8], "bytes", |v| v, |bytes| Some(bytes.into());
    String, str, "str", |v| v.as_bytes(), |bytes| String::from_utf8(bytes).ok();
    Box<str>, str, "str", |v| v.as_bytes(), |bytes| Some(String::from_utf8(bytes).ok()?.into());
    Arc<str>, str, "str", |v| v.as_bytes(), |bytes| Some(String::from_utf8(bytes).ok()?.into());
    Cow<'static, str>, str, "str", |v| v.as_bytes(),
        |bytes| Some(String::from_utf8(bytes).ok()?.into());
}

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
