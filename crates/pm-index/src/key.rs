//! Keys and values: how a Rust type becomes words or bytes, and back.

use std::borrow::Cow;
use std::fmt::Debug;

/// The most words of a key or value that is kept inline in a node.
pub const MAX_INLINE_WORDS: usize = 4;

/// Up to [`MAX_INLINE_WORDS`] words; only the first [`Shape::words`] are used, the rest are 0.
pub type Words = [u64; MAX_INLINE_WORDS];

/// The longest byte-string key, in bytes of its encoding.
pub const MAX_KEY_BYTES: usize = 4096;

/// The longest byte-string value, in bytes of its encoding.
pub const MAX_VALUE_BYTES: usize = 4 << 20;

/// How values of a type are kept in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// This many words, in the node.
    Inline(usize),
    /// A byte string of any length up to the limit, out of the node where it is large.
    Bytes,
}

impl Shape {
    /// Words in the node; 0 for byte strings.
    #[must_use]
    pub const fn words(self) -> usize {
        match self {
            Self::Inline(words) => words,
            Self::Bytes => 0,
        }
    }

    /// Whether this is [`Shape::Bytes`].
    #[must_use]
    pub const fn is_bytes(self) -> bool {
        matches!(self, Self::Bytes)
    }
}

/// A type that can be stored: a fixed number of words, or a byte string.
///
/// `Ref` is what operations borrow: `u64` for `u64`, `[u8]` for `Vec<u8>`, `str` for `String`.
/// Only the methods of the type's [`SHAPE`](Self::SHAPE) are ever called; the others may panic.
pub trait Storable: Clone + Debug + Send + Sync + 'static {
    /// The borrowed form.
    type Ref: ?Sized + Debug + Sync;
    /// How it is kept.
    const SHAPE: Shape;

    /// A name that identifies the encoding; it is part of an index's recorded layout.
    fn type_name() -> String;
    /// Borrows.
    fn borrowed(&self) -> &Self::Ref;
    /// The words of an inline value.
    fn to_words(value: &Self::Ref) -> Words;
    /// Back from the words; every bit pattern must give some value.
    fn from_words(words: &[u64]) -> Self;
    /// The bytes of a byte-string value.
    fn to_bytes(value: &Self::Ref) -> Cow<'_, [u8]>;
    /// Back from the bytes; `None` if they are no encoding of a value.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;

    /// The owned form of a borrowed value.
    ///
    /// # Panics
    /// If `from_bytes` refuses what `to_bytes` gave.
    #[must_use]
    #[allow(clippy::expect_used, reason = "a broken implementation of this trait, not an error")]
    fn owned(value: &Self::Ref) -> Self {
        match Self::SHAPE {
            Shape::Inline(words) => Self::from_words(&Self::to_words(value)[..words]),
            Shape::Bytes => {
                Self::from_bytes(&Self::to_bytes(value)).expect("an encoding of a value")
            }
        }
    }
}

/// A key: its words compare (lexicographically, as unsigned numbers) or its bytes compare
/// (lexicographically) exactly as [`Ord`] does.
pub trait Key: Storable + Ord {}

/// A value.
pub trait Value: Storable + PartialEq {}

impl<T: Storable + PartialEq> Value for T {}

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
    i64 => |v| v.cast_unsigned() ^ (1 << 63), |w| (w ^ (1 << 63)).cast_signed();
    i32 => |v| i64::from(v).cast_unsigned() ^ (1 << 63), |w| (w ^ (1 << 63)).cast_signed() as i32;
}

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
}
impl Key for String {}
