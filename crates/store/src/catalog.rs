//! Which kinds of index a store's maps can be.

use std::fmt::Debug;
use std::sync::Arc;

use pmindex_core::{Medium, Pool};
use pmindex_index::{ErasedIndex, IndexError, Key, Value};

/// A set of kinds of index that maps can be. `pmindex` has one with all its indexes.
pub trait Catalog: Debug + Send + Sync + 'static {
    /// A kind of index.
    type Kind: Copy + Debug + PartialEq + Send + Sync + 'static;

    /// What a map is if nobody says otherwise.
    const DEFAULT: Self::Kind;

    /// Creates the index `name`.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`]; the pool's.
    fn create<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
        kind: Self::Kind,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError>;

    /// Opens the index `name`, of whatever kind it is.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`], [`IndexError::WrongLayout`]; the pool's.
    fn open<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError>;
}
