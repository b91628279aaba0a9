//! Snapshots: one moment of all maps of a store.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use pmindex_core::{Mapped, Medium};
use pmindex_index::{Key, KeyRange, PrefixKey, Value};

use crate::core::Core;
use crate::error::StoreError;
use crate::handles::Handle;
use crate::map::Shared;
use crate::moments::Reader;
use crate::range::Range;
use crate::versions::ValueAt;

/// One moment of all maps of a store: everything that was committed before it was taken, and nothing after.
/// Writers continue meanwhile. See [`Map::at`](crate::Map::at).
///
/// # Cost
/// While it exists, each write keeps the old value in memory, up to the limit of the store's options. Beyond
/// the limit the oldest snapshot ends, and reads through it return [`StoreError::SnapshotEnded`] from then
/// on, never wrong values. After a crash there are no snapshots.
pub struct Snapshot<M: Medium = Mapped> {
    pub(crate) core: Handle<Core<M>>,
    pub(crate) reader: Reader,
}

impl<M: Medium> fmt::Debug for Snapshot<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("moment", &self.reader.moment()).finish_non_exhaustive()
    }
}

/// A map at a moment.
pub struct MapAt<'m, K: Key, V: Value, M: Medium = Mapped> {
    map: &'m Shared<K, V, M>,
    snapshot: &'m Snapshot<M>,
}

impl<K: Key, V: Value, M: Medium> fmt::Debug for MapAt<'_, K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_struct("MapAt");
        map.field("name", &self.map.name).field("snapshot", self.snapshot).finish()
    }
}

/// The records of a map at a moment, in order, from both ends.
pub type RangeAt<'m, K, V> =
    Box<dyn DoubleEndedIterator<Item = Result<(K, V), StoreError>> + Send + 'm>;

/// Returns a record of a map at the moment of a reader.
pub(crate) fn get_at<K: Key, V: Value, M: Medium>(
    map: &Shared<K, V, M>,
    reader: &Reader,
    key: &K::Ref,
) -> Result<Option<V>, StoreError> {
    let now = map.index.get(key)?;
    // Read after the index: a commit that changed the record since has noted its old value before.
    map.core.pm().yield_point();
    let was = map.versions.at(reader.moment(), key);
    if reader.is_ended() {
        return Err(StoreError::SnapshotEnded { limit: map.core.moments.limit() });
    }
    Ok(match was {
        ValueAt::Was(was) => was,
        ValueAt::Unchanged => now,
    })
}

/// Does the same as [`get_at`], reusing the memory of `value`; returns `true` if the record existed.
fn get_into_at<K: Key, V: Value, M: Medium>(
    map: &Shared<K, V, M>,
    reader: &Reader,
    key: &K::Ref,
    value: &mut V,
) -> Result<bool, StoreError> {
    let now = map.index.get_into(key, value)?;
    // Read after the index: a commit that changed the record since has noted its old value before.
    map.core.pm().yield_point();
    let was = map.versions.at(reader.moment(), key);
    if reader.is_ended() {
        return Err(StoreError::SnapshotEnded { limit: map.core.moments.limit() });
    }
    Ok(match was {
        ValueAt::Was(was) => was.map(|was| *value = was).is_some(),
        ValueAt::Unchanged => now,
    })
}

impl<'m, K: Key, V: Value, M: Medium> MapAt<'m, K, V, M> {
    pub(crate) fn new(map: &'m Shared<K, V, M>, snapshot: &'m Snapshot<M>) -> Self {
        Self { map, snapshot }
    }

    fn check(&self) -> Result<(), StoreError> {
        if !Arc::ptr_eq(&self.map.core, self.snapshot.core.whole()) {
            return Err(StoreError::OtherStore { name: self.map.name.clone() });
        }
        self.map.check_moment(&self.snapshot.reader)
    }

    /// Returns the value of `key` at the moment.
    ///
    /// # Errors
    /// [`StoreError::SnapshotEnded`], [`StoreError::OtherStore`]; [`StoreError::Dropped`] if the snapshot has an
    /// earlier map of this name; those of the index.
    pub fn get(&self, key: &K::Ref) -> Result<Option<V>, StoreError> {
        self.check()?;
        get_at(self.map, &self.snapshot.reader, key)
    }

    /// Reads the value of `key` at the moment into `value`, reusing its memory; returns `false` if the key
    /// was absent. See [`Index::get_into`](pmindex_index::Index::get_into).
    ///
    /// # Cost
    /// No allocation where `Index::get_into` needs none, except for records that were replaced since.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, StoreError> {
        self.check()?;
        get_into_at(self.map, &self.snapshot.reader, key, value)
    }

    /// Returns `true` if `key` was present at the moment.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn contains_key(&self, key: &K::Ref) -> Result<bool, StoreError> {
        Ok(self.get(key)?.is_some())
    }

    /// Returns the records with keys in `range` at the moment, in order, from both ends. An item may be an
    /// error of [`get`](Self::get); it is the last one.
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    #[must_use]
    #[allow(clippy::needless_pass_by_value, reason = "as ranges are passed everywhere")]
    pub fn range(&self, range: impl KeyRange<K>) -> RangeAt<'m, K, V> {
        let (lower, upper) = range.bounds();
        self.range_bounds(lower, upper)
    }

    /// Does the same as [`range`](Self::range), for any bounds.
    ///
    /// # Panics
    /// Like [`range`](Self::range).
    #[must_use]
    pub fn range_bounds(&self, lower: Bound<&K::Ref>, upper: Bound<&K::Ref>) -> RangeAt<'m, K, V> {
        if let Err(error) = self.check() {
            return Box::new(std::iter::once(Err(error)));
        }
        Box::new(Range::new(self.map, &self.snapshot.reader, None, lower, upper))
    }

    /// Returns the records whose keys begin with `prefix` at the moment.
    #[must_use]
    pub fn prefix(&self, prefix: &K::Ref) -> RangeAt<'m, K, V>
    where
        K: PrefixKey,
    {
        let after = K::after_prefix(prefix);
        self.range_bounds(Bound::Included(prefix), after.as_ref().map(K::borrowed))
    }

    /// Returns the least record at the moment.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn first_key_value(&self) -> Result<Option<(K, V)>, StoreError> {
        self.range(..).next().transpose()
    }

    /// Returns the greatest record at the moment.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn last_key_value(&self) -> Result<Option<(K, V)>, StoreError> {
        self.range(..).next_back().transpose()
    }

    /// Returns the number of records at the moment.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    ///
    /// # Cost
    /// Reads all records.
    pub fn len(&self) -> Result<u64, StoreError> {
        let mut all = 0;
        for record in self.range(..) {
            record?;
            all += 1;
        }
        Ok(all)
    }

    /// Returns `true` if the map was empty at the moment.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.first_key_value()?.is_none())
    }
}
