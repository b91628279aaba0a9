//! The contract of every index.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pmindex_core::{Medium, Pool};
use pmindex_index::{
    Index, IndexError, InsertMany, Key, Noted, PmIndex, RangeIter, RecoveryReport, Stats, Value,
};

use crate::tree::SpTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> Index<K, V>
    for SpTree<K, V, M, LEAF, BUFFER>
{
    fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        SpTree::get(self, key)
    }

    fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        SpTree::contains_key(self, key).noted(&self.pool)
    }

    fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        SpTree::insert(self, key, value)
    }

    fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        SpTree::update(self, key, value)
    }

    fn upsert(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        SpTree::upsert(self, key, value)
    }

    fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        SpTree::remove(self, key)
    }

    fn range_bounds(&self, lower: Bound<&K::Ref>, upper: Bound<&K::Ref>) -> RangeIter<'_, K, V> {
        let items = self.range((lower.map(K::owned), upper.map(K::owned)));
        Box::new(items.map(|item| item.noted(&self.pool)))
    }

    fn scan(&self, from: &K::Ref, limit: usize, out: &mut Vec<(K, V)>) -> Result<(), IndexError> {
        SpTree::scan(self, from, limit, out).noted(&self.pool)
    }

    fn first(&self) -> Result<Option<(K, V)>, IndexError> {
        SpTree::first(self).noted(&self.pool)
    }

    fn last(&self) -> Result<Option<(K, V)>, IndexError> {
        SpTree::last(self).noted(&self.pool)
    }

    fn len(&self) -> Result<u64, IndexError> {
        SpTree::len(self).noted(&self.pool)
    }

    fn is_empty(&self) -> Result<bool, IndexError> {
        SpTree::is_empty(self).noted(&self.pool)
    }

    fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        SpTree::bulk_load(self, records).noted(&self.pool)
    }

    fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        SpTree::get_many(self, keys, out).noted(&self.pool)
    }

    fn insert_many(&self, records: &[(K, V)]) -> InsertMany {
        SpTree::insert_many(self, records).noted(&self.pool)
    }

    fn stats(&self) -> Result<Stats, IndexError> {
        SpTree::stats(self).noted(&self.pool)
    }

    fn check(&self) -> Result<u64, IndexError> {
        SpTree::check(self)
    }

    fn recovery_report(&self) -> RecoveryReport {
        SpTree::recovery_report(self)
    }

    fn has_background(&self) -> bool {
        Self::BUFFERED
    }

    fn background(&self, stop: &AtomicBool) -> Result<(), IndexError> {
        self.worker().run(stop)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> PmIndex<K, V, M>
    for SpTree<K, V, M, LEAF, BUFFER>
{
    const NAME: &'static str = if BUFFER == 0 { "sptree" } else { "sptree-buffered" };

    fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        SpTree::create(pool, name)
    }

    fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        SpTree::open(pool, name).noted(pool)
    }

    fn close(self) -> Result<(), IndexError> {
        SpTree::close(self)
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        SpTree::blocks(self)
    }
}
