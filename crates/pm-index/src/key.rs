//! Keys and values: how a Rust type becomes words or bytes, and back.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::Debug;

/// The largest number of words of a key or value that is kept inline in a node.
pub const MAX_INLINE_WORDS: usize = 4;

/// Up to [`MAX_INLINE_WORDS`] words; only the first [`Shape::words`] are used, the rest are 0.
pub type Words = [u64; MAX_INLINE_WORDS];

/// The longest byte-string key, in bytes of its encoding.
pub const MAX_KEY_BYTES: usize = 4096;

/// The longest byte-string value, in bytes of its encoding, in a pool whose zones are larger. A record is
/// also no longer than the pool's largest block less 8 bytes: 4,186,104 bytes in a default pool, whose
/// zones are 4 MiB.
pub const MAX_VALUE_BYTES: usize = 4 << 20;

/// The form in which values of a type are kept in a node.
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

    /// Returns `true` if this is [`Shape::Bytes`].
    #[must_use]
    pub const fn is_bytes(self) -> bool {
        matches!(self, Self::Bytes)
    }
}

/// The capacity beyond which a thread does not keep a vector.
const KEPT: usize = 64 << 10;

thread_local! {
    /// The buffer for reading a value that is no vector.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A type that can be kept in an index: a fixed number of words, or a byte string.
///
/// Structs and enums derive it (feature `derive` of `pmindex`), and [`Key`] too:
///
/// ```
/// # extern crate pmindex_index as pmindex; // `pmindex` has the derives itself
/// # use pmindex_derive::{Key, Storable};
/// /// Who ordered when. Orders of one customer lie side by side, in order of time.
/// #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
/// struct OrderId {
///     customer: String,
///     /// Seconds since 1970.
///     time: u64,
/// }
///
/// #[derive(Clone, Debug, PartialEq, Storable)]
/// enum Order {
///     Open { total: u64, note: Option<String> },
///     Paid(f64),
///     Cancelled,
/// }
/// ```
///
/// # Encodings
/// Words are compared as unsigned numbers, the first word first; bytes from the first byte on, a prefix
/// before what it is a prefix of. That is the order of [`Ord`], for every key. The encodings are
/// stable, and do not depend on the machine. On the medium each word is little-endian.
///
/// | type | kept as | encoding |
/// | --- | --- | --- |
/// | `u8` to `u64`; `bool` (0, 1); `char` (its scalar value) | 1 word | the number |
/// | `i8` to `i64` | 1 word | as 64 bits, the sign bit flipped |
/// | `u128`, `i128` | 2 words | the high half first; `i128` with its sign bit flipped |
/// | `NonZero` of an integer | as the integer | as the integer |
/// | `f32`, `f64` (values only), [`Total`](crate::Total) of them | 1 word | the bits of the number as 32 or 64 bits: of a negative number all flipped, of another the sign bit |
/// | `()` | 1 word | 0 |
/// | `[u8; N]`, `N` up to 32 | `N / 8` words, rounded up, at least 1 | big-endian, padded with 0 |
/// | `[u8; N]`, `N` over 32 | bytes | itself |
/// | `Vec<u8>`, `Box<[u8]>`, `Arc<[u8]>`, `Cow<'static, [u8]>`; `String`, `Box<str>`, `Arc<str>`, `Cow<'static, str>` | bytes | itself; UTF-8 |
/// | `Duration` | 2 words | whole seconds; nanoseconds of a second |
/// | `SystemTime` | 2 words | seconds since 1970 in UTC, rounded down, as `i64`; nanoseconds of a second |
/// | structs, tuples of 1 to 8 parts, arrays `[T; N]` of other types than `u8`: all parts in words, 4 words in all | the words of the parts, at least 1 | one after the other |
/// | other structs, tuples and arrays | bytes | the parts one after the other |
/// | `Option<T>`, `T` in up to 3 words | 1 word and those of `T` | `None`: all 0; `Some`: 1 and `T` |
/// | other `Option<T>` | bytes | `None`: `00`; `Some`: `01` and `T`, words as 8 bytes, big-endian |
/// | enums whose variants have parts in words, 3 words each at most | 1 word and those of the greatest variant | the variant's number, its parts one after the other, 0 |
/// | other enums, and those with `#[storable(bytes)]` | bytes | the variant's number in 2 bytes, big-endian; the parts one after the other |
///
/// Parts in bytes are: a word as 8 bytes, big-endian; a byte string with each `00` written as `00 FF`,
/// then `00 00`. A struct without fields and an array of length 0 are kept as `()`.
///
/// Features of `pmindex` add these types; times of one meaning are kept in one way, whatever the library,
/// so an index opens with another library's type, which then takes a time that it cannot represent for
/// the nearest that it can:
///
/// | type | kept as | encoding |
/// | --- | --- | --- |
/// | `uuid`: `Uuid` | 2 words | as a `u128` |
/// | `bytes`: `Bytes` | bytes | itself |
/// | moments: `chrono::DateTime<Utc>`, `time::OffsetDateTime` (comes back in UTC), `time::UtcDateTime`, `jiff::Timestamp` | 2 words | as `SystemTime` |
/// | days: `chrono::NaiveDate`, `time::Date`, `jiff::civil::Date` | 1 word | days since 1970-01-01, as `i64` |
/// | times of day: `chrono::NaiveTime`, `time::Time`, `jiff::civil::Time` | 1 word | seconds since midnight in the high half, nanoseconds in the low |
/// | local times: `chrono::NaiveDateTime`, `time::PrimitiveDateTime`, `jiff::civil::DateTime` | 2 words | the day; the time of day |
/// | signed durations: `chrono::TimeDelta`, `time::Duration`, `jiff::SignedDuration` | 2 words | whole seconds, rounded towards 0, and the remaining nanoseconds, of the same sign; both as `i64` |
/// | `serde`: `Postcard<T>` of what `serde` serializes (values only) | bytes | postcard 1 |
///
/// A leap second of `chrono` has up to 1,999,999,999 nanoseconds; the other libraries read 999,999,999.
///
/// # Numbers of variants
/// The number of a variant is its discriminant: that of the variant before and 1, from 0 on, or the
/// number from 0 to 65535 that the enum says (`Paid = 7`). Rust's derived [`Ord`] compares these numbers
/// first, and so do the encodings.
///
/// # Changing a type
/// An index records the names of its types ([`type_name`](Self::type_name)), and opening it with types
/// of other names is `IndexError::WrongLayout`: data is never read as what it is not. The name of a struct is
/// that of the tuple of its fields; that of an enum has its shape (words or bytes), and its variants with
/// numbers, names and types. So
///
/// - fields and types can be renamed, and a struct of the same types can take the place of a tuple;
/// - a variant can be renamed if it says what it was called: `#[storable(name = "Old")]`;
/// - a variant can be **added** if it says so, `#[storable(added)]`, the numbers of the others stay (it
///   comes last, or they are written out), and the shape stays: an enum of which no variant has fields
///   takes any other such; one with `#[storable(bytes)]` takes any variant, so begin with that
///   where you expect more;
/// - any other change needs a new index, and a loop that copies the records. To avoid that, make the
///   value an enum of its versions from the start, with `#[storable(bytes)]`: `enum Stored { V1(OrderV1) }`,
///   later `#[storable(added)] V2(OrderV2)`. The types of an added variant are not part of the name: once
///   records have it, leave them as they are.
///
/// A program that does not know an added variant finds a record with it damaged if the enum is kept as
/// bytes, else it reads the variant of the greatest number that it knows.
///
/// # Damaged files
/// Bytes that are no encoding are an error. Every pattern of words is a value: high bits are ignored, a `bool` is true if it is not 0, a `char` that is none is
/// U+FFFD, a `NonZero` of 0 is its least value, nanoseconds beyond a second are its last, `Some` is not 0,
/// a number of no variant is the greatest.
///
/// # Types without an encoding
/// `usize` and `isize`, which have another size on another machine; references: keep what owns its data;
/// unions; `Box`, `Vec` and maps of other types: wrap them in `Postcard`.
///
/// # Writing an implementation
/// `Ref` is what operations borrow: `u64` for `u64`, `[u8]` for `Vec<u8>`, `str` for `String`.
/// Only the methods of the type's [`SHAPE`](Self::SHAPE) are ever called; the others may panic. No conversion
/// from words or bytes panics, whatever they are.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no encoding to be kept in an index",
    label = "not `Storable`",
    note = "structs and enums: `#[derive(Storable)]` (feature `derive` of `pmindex`)",
    note = "`usize` and `isize` have another size on another machine: keep `u64` or `i64`",
    note = "what is kept owns its data: `String` for `&str`, `Vec<u8>` for `&[u8]`"
)]
pub trait Storable: Clone + Debug + Send + Sync + 'static {
    /// The borrowed form.
    type Ref: ?Sized + Debug + Sync;
    /// The form in which it is kept.
    const SHAPE: Shape;

    /// `true` if this is `u8`, of which an array is a byte string.
    #[doc(hidden)]
    const IS_BYTE: bool = false;

    /// Returns a name that identifies the encoding; it is part of an index's recorded layout.
    fn type_name() -> String;
    /// Borrows.
    fn borrowed(&self) -> &Self::Ref;
    /// Returns the words of an inline value.
    fn to_words(value: &Self::Ref) -> Words;
    /// Back from the words; every bit pattern must give some value.
    fn from_words(words: &[u64]) -> Self;
    /// Returns the bytes of a byte-string value.
    fn to_bytes(value: &Self::Ref) -> Cow<'_, [u8]>;
    /// Back from the bytes; `None` if they are no encoding of a value.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;

    /// Back from a copy of the bytes, which a type that is one keeps.
    #[must_use]
    fn from_vec(bytes: Vec<u8>) -> Option<Self> {
        Self::from_bytes(&bytes)
    }

    /// Becomes the value whose encoding `read` puts into a vector, which has other bytes in it before;
    /// `false` if it is no encoding, and then this is some value of the type. For a byte-string type.
    ///
    /// A vector and a `String` keep their memory. Any other type is read from a vector that its thread
    /// keeps, and allocates what its parts need.
    fn refill(&mut self, read: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut bytes = SPARE.take();
        read(&mut bytes);
        let value = Self::from_bytes(&bytes);
        if bytes.capacity() <= KEPT {
            SPARE.set(bytes);
        }
        value.map(|value| *self = value).is_some()
    }

    /// Becomes the owned form of a borrowed value, in the memory that it has where it can
    /// ([`refill`](Self::refill)).
    ///
    /// # Panics
    /// As [`owned`](Self::owned).
    fn assign(&mut self, value: &Self::Ref) {
        match Self::SHAPE {
            Shape::Inline(_) => *self = Self::owned(value),
            Shape::Bytes => {
                let done = self.refill(|bytes| {
                    bytes.clear();
                    bytes.extend_from_slice(&Self::to_bytes(value));
                });
                assert!(done, "an encoding of a value");
            }
        }
    }

    /// Returns the owned form of a borrowed value.
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
///
/// Structs and enums whose parts are keys derive it, beside [`Ord`] and [`Storable`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a key",
    label = "not `Key`",
    note = "structs and enums: `#[derive(Key)]` beside `Ord` and `Storable` (feature `derive` of `pmindex`)",
    note = "`f32` and `f64` have no total order: use `Total<f64>`"
)]
pub trait Key: Storable + Ord {}

/// A value.
pub trait Value: Storable + PartialEq {}

impl<T: Storable + PartialEq> Value for T {}

/// Returns `true` if two values are encoded alike. (What `==` says of them is the user's affair: it may deny
/// that a value is itself.)
#[doc(hidden)]
pub fn same_encoding<T: Storable>(one: &T::Ref, other: &T::Ref) -> bool {
    match T::SHAPE {
        Shape::Inline(words) => T::to_words(one)[..words] == T::to_words(other)[..words],
        Shape::Bytes => T::to_bytes(one) == T::to_bytes(other),
    }
}
