//! Byte strings: vectors and text.

use std::borrow::Cow;
use std::sync::Arc;

/// Implements [`Storable`] for owners of a byte string or text: the borrowed form, the name, its
/// bytes, the owner of a vector of them.
macro_rules! byte_string {
    ($($t:ty, $borrowed:ty, $name:literal, |$v:ident| $to:expr, |$bytes:ident| $from:expr
        $(, $refill:item)?;)*) => { $(
        impl $crate::key::Storable for $t {
            type Ref = $borrowed;
            const SHAPE: $crate::key::Shape = $crate::key::Shape::Bytes;
            fn type_name() -> String {
                $name.into()
            }
            fn borrowed(&self) -> &$borrowed {
                self
            }
            fn to_words(_: &$borrowed) -> $crate::key::Words {
                unreachable!("a byte string")
            }
            fn from_words(_: &[u64]) -> Self {
                unreachable!("a byte string")
            }
            fn to_bytes($v: &$borrowed) -> std::borrow::Cow<'_, [u8]> {
                std::borrow::Cow::Borrowed($to)
            }
            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                Self::from_vec(bytes.to_vec())
            }
            #[inline]
            fn from_vec($bytes: Vec<u8>) -> Option<Self> {
                $from
            }
            $($refill)?
        }
        impl $crate::key::Key for $t {}
    )* };
}
#[cfg(feature = "bytes")]
pub(crate) use byte_string;

byte_string! {
    Vec<u8>, [u8], "bytes", |v| v, |bytes| Some(bytes),
        #[inline]
        fn refill(&mut self, read: impl FnOnce(&mut Vec<u8>)) -> bool {
            read(self);
            true
        };
    Box<[u8]>, [u8], "bytes", |v| v, |bytes| Some(bytes.into());
    Arc<[u8]>, [u8], "bytes", |v| v, |bytes| Some(bytes.into());
    Cow<'static, [u8]>, [u8], "bytes", |v| v, |bytes| Some(bytes.into());
    String, str, "str", |v| v.as_bytes(), |bytes| String::from_utf8(bytes).ok(),
        #[inline]
        fn refill(&mut self, read: impl FnOnce(&mut Vec<u8>)) -> bool {
            let mut bytes = std::mem::take(self).into_bytes();
            read(&mut bytes);
            match String::from_utf8(bytes) {
                Ok(text) => {
                    *self = text;
                    true
                }
                Err(error) => {
                    let mut bytes = error.into_bytes();
                    bytes.clear(); // keeps the memory
                    *self = String::from_utf8(bytes).unwrap_or_default();
                    false
                }
            }
        };
    Box<str>, str, "str", |v| v.as_bytes(), |bytes| Some(String::from_utf8(bytes).ok()?.into());
    Arc<str>, str, "str", |v| v.as_bytes(), |bytes| Some(String::from_utf8(bytes).ok()?.into());
    Cow<'static, str>, str, "str", |v| v.as_bytes(),
        |bytes| Some(String::from_utf8(bytes).ok()?.into());
}
