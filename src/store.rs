//! The store over the indexes of this crate.

use std::sync::Arc;

use pmindex_core::{IndexEntry, Mapped, Medium, Pool};
use pmindex_index::{ErasedIndex, IndexError, Key, Value};
use pmindex_store::Catalog;

use crate::any::{AnyIndex, Kind};

/// The kinds of index of this build, for the maps of a [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds;

impl Catalog for Kinds {
    type Kind = Kind;

    const DEFAULT: Kind = Kind::ALL[0];

    fn kind(entry: &IndexEntry) -> Option<Kind> {
        Kind::of(entry)
    }

    fn create<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
        kind: Kind,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
        Ok(AnyIndex::create(pool, name, kind)?.into_erased())
    }

    fn open<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
        Ok(AnyIndex::open(pool, name)?.into_erased())
    }

    fn open_to_remove<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
        Ok(AnyIndex::open_to_remove(pool, name)?.into_erased())
    }
}

/// Named typed maps in one pool, with transactions and snapshots over all of them.
///
/// ```
/// use pmindex::{Index, Missing, Store, StoreError};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("shop.pool");
/// # let store = Store::open_with(&path, &pmindex::StoreOptions::new().pool(pmindex::PoolOptions::new().size(8 << 20)))?;
/// # #[cfg(any())]
/// let store = Store::open("shop.pool")?; // creates or opens; recovers
/// let stock = store.map::<String, u64>("stock")?; // FPTree by default
/// let orders = store.map::<u64, String>("orders")?;
/// stock.insert("apple", &3)?; // like BTreeMap::insert: returns the old value
///
/// // All or nothing, serializable, durable when it returns; run again on a conflict.
/// store.transaction(|tx| {
///     let left = tx.get(&stock, "apple")?.ok_or(Missing)?;
///     tx.put(&stock, "apple", &(left - 1))?;
///     let last = tx.last_key_value(&orders)?.map_or(0, |(number, _)| number);
///     tx.put(&orders, &(last + 1), "apple")
/// })?;
///
/// let view = store.snapshot()?; // a consistent view of all maps; writers continue
/// stock.remove("apple")?;
/// assert_eq!(stock.at(&view).get("apple")?, Some(2));
/// let newest: Vec<_> = orders.at(&view).range(..).rev().collect::<Result<_, StoreError>>()?;
/// assert_eq!(newest, [(1, "apple".to_owned())]);
/// # Ok(())
/// # }
/// ```
pub type Store<M = Mapped> = pmindex_store::Store<Kinds, M>;
