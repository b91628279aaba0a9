//! What every `pmindex` index implements: the [`Index`] contract, and how key and value types are
//! kept ([`Storable`], [`Key`], [`Value`]).
#![forbid(unsafe_code)]

mod bytes;
mod error;
mod index;
mod inline;
mod key;
#[doc(hidden)]
pub mod parts;
mod tuple;

pub use error::IndexError;
pub use index::{Index, InsertMany, PmIndex, RangeIter, RecoveryReport, Stats};
pub use key::{
    Key, MAX_INLINE_WORDS, MAX_KEY_BYTES, MAX_VALUE_BYTES, Shape, Storable, Value, Words,
};
