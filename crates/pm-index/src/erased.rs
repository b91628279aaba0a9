//! An index whose type is not known.

use std::path::PathBuf;

use pmindex_core::Medium;

use crate::error::IndexError;
use crate::index::{Index, PmIndex, Reserved};
use crate::key::{Key, Value};

/// A [`PmIndex`] without its type and its medium.
pub trait ErasedIndex<K: Key, V: Value>: Index<K, V> {
    /// As [`PmIndex::close`].
    fn close(self: Box<Self>) -> Result<(), IndexError>;
    /// As [`PmIndex::blocks`].
    fn blocks(&self) -> Result<Vec<u64>, IndexError>;
    /// As [`PmIndex::files`].
    fn files(&self) -> Vec<PathBuf>;
    /// As [`PmIndex::fits`].
    fn fits(&self, key: &K::Ref, value: &V::Ref) -> Result<(), IndexError>;
    /// As [`PmIndex::RESERVES`].
    fn reserves(&self) -> bool;
    /// As [`PmIndex::reserve`].
    fn reserve<'r>(
        &self,
        puts: &mut dyn Iterator<Item = (&'r K::Ref, &'r V::Ref)>,
    ) -> Result<Reserved, IndexError>;
    /// As [`PmIndex::put_reserved`].
    fn put_reserved(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        reserved: &Reserved,
    ) -> Result<bool, IndexError>;
    /// As [`PmIndex::put_many_reserved`].
    fn put_many_reserved(&self, records: &[(K, V)], reserved: &Reserved) -> Result<(), IndexError>;
}

/// An index with its medium, which [`PmIndex`] has as a parameter.
struct On<I, M> {
    index: I,
    medium: std::marker::PhantomData<fn() -> M>,
}

/// Hands the calls of [`Index`] on to a field.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_index {
    ($($field:ident).+) => {
        fn get(&self, key: &K::Ref) -> Result<Option<V>, $crate::IndexError> {
            self.$($field).+.get(key)
        }
        fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, $crate::IndexError> {
            self.$($field).+.get_into(key, value)
        }
        fn contains_key(&self, key: &K::Ref) -> Result<bool, $crate::IndexError> {
            self.$($field).+.contains_key(key)
        }
        fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, $crate::IndexError> {
            self.$($field).+.insert(key, value)
        }
        fn try_insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), $crate::Occupied>, $crate::IndexError> {
            self.$($field).+.try_insert(key, value)
        }
        fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), $crate::Missing>, $crate::IndexError> {
            self.$($field).+.update(key, value)
        }
        fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, $crate::IndexError> {
            self.$($field).+.put(key, value)
        }
        fn remove(&self, key: &K::Ref) -> Result<Option<V>, $crate::IndexError> {
            self.$($field).+.remove(key)
        }
        fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, $crate::IndexError> {
            self.$($field).+.remove_exact(key, value)
        }
        fn range_bounds(&self, lower: ::std::ops::Bound<&K::Ref>, upper: ::std::ops::Bound<&K::Ref>) -> $crate::RangeIter<'_, K, V> {
            self.$($field).+.range_bounds(lower, upper)
        }
        fn scan(&self, from: &K::Ref, limit: usize, out: &mut Vec<(K, V)>) -> Result<(), $crate::IndexError> {
            self.$($field).+.scan(from, limit, out)
        }
        fn scan_bounds_into(&self, lower: ::std::ops::Bound<&K::Ref>, upper: ::std::ops::Bound<&K::Ref>, limit: usize, out: &mut $crate::Records<K, V>) -> Result<usize, $crate::IndexError> {
            self.$($field).+.scan_bounds_into(lower, upper, limit, out)
        }
        fn first_key_value(&self) -> Result<Option<(K, V)>, $crate::IndexError> {
            self.$($field).+.first_key_value()
        }
        fn last_key_value(&self) -> Result<Option<(K, V)>, $crate::IndexError> {
            self.$($field).+.last_key_value()
        }
        fn len(&self) -> Result<u64, $crate::IndexError> {
            self.$($field).+.len()
        }
        fn is_empty(&self) -> Result<bool, $crate::IndexError> {
            self.$($field).+.is_empty()
        }
        fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, $crate::IndexError> {
            self.$($field).+.bulk_load(records)
        }
        fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), $crate::IndexError> {
            self.$($field).+.get_many(keys, out)
        }
        fn try_insert_many(&self, records: &[(K, V)]) -> $crate::InsertMany {
            self.$($field).+.try_insert_many(records)
        }
        fn put_many(&self, records: &[(K, V)]) -> Result<(), $crate::IndexError> {
            self.$($field).+.put_many(records)
        }
        fn insert_many(&self, records: &[(K, V)], out: &mut [Option<V>]) -> Result<(), $crate::IndexError> {
            self.$($field).+.insert_many(records, out)
        }
        fn remove_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), $crate::IndexError> {
            self.$($field).+.remove_many(keys, out)
        }
        fn stats(&self) -> Result<$crate::Stats, $crate::IndexError> {
            self.$($field).+.stats()
        }
        fn check(&self) -> Result<u64, $crate::IndexError> {
            self.$($field).+.check()
        }
        fn recovery_report(&self) -> $crate::RecoveryReport {
            self.$($field).+.recovery_report()
        }
        fn has_background(&self) -> bool {
            self.$($field).+.has_background()
        }
        fn background(&self, stop: &::std::sync::atomic::AtomicBool) -> Result<(), $crate::IndexError> {
            self.$($field).+.background(stop)
        }
    };
}

impl<K: Key, V: Value, M: Medium, I: PmIndex<K, V, M>> Index<K, V> for On<I, M> {
    crate::forward_index!(index);
}

impl<K: Key, V: Value, M: Medium, I: PmIndex<K, V, M>> ErasedIndex<K, V> for On<I, M> {
    fn close(self: Box<Self>) -> Result<(), IndexError> {
        self.index.close()
    }
    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.index.blocks()
    }
    fn files(&self) -> Vec<PathBuf> {
        self.index.files()
    }
    fn fits(&self, key: &K::Ref, value: &V::Ref) -> Result<(), IndexError> {
        self.index.fits(key, value)
    }
    fn reserves(&self) -> bool {
        I::RESERVES
    }
    fn reserve<'r>(
        &self,
        puts: &mut dyn Iterator<Item = (&'r K::Ref, &'r V::Ref)>,
    ) -> Result<Reserved, IndexError> {
        self.index.reserve(puts)
    }
    fn put_reserved(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        reserved: &Reserved,
    ) -> Result<bool, IndexError> {
        self.index.put_reserved(key, value, reserved)
    }
    fn put_many_reserved(&self, records: &[(K, V)], reserved: &Reserved) -> Result<(), IndexError> {
        self.index.put_many_reserved(records, reserved)
    }
}

/// Creates or opens an index of a known type and forgets the type.
#[doc(hidden)]
pub fn erase<K: Key, V: Value, M: Medium, I: PmIndex<K, V, M> + 'static>(
    index: Result<I, IndexError>,
) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
    Ok(Box::new(On { index: index?, medium: std::marker::PhantomData }))
}
