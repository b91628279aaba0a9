//! Copies one moment of a store while writers continue.

use std::path::Path;
use std::sync::Arc;

use pmindex_core::{FreshPool, IndexEntry, Mapped, Medium, Pool};
use pmindex_index::{IndexError, Key, Value};

use crate::catalog::Catalog;
use crate::error::StoreError;
use crate::layout::LOG_KIND;
use crate::map::{Map, Shared};
use crate::snapshot::Snapshot;
use crate::store::AnyMap;

/// The contents of a backup of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreBackup {
    /// The number of maps.
    pub maps: usize,
    /// The number of records in all maps.
    pub records: u64,
}

/// An open map, with its entry in the directory.
pub(crate) type NamedMap<C, M> = (IndexEntry, Arc<dyn AnyMap<C, M>>);

/// Writes the moment of a snapshot to a new pool at `target`. `maps` are all maps of the store.
pub(crate) fn write<C: Catalog, M: Medium>(
    view: &Snapshot<M>,
    maps: &[NamedMap<C, M>],
    target: &Path,
) -> Result<StoreBackup, StoreError> {
    let file = |error| StoreError::File { path: target.into(), error };
    let fresh = FreshPool::create(target)?;
    let mut backup = StoreBackup { maps: maps.len(), records: 0 };
    for (entry, map) in maps {
        backup.records += Arc::clone(map).copy(entry, view, fresh.pool())?;
    }
    fresh.finish().map_err(file)?;
    Ok(backup)
}

/// Copies the state of a map at a moment to a new index of the same kind; returns the number of records.
pub(crate) fn copy<C: Catalog, K: Key, V: Value, M: Medium>(
    map: &Arc<Shared<K, V, M>>,
    entry: &IndexEntry,
    view: &Snapshot<M>,
    target: &Arc<Pool<Mapped>>,
) -> Result<u64, StoreError> {
    if !map.index.files().is_empty() {
        return Err(StoreError::HasFile { name: entry.name.clone() });
    }
    let kind = C::kind(entry).unwrap_or(C::DEFAULT);
    let index = C::create::<K, V, Mapped>(target, &entry.name, kind)?;
    let map = Map::new(Arc::clone(map));
    let mut failed = None;
    let at = map.at(view);
    let mut records =
        at.range(..).map_while(|item| item.map_err(|error| failed = Some(error)).ok());
    let copied = index.bulk_load(&mut records);
    drop(records);
    if let Some(error) = failed {
        return Err(error);
    }
    let copied = copied?;
    index.close()?;
    Ok(copied)
}

/// Returns the maps of a pool, ordered by name.
pub(crate) fn maps_of<M: Medium>(pool: &Pool<M>) -> Result<Vec<IndexEntry>, IndexError> {
    let mut all = pool.indexes()?;
    all.retain(|entry| entry.kind != LOG_KIND);
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}
