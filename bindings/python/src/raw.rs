//! What an index keeps, with the types' names known at run time.
//!
//! An index knows the shape of a type (its number of words, or bytes), its order (of the words, or of the bytes) and
//! its name. So four Rust types for each shape and role are all types that Python has: [`Words`] of one and two
//! words, and [`Bytes`]. Their names are those that [`with_names`] says.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::Debug;
use std::marker::PhantomData;

use facade::{Key, Shape, Storable};

use crate::fault::{Class, Fault};

/// The names of the types of a map, as its index records them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) key: String,
    pub(crate) value: String,
}

thread_local! {
    static NAMES: RefCell<Option<Names>> = const { RefCell::new(None) };
}

/// Puts back what the names were.
struct Restore(Option<Names>);

impl Drop for Restore {
    fn drop(&mut self) {
        NAMES.set(self.0.take());
    }
}

/// Does work during which the types are called so on this thread.
pub(crate) fn with_names<R>(names: Names, work: impl FnOnce() -> R) -> R {
    let _restore = Restore(NAMES.replace(Some(names)));
    work()
}

/// Whether a type is that of keys or of values.
pub(crate) trait Role: Clone + Copy + Debug + Ord + Send + Sync + 'static {
    /// The name of its type.
    fn name(names: &Names) -> &str;
}

/// Of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OfKeys;

/// Of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OfValues;

impl Role for OfKeys {
    fn name(names: &Names) -> &str {
        &names.key
    }
}

impl Role for OfValues {
    fn name(names: &Names) -> &str {
        &names.value
    }
}

/// The name of the type that is opened. Where no map is being opened no index has a type of this name, so
/// nothing is read as what it is not.
fn name_of<R: Role>() -> String {
    NAMES.with_borrow(|names| names.as_ref().map_or("(no type)".into(), |n| R::name(n).to_owned()))
}

/// The most words in a node.
pub(crate) const MOST_WORDS: usize = 2;

/// Something encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// Words; unused ones are 0.
    Words([u64; MOST_WORDS]),
    /// A byte string.
    Bytes(Vec<u8>),
}

/// A borrowed encoding.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lent<'r> {
    Words([u64; MOST_WORDS]),
    Bytes(&'r [u8]),
}

impl Raw {
    pub(crate) fn lend(&self) -> Lent<'_> {
        match self {
            Self::Words(words) => Lent::Words(*words),
            Self::Bytes(bytes) => Lent::Bytes(bytes),
        }
    }
}

/// A type of an index, whose name is known at run time.
pub(crate) trait RawType: Storable + PartialEq {
    /// Calls `work` with the borrowed form.
    fn lend_from<R>(
        lent: Lent<'_>,
        work: impl FnOnce(&Self::Ref) -> Result<R, Fault>,
    ) -> Result<R, Fault>;
    /// Returns the encoding.
    fn into_raw(self) -> Raw;
    /// Returns the owned form.
    fn take_from(lent: Lent<'_>) -> Result<Self, Fault> {
        Self::lend_from(lent, |value| Ok(Self::owned(value)))
    }
}

fn other_shape<R>() -> Result<R, Fault> {
    Err(Fault::new(Class::Internal, "a key or value of another shape than that of its map"))
}

/// `N` words, compared as unsigned numbers, the first one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Words<R, const N: usize>([u64; N], PhantomData<R>);

impl<R: Role, const N: usize> Storable for Words<R, N> {
    type Ref = Self;
    const SHAPE: Shape = Shape::Inline(N);

    fn type_name() -> String {
        name_of::<R>()
    }
    #[inline]
    fn borrowed(&self) -> &Self {
        self
    }
    #[inline]
    fn to_words(value: &Self) -> [u64; 4] {
        let mut words = [0; 4];
        words[..N].copy_from_slice(&value.0);
        words
    }
    #[inline]
    fn from_words(words: &[u64]) -> Self {
        let mut own = [0; N];
        own.copy_from_slice(&words[..N]);
        Self(own, PhantomData)
    }
    fn to_bytes(value: &Self) -> Cow<'_, [u8]> {
        Cow::Owned(value.0.iter().flat_map(|word| word.to_be_bytes()).collect())
    }
    fn from_bytes(_: &[u8]) -> Option<Self> {
        None // kept as words
    }
}

impl<const N: usize> Key for Words<OfKeys, N> {}

impl<R: Role, const N: usize> RawType for Words<R, N> {
    fn lend_from<T>(
        lent: Lent<'_>,
        work: impl FnOnce(&Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        match lent {
            Lent::Words(words) => work(&Self::from_words(&words)),
            Lent::Bytes(_) => other_shape(),
        }
    }
    fn into_raw(self) -> Raw {
        let mut words = [0; MOST_WORDS];
        words[..N].copy_from_slice(&self.0);
        Raw::Words(words)
    }
}

/// A byte string, compared from the first byte on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes<R>(Vec<u8>, PhantomData<R>);

impl<R: Role> Storable for Bytes<R> {
    type Ref = [u8];
    const SHAPE: Shape = Shape::Bytes;

    fn type_name() -> String {
        name_of::<R>()
    }
    fn borrowed(&self) -> &[u8] {
        &self.0
    }
    fn to_words(_: &[u8]) -> [u64; 4] {
        [0; 4] // kept as bytes
    }
    fn from_words(_: &[u64]) -> Self {
        Self(Vec::new(), PhantomData)
    }
    fn to_bytes(value: &[u8]) -> Cow<'_, [u8]> {
        Cow::Borrowed(value)
    }
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.to_vec(), PhantomData))
    }
    fn from_vec(bytes: Vec<u8>) -> Option<Self> {
        Some(Self(bytes, PhantomData))
    }
    fn refill(&mut self, read: impl FnOnce(&mut Vec<u8>)) -> bool {
        read(&mut self.0);
        true
    }
}

impl Key for Bytes<OfKeys> {}

impl<R: Role> RawType for Bytes<R> {
    fn lend_from<T>(
        lent: Lent<'_>,
        work: impl FnOnce(&[u8]) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        match lent {
            Lent::Bytes(bytes) => work(bytes),
            Lent::Words(_) => other_shape(),
        }
    }
    fn into_raw(self) -> Raw {
        Raw::Bytes(self.0)
    }
}
