//! The contract of every index.

use std::ops::Bound;
use std::sync::Arc;

use pmindex_core::{Medium, Pool};
use pmindex_index::{
    Index, IndexError, InsertMany, Key, Noted, PmIndex, RangeIter, RecoveryReport, Stats, Value,
};

use super::tree::NvTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> Index<K, V>
    for NvTree<K, V, M, LEAF, INNER>
{
    fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        NvTree::get(self, key)
    }

    fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        NvTree::contains_key(self, key).noted(&self.pool)
    }

    fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        NvTree::insert(self, key, value)
    }

    fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        NvTree::update(self, key, value)
    }

    fn upsert(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        NvTree::upsert(self, key, value)
    }

    fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        NvTree::remove(self, key)
    }

    fn range_bounds(&self, lower: Bound<&K::Ref>, upper: Bound<&K::Ref>) -> RangeIter<'_, K, V> {
        let items = self.range((lower.map(K::owned), upper.map(K::owned)));
        Box::new(items.map(|item| item.noted(&self.pool)))
    }

    fn scan(&self, from: &K::Ref, limit: usize, out: &mut Vec<(K, V)>) -> Result<(), IndexError> {
        NvTree::scan(self, from, limit, out).noted(&self.pool)
    }

    fn first(&self) -> Result<Option<(K, V)>, IndexError> {
        NvTree::first(self).noted(&self.pool)
    }

    fn last(&self) -> Result<Option<(K, V)>, IndexError> {
        NvTree::last(self).noted(&self.pool)
    }

    fn len(&self) -> Result<u64, IndexError> {
        NvTree::len(self).noted(&self.pool)
    }

    fn is_empty(&self) -> Result<bool, IndexError> {
        NvTree::is_empty(self).noted(&self.pool)
    }

    fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        NvTree::bulk_load(self, records).noted(&self.pool)
    }

    fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        NvTree::get_many(self, keys, out).noted(&self.pool)
    }

    fn insert_many(&self, records: &[(K, V)]) -> InsertMany {
        NvTree::insert_many(self, records).noted(&self.pool)
    }

    fn stats(&self) -> Result<Stats, IndexError> {
        NvTree::stats(self).noted(&self.pool)
    }

    fn check(&self) -> Result<u64, IndexError> {
        NvTree::check(self)
    }

    fn recovery_report(&self) -> RecoveryReport {
        NvTree::recovery_report(self)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> PmIndex<K, V, M>
    for NvTree<K, V, M, LEAF, INNER>
{
    const NAME: &'static str = "nvtree";

    fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        NvTree::create(pool, name)
    }

    fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        NvTree::open(pool, name).noted(pool)
    }

    fn close(self) -> Result<(), IndexError> {
        NvTree::close(self)
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        NvTree::blocks(self)
    }
}
