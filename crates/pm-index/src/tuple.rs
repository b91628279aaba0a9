//! Tuples of storable parts, and `Option`.

use std::borrow::Cow;

use crate::key::{Key, Shape, Storable, Words};
use crate::parts;

macro_rules! tuple {
    ($($part:ident $field:tt),+) => {
        impl<$($part: Storable),+> Storable for ($($part,)+) {
            type Ref = Self;
            const SHAPE: Shape = parts::shape(&[$($part::SHAPE),+]);
            fn type_name() -> String {
                parts::struct_name(&[$($part::type_name()),+])
            }
            #[inline(always)]
            fn borrowed(&self) -> &Self {
                self
            }
            #[inline]
            fn to_words(value: &Self) -> Words {
                let (mut words, mut at) = (Words::default(), 0);
                $(parts::put_words(&value.$field, &mut words, &mut at);)+
                debug_assert_eq!(at, Self::SHAPE.words());
                words
            }
            #[inline]
            fn from_words(words: &[u64]) -> Self {
                let mut rest = words;
                let value = ($(parts::take_words::<$part>(&mut rest),)+);
                debug_assert!(rest.is_empty());
                value
            }
            fn to_bytes(value: &Self) -> Cow<'_, [u8]> {
                parts::bytes(|bytes| { $(parts::put_bytes(&value.$field, bytes);)+ })
            }
            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                let mut rest = bytes;
                let value = ($(parts::take_bytes::<$part>(&mut rest)?,)+);
                parts::whole(rest, value)
            }
        }
        impl<$($part: Key),+> Key for ($($part,)+) {}
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// The byte before a byte string that is there.
const SOME: u8 = 1;

impl<T: Storable> Storable for Option<T> {
    type Ref = Self;
    const SHAPE: Shape = parts::choice(false, &[&[], &[T::SHAPE]]);
    fn type_name() -> String {
        format!("Option<{}>", T::type_name())
    }
    #[inline(always)]
    fn borrowed(&self) -> &Self {
        self
    }
    #[inline]
    fn to_words(value: &Self) -> Words {
        let (mut words, mut at) = (Words::default(), 0);
        if let Some(value) = value {
            parts::put_number(1, &mut words, &mut at);
            parts::put_words(value, &mut words, &mut at);
        }
        words
    }
    #[inline]
    fn from_words(words: &[u64]) -> Self {
        match parts::take_number(words) {
            (0, _) => None,
            (_, mut rest) => Some(parts::take_words(&mut rest)),
        }
    }
    fn to_bytes(value: &Self) -> Cow<'_, [u8]> {
        match (value, T::SHAPE) {
            (None, _) => Cow::Borrowed(&[0]),
            (Some(value), Shape::Inline(_)) => parts::bytes(|bytes| {
                bytes.push(SOME);
                parts::put_bytes(value, bytes);
            }),
            (Some(value), Shape::Bytes) => {
                let value = T::to_bytes(value.borrowed());
                Cow::Owned([&[SOME], &*value].concat())
            }
        }
    }
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match (bytes, T::SHAPE) {
            ([0], _) => Some(None),
            ([SOME, rest @ ..], Shape::Inline(_)) => {
                let mut rest = rest;
                let value = parts::take_bytes(&mut rest)?;
                parts::whole(rest, Some(value))
            }
            ([SOME, rest @ ..], Shape::Bytes) => T::from_bytes(rest).map(Some),
            _ => None,
        }
    }
}
impl<T: Key> Key for Option<T> {}
