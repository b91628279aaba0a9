//! Indexes of words and of byte strings on a mapped pool, compiled in this library.
//!
//! A crate that depends on this one with the feature `precompiled` calls them instead of compiling its own.
//! So programs of many crates, or many test programs, compile each kind of index once.

use std::any::Any;
use std::sync::Arc;

use pmindex_core::{Mapped, Medium, Pool};
use pmindex_index::kept::{KEYS, KeptBytes, KeptWords, VALUES};
use pmindex_index::{ErasedIndex, IndexError, Key, Value, typed};

use super::{How, Kind};

type Key1 = KeptWords<KEYS, 1>;
type KeyBytes = KeptBytes<KEYS>;
type Value1 = KeptWords<VALUES, 1>;
type ValueBytes = KeptBytes<VALUES>;

/// Returns `true` if an index for these types on this medium is compiled here.
pub(super) const fn has<K: Key, V: Value, M: Medium>() -> bool {
    M::IS_MAPPED && K::SHAPE.words() <= 1 && V::SHAPE.words() <= 1
}

/// Creates (`new`) or opens an index for types that [have](has) a compiled one.
pub(super) fn make<K: Key, V: Value, M: Medium>(
    kind: Kind,
    pool: &Arc<Pool<M>>,
    name: &str,
    how: How,
) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
    let Some(mapped) = (pool as &dyn Any).downcast_ref::<Arc<Pool<Mapped>>>() else {
        unreachable!("a mapped pool");
    };
    if const { K::SHAPE.is_bytes() && V::SHAPE.is_bytes() } {
        Ok(typed(bytes_bytes(kind, mapped, name, how)?, pool))
    } else if const { K::SHAPE.is_bytes() } {
        Ok(typed(bytes_words(kind, mapped, name, how)?, pool))
    } else if const { V::SHAPE.is_bytes() } {
        Ok(typed(words_bytes(kind, mapped, name, how)?, pool))
    } else {
        Ok(typed(words_words(kind, mapped, name, how)?, pool))
    }
}

/// A function that compiles all kinds of index for two types.
macro_rules! compiled {
    ($($name:ident: $key:ty, $value:ty;)+) => { $(
        fn $name(
            kind: Kind,
            pool: &Arc<Pool<Mapped>>,
            name: &str,
            how: How,
        ) -> Result<Box<dyn ErasedIndex<$key, $value>>, IndexError> {
            kind.make::<$key, $value, Mapped>(pool, name, how)
        }
    )+ };
}

compiled! {
    words_words: Key1, Value1;
    words_bytes: Key1, ValueBytes;
    bytes_words: KeyBytes, Value1;
    bytes_bytes: KeyBytes, ValueBytes;
}
