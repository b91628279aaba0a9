//! Maps in pages, with options.

use std::marker::PhantomData;
use std::sync::Arc;

use pmindex_btree::{Paged, PagedOptions};
use pmindex_core::{Medium, Pool};
use pmindex_index::kept::{ForKept, KeptType, as_types, for_kept};
use pmindex_index::{ErasedIndex, IndexError, Key, Value, erase, typed};

/// Creates an index of pages that stores the encodings of its types, under their names.
struct Make<'a, K, V, M: Medium> {
    pool: &'a Arc<Pool<M>>,
    name: &'a str,
    options: PagedOptions,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value, M: Medium> ForKept for Make<'_, K, V, M> {
    type Done = Result<Box<dyn ErasedIndex<K, V>>, IndexError>;

    fn run<A: KeptType, B: KeptType>(self) -> Self::Done {
        let Self { pool, name, options, .. } = self;
        as_types(K::type_name(), V::type_name(), || {
            let index = Paged::<A, B, M>::create_with(pool, name, &options);
            Ok(typed(erase::<A, B, M, _>(index)?, pool))
        })
    }
}

/// Returns a function that creates a map in pages with these options, for
/// [`Store::map_with`](pmindex_store::Store::map_with).
///
/// A store holds such a map beside others, in one transaction and one snapshot: see [`Paged`] for its costs and
/// limits. A commit is in the log of the store, like any other; the changes reach the map by a commit of its own
/// log. `Store::backup` refuses a store with such a map.
///
/// ```
/// use pmindex::{Index, PagedOptions, PoolOptions, Store, StoreError, StoreOptions, paged};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("library.pool");
/// # let options = StoreOptions::new().pool(PoolOptions::new().size(8 << 20));
/// let store = Store::open_with(&path, &options)?;
/// // 1 MiB of pages in the pool, and up to 64 MiB in a file in its folder.
/// let sizes = PagedOptions::new().memory(1 << 20).file_bytes(64 << 20);
/// let texts = store.map_with::<u64, String>("texts", paged(sizes))?;
/// let counts = store.map::<String, u64>("counts")?; // an ordinary map
/// store.transaction(|tx| {
///     tx.put(&texts, &1, "Call me Ishmael.")?;
///     tx.put(&counts, "texts", &1)
/// })?;
/// let view = store.snapshot()?;
/// texts.put(&1, "Ishmael")?;
/// assert_eq!(texts.at(&view).get(&1)?.as_deref(), Some("Call me Ishmael."));
/// # Ok(())
/// # }
/// ```
#[allow(clippy::type_complexity, reason = "what `map_with` takes")]
pub fn paged<K: Key, V: Value, M: Medium>(
    options: PagedOptions,
) -> impl FnOnce(&Arc<Pool<M>>, &str) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
    move |pool, name| for_kept::<K, V, _>(Make { pool, name, options, types: PhantomData })
}
