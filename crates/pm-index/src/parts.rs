//! What has parts: tuples, and the structs of [`storable!`](crate::storable).
//!
//! Parts that are all inline and have at most four words together are kept inline: their words one
//! after the other. Otherwise the whole is a byte string, each part after the other so that the
//! bytes compare as the parts do: a word is its 8 bytes, the highest first; a byte string is itself
//! with each `00` written as `00 FF`, and ends with `00 00`, so that a prefix comes first.

use std::borrow::Cow;

use crate::key::{MAX_INLINE_WORDS, Shape, Storable, Words};

const END: u8 = 0;
const ZERO: u8 = 0xff;

/// The shape of parts in a row.
#[must_use]
pub const fn shape(parts: &[Shape]) -> Shape {
    let (mut words, mut at) = (0, 0);
    while at < parts.len() {
        match parts[at] {
            Shape::Inline(more) => words += more,
            Shape::Bytes => return Shape::Bytes,
        }
        at += 1;
    }
    match words {
        0 => Shape::Inline(1),
        1..=MAX_INLINE_WORDS => Shape::Inline(words),
        _ => Shape::Bytes,
    }
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
            for byte in T::to_bytes(part.borrowed()).iter() {
                bytes.push(*byte);
                if *byte == 0 {
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

/// All parts of a byte string.
pub fn bytes(fill: impl FnOnce(&mut Vec<u8>)) -> Cow<'static, [u8]> {
    let mut bytes = Vec::with_capacity(64);
    fill(&mut bytes);
    Cow::Owned(bytes)
}

/// Makes a struct storable: it is kept as the tuple of its fields is, and can be opened as that.
///
/// The struct's own derives must have `Clone` and `Debug`; with `PartialEq` it is a
/// [`Value`](crate::Value). For a key derive `Ord` (which compares field by field, in order, as the
/// encoding does) and say `impl Key for` it. Fields are any storable types; their order, number and
/// types are the layout of the index: a struct with another field is another layout.
///
/// ```
/// # use pmindex_index as pmindex;
/// use pmindex::{Key, Shape, Storable, storable};
///
/// storable! {
///     /// Who ordered when.
///     #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
///     pub struct Order {
///         /// A name.
///         pub customer: String,
///         /// Seconds since 1970.
///         pub time: u64,
///     }
/// }
/// impl Key for Order {}
///
/// storable! {
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     struct Point { x: i32, y: i32 }
/// }
///
/// assert_eq!(Order::SHAPE, Shape::Bytes);
/// assert_eq!(Point::SHAPE, Shape::Inline(2));
/// let order = Order { customer: "Ada".into(), time: 7 };
/// assert_eq!(Order::from_bytes(&Order::to_bytes(&order)), Some(order));
/// ```
#[macro_export]
macro_rules! storable {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_attribute:meta])* $field_visibility:vis $field:ident: $type:ty),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $($(#[$field_attribute])* $field_visibility $field: $type,)+
        }

        impl $crate::Storable for $name {
            type Ref = Self;
            const SHAPE: $crate::Shape =
                $crate::parts::shape(&[$(<$type as $crate::Storable>::SHAPE),+]);
            fn type_name() -> ::std::string::String {
                let parts = [$(<$type as $crate::Storable>::type_name()),+];
                ::std::format!("({})", parts.join(", "))
            }
            fn borrowed(&self) -> &Self {
                self
            }
            fn to_words(value: &Self) -> $crate::Words {
                let (mut words, mut at) = ($crate::Words::default(), 0);
                $($crate::parts::put_words(&value.$field, &mut words, &mut at);)+
                words
            }
            fn from_words(words: &[u64]) -> Self {
                let mut rest = words;
                // Fields are evaluated in the order in which they are written.
                Self { $($field: $crate::parts::take_words(&mut rest)),+ }
            }
            fn to_bytes(value: &Self) -> ::std::borrow::Cow<'_, [u8]> {
                $crate::parts::bytes(|bytes| {
                    $($crate::parts::put_bytes(&value.$field, bytes);)+
                })
            }
            fn from_bytes(bytes: &[u8]) -> ::std::option::Option<Self> {
                let mut rest = bytes;
                let value = Self { $($field: $crate::parts::take_bytes(&mut rest)?),+ };
                rest.is_empty().then_some(value)
            }
        }
    };
}
