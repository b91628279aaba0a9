//! Keys and values: how a Rust type becomes words or bytes, and back.
//!
//! Words are compared as unsigned numbers, the first word first; bytes from the first byte on, a
//! prefix before what it is a prefix of. The encodings keep the order of the types:
//!
//! | type | kept as | encoding |
//! | --- | --- | --- |
//! | `u8` to `u64`, `bool` (0, 1), `char` (its scalar value) | 1 word | the number |
//! | `i8` to `i64` | 1 word | as 64 bits, the sign bit flipped |
//! | `u128`, `i128` | 2 words | the high half first; `i128` with its sign bit flipped |
//! | `()` | 1 word | 0 |
//! | `[u8; N]`, `N` up to 32 | `N / 8` words, rounded up, at least 1 | big-endian, padded with 0 |
//! | `[u8; N]`, `N` over 32 | bytes | itself |
//! | tuples of 2 to 4 parts, structs ([`storable!`](crate::storable)): all parts inline, 4 words in all | the words of the parts | one after the other |
//! | other tuples and structs | bytes | the parts one after the other: words as 8 bytes, big-endian; byte strings with `00` written as `00 FF`, then `00 00` |
//! | `Vec<u8>`, `String` | bytes | itself; UTF-8 |
//!
//! Word values do not depend on the machine; on the medium each word is little-endian. A word that
//! is no encoding (a damaged file) gives some value of the type: high bits are ignored, a `bool` is
//! true if it is not 0, a `char` that is none is U+FFFD.

use std::borrow::Cow;
use std::fmt::Debug;

/// The most words of a key or value that is kept inline in a node.
pub const MAX_INLINE_WORDS: usize = 4;

/// Up to [`MAX_INLINE_WORDS`] words; only the first [`Shape::words`] are used, the rest are 0.
pub type Words = [u64; MAX_INLINE_WORDS];

/// The longest byte-string key, in bytes of its encoding.
pub const MAX_KEY_BYTES: usize = 4096;

/// The longest byte-string value, in bytes of its encoding, in a pool whose zones are larger. A record is
/// also no longer than the pool's largest block less 8 bytes: 4,186,104 bytes in a default pool, whose
/// zones are 4 MiB.
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

    /// Back from a copy of the bytes, which a type that is one keeps.
    #[must_use]
    fn from_vec(bytes: Vec<u8>) -> Option<Self> {
        Self::from_bytes(&bytes)
    }

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
