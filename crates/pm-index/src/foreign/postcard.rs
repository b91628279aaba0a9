//! Values that `serde` serializes.

use std::borrow::Cow;
use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::key::{Shape, Storable, Words};

/// A value that `serde` serializes, kept in the format of postcard 1.
///
/// For types of other crates, and for maps, vectors and boxes; of your own derive
/// [`Storable`] where you can. Postcard writes neither names nor types, and the index records none: every
/// `Postcard<T>` is `"postcard"` to it. So an index of another `T` opens, and its values are damaged or
/// make no sense; `T` changes as postcard allows, which is by variants at the end of an enum.
///
/// A damaged file costs an error, but as much stack as it likes if `T` contains itself, and as much time
/// if `T` has a vector of what takes no bytes.
///
/// ```
/// use std::collections::BTreeMap;
/// # mod pmindex { pub use pmindex_index::*; }
/// use pmindex::{Postcard, Storable};
///
/// type Stock = Postcard<BTreeMap<String, u32>>;
/// let stock: Stock = Postcard([("apple".into(), 3), ("pear".into(), 5)].into());
/// assert_eq!(Stock::from_bytes(&Stock::to_bytes(&stock)), Some(stock));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Postcard<T>(pub T);

impl<T> From<T> for Postcard<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T> Storable for Postcard<T>
where
    T: Serialize + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    type Ref = Self;
    const SHAPE: Shape = Shape::Bytes;
    fn type_name() -> String {
        "postcard".into()
    }
    fn borrowed(&self) -> &Self {
        self
    }
    fn to_words(_: &Self) -> Words {
        unreachable!("a byte string")
    }
    fn from_words(_: &[u64]) -> Self {
        unreachable!("a byte string")
    }
    /// # Panics
    /// If `T` refuses to be serialized, or is a sequence that does not know its length.
    #[allow(clippy::expect_used, reason = "a broken implementation of `Serialize`, not an error")]
    fn to_bytes(value: &Self) -> Cow<'_, [u8]> {
        Cow::Owned(postcard::to_allocvec(&value.0).expect("a value that can be serialized"))
    }
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
        crate::parts::whole(rest, Self(value))
    }
}
