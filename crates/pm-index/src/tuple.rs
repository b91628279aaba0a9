//! Tuples of storable parts.

use std::borrow::Cow;

use crate::key::{Key, Shape, Storable, Words};
use crate::parts;

macro_rules! tuple {
    ($($part:ident $field:tt),+) => {
        impl<$($part: Storable),+> Storable for ($($part,)+) {
            type Ref = Self;
            const SHAPE: Shape = parts::shape(&[$($part::SHAPE),+]);
            fn type_name() -> String {
                format!("({})", [$($part::type_name()),+].join(", "))
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
                rest.is_empty().then_some(value)
            }
        }
        impl<$($part: Key),+> Key for ($($part,)+) {}
    };
}

tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
