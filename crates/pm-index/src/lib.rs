//! What every `pmindex` index implements: the [`Index`] contract, and how key and value types are
//! kept ([`Storable`], [`Key`], [`Value`]).
//!
//! Code that is written against [`Index`] works with each of them, also as `&dyn Index<K, V>`; what
//! it acknowledges is durable in the mode of the index's pool, and no reader on any thread sees what
//! a crash could take back. [`PmIndex`] adds what only an index in a pool has: creating, opening,
//! closing.
//!
//! ```
//! use pmindex_index::{Index, IndexError};
//!
//! /// Gives a record another key; `false` if there is none, or the new key is taken. A crash leaves
//! /// the record under the old key, under both, or under the new one; it is never lost.
//! fn rename(index: &dyn Index<String, u64>, from: &str, to: &str) -> Result<bool, IndexError> {
//!     let Some(value) = index.get(from)? else { return Ok(false) };
//!     if index.try_insert(to, &value)?.is_err() {
//!         return Ok(false);
//!     }
//!     index.remove(from)?;
//!     Ok(true)
//! }
//! ```
#![forbid(unsafe_code)]

mod array;
mod bytes;
mod encoding;
mod entry;
mod erased;
mod error;
mod float;
mod foreign;
mod hash_index;
mod implement;
mod index;
mod inline;
#[doc(hidden)]
pub mod kept;
mod key;
mod many;
mod moment;
mod noted;
#[doc(hidden)]
pub mod parts;
mod range;
mod records;
mod shaped;
mod tuple;

#[doc(hidden)]
pub use encoding::{decoded, encoded, hash_of};
pub use entry::IndexFormat;
pub use erased::ErasedIndex;
#[doc(hidden)]
pub use erased::erase;
pub use error::{IndexError, Missing, Occupied};
pub use float::Total;
#[cfg(feature = "serde")]
pub use foreign::Postcard;
pub use hash_index::{HashIndex, PmHashIndex};
pub use index::{Index, InsertMany, PmIndex, RangeIter, RecoveryReport, Reserved, Stats};
#[doc(hidden)]
pub use key::same_encoding;
pub use key::{
    Key, MAX_INLINE_WORDS, MAX_KEY_BYTES, MAX_VALUE_BYTES, Shape, Storable, Value, Words,
};
pub use noted::Noted;
pub use range::{KeyRange, PrefixKey};
pub use records::Records;
#[doc(hidden)]
pub use shaped::typed;
// The items that `impl_index!` names where it is used.
#[doc(hidden)]
pub use pmindex_core::{Medium, Pool};
