//! Numbers, `bool`, `char` and `()`: one or two words.

use std::borrow::Cow;

use crate::key::{Key, Shape, Storable, Words};

macro_rules! inline_int {
    ($($t:ty => |$v:ident| $to:expr, |$w:ident| $from:expr;)*) => { $(
        impl Storable for $t {
            type Ref = Self;
            const SHAPE: Shape = Shape::Inline(1);
            fn type_name() -> String {
                stringify!($t).into()
            }
            #[inline(always)]
            fn borrowed(&self) -> &Self {
                self
            }
            #[inline(always)]
            fn to_words(value: &Self) -> Words {
                let $v = *value;
                [$to, 0, 0, 0]
            }
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap,
                    reason = "the inverse of `to_words`")]
            fn from_words(words: &[u64]) -> Self {
                let $w = words[0];
                $from
            }
            fn to_bytes(_: &Self) -> Cow<'_, [u8]> {
                unreachable!("an inline type")
            }
            fn from_bytes(_: &[u8]) -> Option<Self> {
                unreachable!("an inline type")
            }
        }
        impl Key for $t {}
    )* };
}

inline_int! {
    u64 => |v| v, |w| w;
    u32 => |v| u64::from(v), |w| w as u32;
    u16 => |v| u64::from(v), |w| w as u16;
    u8 => |v| u64::from(v), |w| w as u8;
    bool => |v| u64::from(v), |w| w != 0;
    char => |v| u64::from(u32::from(v)), |w| {
        u32::try_from(w).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
    };
    i64 => |v| v.cast_unsigned() ^ (1 << 63), |w| (w ^ (1 << 63)).cast_signed();
    i16 => |v| i64::from(v).cast_unsigned() ^ (1 << 63), |w| (w ^ (1 << 63)).cast_signed() as i16;
    i8 => |v| i64::from(v).cast_unsigned() ^ (1 << 63), |w| (w ^ (1 << 63)).cast_signed() as i8;
    i32 => |v| i64::from(v).cast_unsigned() ^ (1 << 63), |w| (w ^ (1 << 63)).cast_signed() as i32;
}

macro_rules! inline_wide {
    ($($t:ty, flip $flip:expr;)*) => { $(
        impl Storable for $t {
            type Ref = Self;
            const SHAPE: Shape = Shape::Inline(2);
            fn type_name() -> String {
                stringify!($t).into()
            }
            #[inline(always)]
            fn borrowed(&self) -> &Self {
                self
            }
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss,
                    reason = "one half, and then the other")]
            fn to_words(value: &Self) -> Words {
                let bits = *value as u128 ^ $flip;
                [(bits >> 64) as u64, bits as u64, 0, 0]
            }
            #[inline(always)]
            #[allow(clippy::cast_possible_wrap, reason = "the inverse of `to_words`")]
            fn from_words(words: &[u64]) -> Self {
                let bits = u128::from(words[0]) << 64 | u128::from(words[1]);
                (bits ^ $flip) as Self
            }
            fn to_bytes(_: &Self) -> Cow<'_, [u8]> {
                unreachable!("an inline type")
            }
            fn from_bytes(_: &[u8]) -> Option<Self> {
                unreachable!("an inline type")
            }
        }
        impl Key for $t {}
    )* };
}

inline_wide! {
    u128, flip 0;
    i128, flip 1 << 127;
}

/// For sets. A node keeps a word all the same.
impl Storable for () {
    type Ref = Self;
    const SHAPE: Shape = Shape::Inline(1);
    fn type_name() -> String {
        "()".into()
    }
    fn borrowed(&self) -> &Self {
        self
    }
    fn to_words((): &Self) -> Words {
        Words::default()
    }
    fn from_words(_: &[u64]) -> Self {}
    fn to_bytes((): &Self) -> Cow<'_, [u8]> {
        unreachable!("an inline type")
    }
    fn from_bytes(_: &[u8]) -> Option<Self> {
        unreachable!("an inline type")
    }
}
impl Key for () {}
