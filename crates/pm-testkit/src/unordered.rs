//! An index without an order, tested like those with one.
//!
//! [`Unordered`] makes an [`Index`] of a [`HashIndex`]: it forwards the index's own operations; a range is a
//! walk over all records, sorted. So the conformance suite, the crash campaigns and the golden costs of the
//! ordered indexes serve an index by hash as well.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use pmindex_core::{Medium, Pool};
use pmindex_index::{
    HashIndex, Index, IndexError, InsertMany, Key, Missing, Occupied, PmHashIndex, PmIndex,
    RangeIter, RecoveryReport, Stats, Value,
};

use crate::adapter::sorted;

/// A [`HashIndex`] with ranges.
#[derive(Debug)]
pub struct Unordered<I>(pub I);

impl<K: Key, V: Value, I: HashIndex<K, V>> Index<K, V> for Unordered<I> {
    fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.0.get(key)
    }
    fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        self.0.get_into(key, value)
    }
    fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        self.0.contains_key(key)
    }
    fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        self.0.insert(key, value)
    }
    fn try_insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Occupied>, IndexError> {
        self.0.try_insert(key, value)
    }
    fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        self.0.update(key, value)
    }
    fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        self.0.put(key, value)
    }
    fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.0.remove(key)
    }
    fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        self.0.remove_exact(key, value)
    }
    fn remove_if(
        &self,
        key: &K::Ref,
        condition: &mut dyn FnMut(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        self.0.remove_if(key, condition)
    }
    fn retain(&self, keep: &mut dyn FnMut(&K, &V) -> bool) -> Result<u64, IndexError> {
        self.0.retain(keep)
    }
    fn clear(&self) -> Result<(), IndexError> {
        self.0.clear()
    }

    /// Collects every record of the index within the bounds, when the range is made.
    fn range_bounds(&self, lower: Bound<&K::Ref>, upper: Bound<&K::Ref>) -> RangeIter<'_, K, V> {
        let bounds = (lower.map(K::owned), upper.map(K::owned));
        let (mut records, mut twice) = (BTreeMap::new(), false);
        let walked = self.0.for_each(&mut |key, value| {
            twice |= records.insert(key, value).is_some();
            true
        });
        assert!(!twice, "a walk handed out a record twice");
        match walked {
            Ok(()) => {
                let items: Vec<_> =
                    records.range(bounds).map(|(k, v)| (k.clone(), v.clone())).collect();
                Box::new(items.into_iter().map(Ok))
            }
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    fn len(&self) -> Result<u64, IndexError> {
        self.0.len()
    }
    fn is_empty(&self) -> Result<bool, IndexError> {
        self.0.is_empty()
    }

    /// Returns the records of a load in one batch; a failed load leaves none.
    fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        let records = sorted(records)?;
        if !self.0.is_empty()? {
            return Err(IndexError::NotEmpty);
        }
        match self.0.try_insert_many(&records).stopped {
            None => Ok(records.len() as u64),
            Some(error) => {
                self.0.clear()?;
                Err(error)
            }
        }
    }

    fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        self.0.get_many(keys, out)
    }
    fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany {
        self.0.try_insert_many(records)
    }
    fn put_many(&self, records: &[(K, V)]) -> Result<(), IndexError> {
        self.0.put_many(records)
    }
    fn insert_many(&self, records: &[(K, V)], out: &mut [Option<V>]) -> Result<(), IndexError> {
        self.0.insert_many(records, out)
    }
    fn remove_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        self.0.remove_many(keys, out)
    }
    fn stats(&self) -> Result<Stats, IndexError> {
        self.0.stats()
    }
    fn check(&self) -> Result<u64, IndexError> {
        self.0.check()
    }
    fn recovery_report(&self) -> RecoveryReport {
        self.0.recovery_report()
    }
}

impl<K: Key, V: Value, M: Medium, I: PmHashIndex<K, V, M>> PmIndex<K, V, M> for Unordered<I> {
    const NAME: &'static str = I::NAME;
    const LOADS_AT_ONCE: bool = false;

    fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        I::create(pool, name).map(Self)
    }
    fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        I::open(pool, name).map(Self)
    }
    fn close(self) -> Result<(), IndexError> {
        self.0.close()
    }
    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.0.blocks()
    }
}
