//! Numbers, `bool`, `char` and `()`: one or two words.

use std::num::NonZero;

use crate::key::Key;

/// Implements [`Storable`] for types that are their own borrowed form: name, count of words, to the
/// words, and back from them (a slice).
macro_rules! in_words {
    ($($t:ty, $name:expr, $count:literal, $(is_byte = $byte:literal,)? |$v:ident| $to:expr, |$w:ident| $from:expr;)*) => { $(
        impl $crate::key::Storable for $t {
            type Ref = Self;
            const SHAPE: $crate::key::Shape = $crate::key::Shape::Inline($count);
            $(const IS_BYTE: bool = $byte;)?
            fn type_name() -> String {
                $name.into()
            }
            #[inline(always)]
            fn borrowed(&self) -> &Self {
                self
            }
            #[inline(always)]
            fn to_words(value: &Self) -> $crate::key::Words {
                let $v = *value;
                let mut words = $crate::key::Words::default();
                words[..$count].copy_from_slice(&$to);
                words
            }
            #[inline(always)]
            fn from_words(words: &[u64]) -> Self {
                let $w = words;
                $from
            }
            fn to_bytes(_: &Self) -> std::borrow::Cow<'_, [u8]> {
                unreachable!("an inline type")
            }
            fn from_bytes(_: &[u8]) -> Option<Self> {
                unreachable!("an inline type")
            }
        }
    )* };
}
pub(crate) use in_words;

/// Encodes a signed number so that words have its order: with the sign bit flipped.
#[inline(always)]
pub(crate) const fn signed(number: i64) -> u64 {
    number.cast_unsigned() ^ (1 << 63)
}

/// Decodes what [`signed`] encoded.
#[inline(always)]
pub(crate) const fn unsigned(word: u64) -> i64 {
    (word ^ (1 << 63)).cast_signed()
}

#[inline(always)]
const fn halves(bits: u128) -> [u64; 2] {
    [(bits >> 64) as u64, bits as u64]
}

#[inline(always)]
fn joined(words: &[u64]) -> u128 {
    u128::from(words[0]) << 64 | u128::from(words[1])
}

in_words! {
    u64, "u64", 1, |v| [v], |w| w[0];
    u32, "u32", 1, |v| [v.into()], |w| w[0] as u32;
    u16, "u16", 1, |v| [v.into()], |w| w[0] as u16;
    u8, "u8", 1, is_byte = true, |v| [v.into()], |w| w[0] as u8;
    u128, "u128", 2, |v| halves(v), |w| joined(w);
    i64, "i64", 1, |v| [signed(v)], |w| unsigned(w[0]);
    i32, "i32", 1, |v| [signed(v.into())], |w| unsigned(w[0]) as i32;
    i16, "i16", 1, |v| [signed(v.into())], |w| unsigned(w[0]) as i16;
    i8, "i8", 1, |v| [signed(v.into())], |w| unsigned(w[0]) as i8;
    i128, "i128", 2, |v| halves(v.cast_unsigned() ^ (1 << 127)),
        |w| (joined(w) ^ (1 << 127)).cast_signed();
    bool, "bool", 1, |v| [v.into()], |w| w[0] != 0;
    char, "char", 1, |v| [u32::from(v).into()],
        |w| u32::try_from(w[0]).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
    (), "()", 1, |_v| [0], |_w| ();
}

macro_rules! keys {
    ($($t:ty),*) => { $(impl Key for $t {})* };
}

keys!(u64, u32, u16, u8, u128, i64, i32, i16, i8, i128, bool, char, ());

macro_rules! non_zero {
    ($count:literal: $($t:ty),*) => { $(
        in_words! {
            NonZero<$t>, concat!("NonZero<", stringify!($t), ">"), $count,
                |v| <$t>::to_words(&v.get())[..$count],
                |w| NonZero::new(<$t>::from_words(w)).unwrap_or(NonZero::<$t>::MIN);
        }
        impl Key for NonZero<$t> {}
    )* };
}

non_zero!(1: u64, u32, u16, u8, i64, i32, i16, i8);
non_zero!(2: u128, i128);
