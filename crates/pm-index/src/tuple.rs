//! Tuples of inline parts: the words of the parts one after the other.
//!
//! A tuple of parts that are byte strings, or of more than four words, does not compile:
//!
//! ```compile_fail
//! use pmindex_index::Storable;
//! let _ = <(u128, u128, u8) as Storable>::SHAPE;
//! ```

use std::borrow::Cow;

use crate::key::{Key, MAX_INLINE_WORDS, Shape, Storable, Words};

/// The shape of parts in a row.
const fn joined(parts: &[Shape]) -> Shape {
    let (mut words, mut at) = (0, 0);
    while at < parts.len() {
        match parts[at] {
            Shape::Inline(more) => words += more,
            Shape::Bytes => panic!("a tuple's parts are of fixed size, at most 32 bytes each"),
        }
        at += 1;
    }
    assert!(words <= MAX_INLINE_WORDS, "a tuple has at most 4 words");
    Shape::Inline(words)
}

macro_rules! tuple {
    ($($part:ident $value:ident $field:tt),+) => {
        impl<$($part: Storable),+> Storable for ($($part,)+) {
            type Ref = Self;
            const SHAPE: Shape = joined(&[$($part::SHAPE),+]);
            fn type_name() -> String {
                format!("({})", [$($part::type_name()),+].join(", "))
            }
            #[inline(always)]
            fn borrowed(&self) -> &Self {
                self
            }
            #[inline]
            fn to_words(value: &Self) -> Words {
                let mut words = Words::default();
                let mut at = 0;
                $(
                    let count = const { $part::SHAPE.words() };
                    let part = $part::to_words(value.$field.borrowed());
                    words[at..at + count].copy_from_slice(&part[..count]);
                    at += count;
                )+
                debug_assert_eq!(at, Self::SHAPE.words());
                words
            }
            #[inline]
            fn from_words(words: &[u64]) -> Self {
                let mut rest = words;
                $(
                    let (part, others) = rest.split_at(const { $part::SHAPE.words() });
                    let $value = $part::from_words(part);
                    rest = others;
                )+
                debug_assert!(rest.is_empty());
                ($($value,)+)
            }
            fn to_bytes(_: &Self) -> Cow<'_, [u8]> {
                unreachable!("an inline type")
            }
            fn from_bytes(_: &[u8]) -> Option<Self> {
                unreachable!("an inline type")
            }
        }
        impl<$($part: Key),+> Key for ($($part,)+) {}
    };
}

tuple!(A a 0, B b 1);
tuple!(A a 0, B b 1, C c 2);
tuple!(A a 0, B b 1, C c 2, D d 3);
