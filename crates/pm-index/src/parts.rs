//! Encodings of types with parts: tuples, structs and enums. The derived code calls these functions; the
//! encodings are documented at [`Storable`].

use std::borrow::Cow;

use crate::key::{MAX_INLINE_WORDS, Shape, Storable, Words};

const END: u8 = 0;
const ZERO: u8 = 0xff;

/// Returns the shape of parts in a row.
#[must_use]
pub const fn shape(parts: &[Shape]) -> Shape {
    match words(parts) {
        Some(0) => Shape::Inline(1),
        Some(words @ 1..=MAX_INLINE_WORDS) => Shape::Inline(words),
        _ => Shape::Bytes,
    }
}

/// Returns the shape of one row of parts out of several, with the number that says which; or
/// [`Shape::Bytes`] in any case.
#[must_use]
pub const fn choice(as_bytes: bool, variants: &[&[Shape]]) -> Shape {
    let (mut most, mut at) = (0, 0);
    while at < variants.len() {
        match words(variants[at]) {
            Some(words) if words > most => most = words,
            Some(_) => {}
            None => return Shape::Bytes,
        }
        at += 1;
    }
    if as_bytes || 1 + most > MAX_INLINE_WORDS { Shape::Bytes } else { Shape::Inline(1 + most) }
}

/// Returns the words of parts in a row; `None` if one of them is a byte string.
const fn words(parts: &[Shape]) -> Option<usize> {
    let (mut words, mut at) = (0, 0);
    while at < parts.len() {
        match parts[at] {
            Shape::Inline(more) => words += more,
            Shape::Bytes => return None,
        }
        at += 1;
    }
    Some(words)
}

/// Returns the name of a struct, which is that of the tuple of its fields.
#[must_use]
pub fn struct_name(parts: &[String]) -> String {
    format!("({})", parts.join(", "))
}

/// Returns the name of an enum: of its shape, and of the variants with their numbers.
#[must_use]
pub fn enum_name(shape: Shape, variants: &[(u16, &str, &[String])]) -> String {
    let shape = match shape {
        Shape::Inline(words) => words.to_string(),
        Shape::Bytes => "bytes".into(),
    };
    let variants: Vec<String> = variants
        .iter()
        .map(|(number, name, parts)| match parts {
            [] => format!("{number} {name}"),
            _ => format!("{number} {name}{}", struct_name(parts)),
        })
        .collect();
    format!("enum[{shape}]{{{}}}", variants.join(", "))
}

/// Adds the number of a variant.
#[inline]
pub fn put_number(number: u16, words: &mut Words, at: &mut usize) {
    words[*at] = number.into();
    *at += 1;
}

/// Takes the number of a variant off the front.
#[inline]
#[must_use]
pub fn take_number(words: &[u64]) -> (u64, &[u64]) {
    let (first, rest) = words.split_at(1);
    (first[0], rest)
}

/// Adds the number of a variant to bytes.
pub fn put_number_bytes(number: u16, bytes: &mut Vec<u8>) {
    bytes.extend(number.to_be_bytes());
}

/// Takes the number of a variant off the front; `None` if there is none.
#[must_use]
pub fn take_number_bytes(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*number), rest))
}

/// Returns the value, if all bytes are taken.
#[inline]
pub fn whole<T>(rest: &[u8], value: T) -> Option<T> {
    rest.is_empty().then_some(value)
}

/// Adds the words of an inline part.
#[inline]
pub fn put_words<T: Storable>(part: &T, words: &mut Words, at: &mut usize) {
    let count = const { T::SHAPE.words() };
    words[*at..*at + count].copy_from_slice(&T::to_words(part.borrowed())[..count]);
    *at += count;
}

/// Takes an inline part off the front.
#[inline]
pub fn take_words<T: Storable>(rest: &mut &[u64]) -> T {
    let (part, others) = rest.split_at(const { T::SHAPE.words() });
    *rest = others;
    T::from_words(part)
}

/// Adds the bytes of a part of any shape.
pub fn put_bytes<T: Storable>(part: &T, bytes: &mut Vec<u8>) {
    match T::SHAPE {
        Shape::Inline(count) => {
            for word in &T::to_words(part.borrowed())[..count] {
                bytes.extend(word.to_be_bytes());
            }
        }
        Shape::Bytes => {
            for piece in T::to_bytes(part.borrowed()).split_inclusive(|byte| *byte == 0) {
                bytes.extend_from_slice(piece);
                if piece.ends_with(&[0]) {
                    bytes.push(ZERO);
                }
            }
            bytes.extend([0, END]);
        }
    }
}

/// Takes a part of any shape off the front; `None` if there is none.
pub fn take_bytes<T: Storable>(rest: &mut &[u8]) -> Option<T> {
    match T::SHAPE {
        Shape::Inline(count) => {
            let mut words = Words::default();
            for word in &mut words[..count] {
                let (bytes, others) = rest.split_first_chunk::<8>()?;
                *word = u64::from_be_bytes(*bytes);
                *rest = others;
            }
            Some(T::from_words(&words[..count]))
        }
        Shape::Bytes => {
            let mut part = Vec::new();
            loop {
                match **rest {
                    [0, END, ref others @ ..] => {
                        *rest = others;
                        return T::from_bytes(&part);
                    }
                    [0, ZERO, ref others @ ..] => {
                        part.push(0);
                        *rest = others;
                    }
                    [byte, ref others @ ..] if byte != 0 => {
                        part.push(byte);
                        *rest = others;
                    }
                    _ => return None,
                }
            }
        }
    }
}

/// Returns all parts of a byte string.
pub fn bytes(fill: impl FnOnce(&mut Vec<u8>)) -> Cow<'static, [u8]> {
    let mut bytes = Vec::with_capacity(64);
    fill(&mut bytes);
    Cow::Owned(bytes)
}
