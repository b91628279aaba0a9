//! The kinds of index that maps can be.

use std::fmt::Debug;
use std::sync::Arc;

use pmindex_core::{IndexEntry, Medium, Pool};
use pmindex_index::{ErasedIndex, IndexError, Key, Value};

/// A set of kinds of index that maps can be. `pmindex` has one with all its indexes.
pub trait Catalog: Debug + Send + Sync + 'static {
    /// A kind of index.
    type Kind: Copy + Debug + PartialEq + Send + Sync + 'static;

    /// The default kind of a map.
    const DEFAULT: Self::Kind;

    /// Returns the kind of an index of a pool, if it is one of these.
    fn kind(entry: &IndexEntry) -> Option<Self::Kind>;

    /// Creates the index `name`.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`]; errors of the pool.
    fn create<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
        kind: Self::Kind,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError>;

    /// Opens the index `name`, of any kind.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`], [`IndexError::WrongLayout`]; errors of the
    /// pool.
    fn open<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError>;

    /// Opens the index `name`, of any kind, which is about to be removed: see
    /// [`PmIndex::open_to_remove`](pmindex_index::PmIndex::open_to_remove).
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    fn open_to_remove<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
        Self::open(pool, name)
    }
}
