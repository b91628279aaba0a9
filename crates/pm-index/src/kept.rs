//! Types that hold the encodings of other types: words or bytes.
//!
//! An index depends on its types through their shapes alone, and records their names. So an index of
//! [`KeptWords`] and [`KeptBytes`], opened under the names of other types ([`as_types`]), is an index of
//! these, and one compiled index serves all types of one shape.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Deref;

use crate::key::{Key, Shape, Storable, Value, Words};

thread_local! {
    /// The names of the types whose encodings are kept, of keys and of values.
    static NAMES: RefCell<[String; 2]> = const { RefCell::new([String::new(), String::new()]) };
}

/// Runs `work`, which creates or opens an index of kept types, under these names of types.
pub fn as_types<T>(key: String, value: String, work: impl FnOnce() -> T) -> T {
    let before = NAMES.replace([key, value]);
    let done = work();
    NAMES.set(before);
    done
}

/// Keys, among the parameters of kept types.
pub const KEYS: usize = 0;
/// Values, among the parameters of kept types.
pub const VALUES: usize = 1;

/// The encoding of a key or value of `N` words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptWords<const SIDE: usize, const N: usize>(pub [u64; N]);

/// The encoding of a key or value that is a byte string.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptBytes<const SIDE: usize>(pub Vec<u8>);

impl<const SIDE: usize> Clone for KeptBytes<SIDE> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }

    /// Copies into the memory of `self`, which a derived implementation would free.
    fn clone_from(&mut self, source: &Self) {
        self.0.clone_from(&source.0);
    }
}

/// An owned value where a borrowed one is asked for.
#[derive(Debug)]
pub struct Owned<T>(T);

impl<T> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Conversions between a kept type and the types of its shape.
pub trait KeptType: Key + Value {
    /// The encoding, as a call borrows it.
    type Encoded<'a>: Deref<Target = Self::Ref>;

    /// Encodes for a call.
    fn encode<T: Storable>(value: &T::Ref) -> Self::Encoded<'_>;

    /// Encodes to keep.
    fn keep<T: Storable>(value: &T::Ref) -> Self;

    /// Decodes; `None` if this is no encoding.
    fn decode<T: Storable>(self) -> Option<T>;

    /// Lets `read` read the encoding, and decodes it into `value` if `read` returns that there was one;
    /// returns `None` if that is no encoding.
    fn decode_into<T: Storable, E>(
        value: &mut T,
        read: impl FnOnce(&mut Self) -> Result<bool, E>,
    ) -> Result<Option<bool>, E>;

    /// Decodes into `value`; returns `false` if this is no encoding.
    fn copy_into<T: Storable>(&self, value: &mut T) -> bool;
}

impl<const SIDE: usize, const N: usize> Storable for KeptWords<SIDE, N> {
    type Ref = Self;
    const SHAPE: Shape = Shape::Inline(N);

    fn type_name() -> String {
        NAMES.with_borrow(|names| names[SIDE].clone())
    }
    #[inline(always)]
    fn borrowed(&self) -> &Self {
        self
    }
    #[inline(always)]
    fn to_words(value: &Self) -> Words {
        let mut words = Words::default();
        words[..N].copy_from_slice(&value.0);
        words
    }
    #[inline(always)]
    fn from_words(words: &[u64]) -> Self {
        Self(std::array::from_fn(|i| words[i]))
    }
    fn to_bytes(_: &Self) -> Cow<'_, [u8]> {
        unreachable!("kept in words")
    }
    fn from_bytes(_: &[u8]) -> Option<Self> {
        unreachable!("kept in words")
    }
}

impl<const SIDE: usize, const N: usize> Key for KeptWords<SIDE, N> {}

impl<const SIDE: usize, const N: usize> KeptType for KeptWords<SIDE, N> {
    type Encoded<'a> = Owned<Self>;

    #[inline(always)]
    fn encode<T: Storable>(value: &T::Ref) -> Owned<Self> {
        Owned(Self::keep::<T>(value))
    }
    #[inline(always)]
    fn keep<T: Storable>(value: &T::Ref) -> Self {
        Self::from_words(&T::to_words(value))
    }
    #[inline(always)]
    fn decode<T: Storable>(self) -> Option<T> {
        Some(T::from_words(&self.0))
    }
    fn decode_into<T: Storable, E>(
        value: &mut T,
        read: impl FnOnce(&mut Self) -> Result<bool, E>,
    ) -> Result<Option<bool>, E> {
        let mut kept = Self([0; N]);
        let found = read(&mut kept)?;
        if found {
            *value = T::from_words(&kept.0);
        }
        Ok(Some(found))
    }
    #[inline(always)]
    fn copy_into<T: Storable>(&self, value: &mut T) -> bool {
        *value = T::from_words(&self.0);
        true
    }
}

impl<const SIDE: usize> Storable for KeptBytes<SIDE> {
    type Ref = [u8];
    const SHAPE: Shape = Shape::Bytes;

    fn type_name() -> String {
        NAMES.with_borrow(|names| names[SIDE].clone())
    }
    fn borrowed(&self) -> &[u8] {
        &self.0
    }
    fn to_words(_: &[u8]) -> Words {
        unreachable!("kept as bytes")
    }
    fn from_words(_: &[u64]) -> Self {
        unreachable!("kept as bytes")
    }
    fn to_bytes(value: &[u8]) -> Cow<'_, [u8]> {
        Cow::Borrowed(value)
    }
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.to_vec()))
    }
    #[inline]
    fn from_vec(bytes: Vec<u8>) -> Option<Self> {
        Some(Self(bytes))
    }
    #[inline]
    fn refill(&mut self, read: impl FnOnce(&mut Vec<u8>)) -> bool {
        read(&mut self.0);
        true
    }
}

impl<const SIDE: usize> Key for KeptBytes<SIDE> {}

impl<const SIDE: usize> KeptType for KeptBytes<SIDE> {
    type Encoded<'a> = Cow<'a, [u8]>;

    #[inline(always)]
    fn encode<T: Storable>(value: &T::Ref) -> Cow<'_, [u8]> {
        T::to_bytes(value)
    }
    fn keep<T: Storable>(value: &T::Ref) -> Self {
        Self(T::to_bytes(value).into_owned())
    }
    #[inline(always)]
    fn decode<T: Storable>(self) -> Option<T> {
        T::from_vec(self.0)
    }
    fn decode_into<T: Storable, E>(
        value: &mut T,
        read: impl FnOnce(&mut Self) -> Result<bool, E>,
    ) -> Result<Option<bool>, E> {
        let mut found = Ok(false);
        let is_encoding = value.refill(|bytes| {
            let mut kept = Self(std::mem::take(bytes));
            found = read(&mut kept);
            *bytes = kept.0;
        });
        found.map(|found| (is_encoding || !found).then_some(found))
    }
    fn copy_into<T: Storable>(&self, value: &mut T) -> bool {
        value.refill(|bytes| {
            bytes.clear();
            bytes.extend_from_slice(&self.0);
        })
    }
}

/// Work that is compiled for each kept type.
pub trait ForKept {
    /// Its result.
    type Done;

    /// Does it.
    fn run<K: KeptType, V: KeptType>(self) -> Self::Done;
}

/// Runs `work` for the kept types of keys of type `K` and values of type `V`, and compiles it for these alone.
pub fn for_kept<K: Storable, V: Storable, W: ForKept>(work: W) -> W::Done {
    if const { K::SHAPE.is_bytes() } {
        for_values::<KeptBytes<KEYS>, V, W>(work)
    } else if const { K::SHAPE.words() == 1 } {
        for_values::<KeptWords<KEYS, 1>, V, W>(work)
    } else if const { K::SHAPE.words() == 2 } {
        for_values::<KeptWords<KEYS, 2>, V, W>(work)
    } else if const { K::SHAPE.words() == 3 } {
        for_values::<KeptWords<KEYS, 3>, V, W>(work)
    } else {
        for_values::<KeptWords<KEYS, 4>, V, W>(work)
    }
}

fn for_values<K: KeptType, V: Storable, W: ForKept>(work: W) -> W::Done {
    if const { V::SHAPE.is_bytes() } {
        work.run::<K, KeptBytes<VALUES>>()
    } else if const { V::SHAPE.words() == 1 } {
        work.run::<K, KeptWords<VALUES, 1>>()
    } else if const { V::SHAPE.words() == 2 } {
        work.run::<K, KeptWords<VALUES, 2>>()
    } else if const { V::SHAPE.words() == 3 } {
        work.run::<K, KeptWords<VALUES, 3>>()
    } else {
        work.run::<K, KeptWords<VALUES, 4>>()
    }
}
