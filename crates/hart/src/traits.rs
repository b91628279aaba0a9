//! The contract of every index.

use std::ops::Bound;
use std::sync::Arc;

use pmindex_core::{Medium, Pool};
use pmindex_index::{
    Index, IndexError, InsertMany, Key, Noted, PmIndex, RangeIter, RecoveryReport, Stats, Value,
};

use crate::tree::Hart;

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> Index<K, V>
    for Hart<K, V, M, CHUNK, PREFIX>
{
    fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        Hart::get(self, key)
    }

    fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        Hart::contains_key(self, key).noted(&self.pool)
    }

    fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        Hart::insert(self, key, value)
    }

    fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        Hart::update(self, key, value)
    }

    fn upsert(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        Hart::upsert(self, key, value)
    }

    fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        Hart::remove(self, key)
    }

    fn range_bounds(&self, lower: Bound<&K::Ref>, upper: Bound<&K::Ref>) -> RangeIter<'_, K, V> {
        let items = self.range((lower.map(K::owned), upper.map(K::owned)));
        Box::new(items.map(|item| item.noted(&self.pool)))
    }

    fn scan(&self, from: &K::Ref, limit: usize, out: &mut Vec<(K, V)>) -> Result<(), IndexError> {
        Hart::scan(self, from, limit, out).noted(&self.pool)
    }

    fn first(&self) -> Result<Option<(K, V)>, IndexError> {
        Hart::first(self).noted(&self.pool)
    }

    fn last(&self) -> Result<Option<(K, V)>, IndexError> {
        Hart::last(self).noted(&self.pool)
    }

    fn len(&self) -> Result<u64, IndexError> {
        Hart::len(self).noted(&self.pool)
    }

    fn is_empty(&self) -> Result<bool, IndexError> {
        Hart::is_empty(self).noted(&self.pool)
    }

    fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        Hart::bulk_load(self, records).noted(&self.pool)
    }

    fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        Hart::get_many(self, keys, out).noted(&self.pool)
    }

    fn insert_many(&self, records: &[(K, V)]) -> InsertMany {
        Hart::insert_many(self, records).noted(&self.pool)
    }

    fn stats(&self) -> Result<Stats, IndexError> {
        Hart::stats(self).noted(&self.pool)
    }

    fn check(&self) -> Result<u64, IndexError> {
        Hart::check(self)
    }

    fn recovery_report(&self) -> RecoveryReport {
        Hart::recovery_report(self)
    }
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> PmIndex<K, V, M>
    for Hart<K, V, M, CHUNK, PREFIX>
{
    const NAME: &'static str = "hart";

    fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        Hart::create(pool, name)
    }

    fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        Hart::open(pool, name).noted(pool)
    }

    fn close(self) -> Result<(), IndexError> {
        Hart::close(self)
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        Hart::blocks(self)
    }
}
