//! The contract of every index.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pmindex_core::{Medium, Pool};
use pmindex_index::{
    Index, IndexError, InsertMany, Key, PmIndex, RangeIter, RecoveryReport, Stats, Value,
};

use crate::tree::SpTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> Index<K, V>
    for SpTree<K, V, M, LEAF, BUFFER>
{
    fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        SpTree::get(self, key)
    }

    fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        SpTree::contains_key(self, key)
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
        Box::new(self.range((lower.map(K::owned), upper.map(K::owned))))
    }

    fn scan(&self, from: &K::Ref, limit: usize, out: &mut Vec<(K, V)>) -> Result<(), IndexError> {
        SpTree::scan(self, from, limit, out)
    }

    fn first(&self) -> Result<Option<(K, V)>, IndexError> {
        SpTree::first(self)
    }

    fn last(&self) -> Result<Option<(K, V)>, IndexError> {
        SpTree::last(self)
    }

    fn len(&self) -> Result<u64, IndexError> {
        SpTree::len(self)
    }

    fn is_empty(&self) -> Result<bool, IndexError> {
        SpTree::is_empty(self)
    }

    fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        SpTree::bulk_load(self, records)
    }

    fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        SpTree::get_many(self, keys, out)
    }

    fn insert_many(&self, records: &[(K, V)]) -> InsertMany {
        SpTree::insert_many(self, records)
    }

    fn stats(&self) -> Result<Stats, IndexError> {
        SpTree::stats(self)
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
        SpTree::open(pool, name)
    }

    fn close(self) -> Result<(), IndexError> {
        SpTree::close(self)
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        SpTree::blocks(self)
    }
}
