//! Arrays: of bytes, which are byte strings, and of anything else, part by part.

use std::any::Any;
use std::borrow::Cow;

use crate::key::{Key, MAX_INLINE_WORDS, Shape, Storable, Words};
use crate::parts;

/// Returns the shape of an array of bytes: in the node up to 32, a byte string beyond.
const fn shape_of_bytes(len: usize) -> Shape {
    match len.div_ceil(8) {
        0 => Shape::Inline(1),
        words @ 1..=MAX_INLINE_WORDS => Shape::Inline(words),
        _ => Shape::Bytes,
    }
}

/// Returns the array as bytes, if it is of bytes: decided when it is compiled.
#[inline(always)]
fn bytes_of<T: Storable, const N: usize>(array: &[T; N]) -> Option<&[u8; N]> {
    if T::IS_BYTE { (array as &dyn Any).downcast_ref() } else { None }
}

/// Returns the array of these bytes, if it is of bytes.
#[inline(always)]
fn array_of<T: Storable, const N: usize>(bytes: [u8; N]) -> Option<[T; N]> {
    let mut array = None;
    if let Some(place) = (&mut array as &mut dyn Any).downcast_mut::<Option<[u8; N]>>() {
        *place = Some(bytes);
    }
    array
}

/// As a tuple of `N` parts of one type, but for bytes, which are packed.
impl<T: Storable, const N: usize> Storable for [T; N] {
    type Ref = Self;
    const SHAPE: Shape = if T::IS_BYTE { shape_of_bytes(N) } else { parts::shape(&[T::SHAPE; N]) };
    fn type_name() -> String {
        format!("[{}; {N}]", T::type_name())
    }
    #[inline(always)]
    fn borrowed(&self) -> &Self {
        self
    }
    #[inline]
    fn to_words(value: &Self) -> Words {
        let (mut words, mut at) = (Words::default(), 0);
        if let Some(bytes) = bytes_of(value) {
            for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
                let mut bytes = [0; 8];
                bytes[..chunk.len()].copy_from_slice(chunk);
                *word = u64::from_be_bytes(bytes);
            }
        } else {
            for part in value {
                parts::put_words(part, &mut words, &mut at);
            }
        }
        words
    }
    #[inline]
    fn from_words(words: &[u64]) -> Self {
        if T::IS_BYTE {
            let mut bytes = [0; N];
            for (chunk, word) in bytes.chunks_mut(8).zip(words) {
                chunk.copy_from_slice(&word.to_be_bytes()[..chunk.len()]);
            }
            if let Some(array) = array_of(bytes) {
                return array;
            }
        }
        let mut rest = words;
        std::array::from_fn(|_| parts::take_words(&mut rest))
    }
    fn to_bytes(value: &Self) -> Cow<'_, [u8]> {
        match bytes_of(value) {
            Some(bytes) => Cow::Borrowed(bytes),
            None => {
                parts::bytes(|bytes| value.iter().for_each(|part| parts::put_bytes(part, bytes)))
            }
        }
    }
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if T::IS_BYTE {
            return array_of(bytes.try_into().ok()?);
        }
        let (mut rest, mut all) = (bytes, Vec::with_capacity(N));
        for _ in 0..N {
            all.push(parts::take_bytes(&mut rest)?);
        }
        parts::whole(rest, all.try_into().ok()?)
    }
}
impl<T: Key, const N: usize> Key for [T; N] {}
