//! The contract of an index without an order.

use std::sync::Arc;

use pmindex_core::{Medium, Pool};

use crate::error::{IndexError, Missing, Occupied};
use crate::index::{InsertMany, RecoveryReport, Stats};
use crate::key::{Key, Value};
use crate::many::{insert_the_others, put_the_others, remove_the_found};

/// A durable, concurrent map without an order. Names and semantics follow
/// `std::collections::HashMap`, and those that [`Index`](crate::Index) has too are the same.
///
/// When a write returns, its effect is durable in the pool's mode; no operation returns or acts on
/// an effect that a crash could still take back. All operations are linearizable, walks over all
/// records excepted: each record that a walk hands out was present and durable at some moment during
/// it.
///
/// ```
/// # use pmindex_index::{HashIndex, IndexError};
/// /// Counts a visitor; how many times they came before.
/// fn count(visits: &dyn HashIndex<String, u64>, name: &str) -> Result<u64, IndexError> {
///     let before = visits.get(name)?.unwrap_or(0);
///     visits.put(name, &(before + 1))?;
///     Ok(before)
/// }
/// ```
pub trait HashIndex<K: Key, V: Value>: Send + Sync {
    /// Returns the value of `key`.
    fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError>;

    /// Returns whether `key` is present.
    fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        Ok(self.get(key)?.is_some())
    }

    /// Returns the number of records.
    fn len(&self) -> Result<u64, IndexError>;

    /// Reads the value of `key` into `value`, whose memory it uses again; returns `false` if the key is
    /// absent. See [`Index::get_into`](crate::Index::get_into).
    fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        Ok(self.get(key)?.map(|found| *value = found).is_some())
    }

    /// Inserts or replaces a record; returns the value that it replaced.
    fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError>;

    /// Inserts or replaces a record without reading the old value; returns `true` if the key is new.
    fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError>;

    /// Returns whether there are no records.
    fn is_empty(&self) -> Result<bool, IndexError> {
        Ok(self.len()? == 0)
    }

    /// Inserts a record; returns [`Occupied`], and changes nothing, if the key is present.
    fn try_insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Occupied>, IndexError>;

    /// Replaces a value; returns [`Missing`], and changes nothing, if the key is absent.
    fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError>;

    /// Removes a record and returns its value.
    fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError>;

    /// Removes a record if its value equals `value` (as encoded); returns the value that was removed.
    fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError>;

    /// Removes a record if `condition` holds for its value; returns the value that was removed.
    ///
    /// If another thread replaces the value meanwhile, `condition` runs again on the new one. No lock is
    /// held while it runs.
    fn remove_if(
        &self,
        key: &K::Ref,
        condition: &mut dyn FnMut(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        loop {
            match self.get(key)? {
                Some(value) if condition(&value) => {
                    if let Some(removed) = self.remove_exact(key, &value)? {
                        return Ok(Some(removed));
                    }
                }
                _ => return Ok(None),
            }
        }
    }

    /// Calls `visit` with every record, in no particular order, until it returns `false`.
    ///
    /// A record that is present throughout is visited once; one that is inserted or removed meanwhile, at
    /// most once. No lock is held while `visit` runs.
    fn for_each(&self, visit: &mut dyn FnMut(K, V) -> bool) -> Result<(), IndexError>;

    /// Removes the records for which `keep` returns `false`; returns how many.
    ///
    /// Each removal is an operation of its own: other threads go on, and after a crash some of the records
    /// are removed and the others are whole. If another thread replaces a value meanwhile, `keep` runs again
    /// on the new one.
    fn retain(&self, keep: &mut dyn FnMut(&K, &V) -> bool) -> Result<u64, IndexError> {
        let (mut removed, mut failed) = (0, None);
        self.for_each(&mut |key, value| {
            if keep(&key, &value) {
                return true;
            }
            let gone = match self.remove_exact(key.borrowed(), &value) {
                Ok(None) => self.remove_if(key.borrowed(), &mut |value| !keep(&key, value)),
                gone => gone,
            };
            match gone {
                Ok(gone) => removed += u64::from(gone.is_some()),
                Err(error) => failed = Some(error),
            }
            failed.is_none()
        })?;
        failed.map_or(Ok(removed), Err)
    }

    /// Removes all records, as [`retain`](Self::retain) does.
    fn clear(&self) -> Result<(), IndexError> {
        self.retain(&mut |_, _| false).map(drop)
    }

    /// Looks up many keys with overlapping cache misses; `out[i]` is the value of `keys[i]`.
    ///
    /// # Panics
    /// If the slices differ in length.
    fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError>;

    /// Adds many records whose keys are new, with one fence per phase for all; nothing is visible before its fence.
    fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany;

    /// Removes many records, each by itself; `out[i]` is the value that `keys[i]` had: see
    /// [`Index::remove_many`](crate::Index::remove_many).
    ///
    /// # Panics
    /// If the slices differ in length.
    fn remove_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        let get_many = |keys: &[K], out: &mut [Option<V>]| self.get_many(keys, out);
        remove_the_found(keys, out, get_many, |key| self.remove(key.borrowed()))
    }

    /// Adds or replaces many records, each by itself; `out[i]` is the value that `records[i]` replaced: see
    /// [`Index::insert_many`](crate::Index::insert_many).
    ///
    /// # Panics
    /// If the slices differ in length.
    fn insert_many(&self, records: &[(K, V)], out: &mut [Option<V>]) -> Result<(), IndexError> {
        assert_eq!(records.len(), out.len(), "one place per record");
        let insert = |key: &K, value: &V| self.insert(key.borrowed(), value.borrowed());
        insert_the_others(records, out, self.try_insert_many(records), insert)
    }

    /// Adds or replaces many records, each by itself: see [`Index::put_many`](crate::Index::put_many).
    fn put_many(&self, records: &[(K, V)]) -> Result<(), IndexError> {
        let put = |key: &K, value: &V| self.put(key.borrowed(), value.borrowed());
        put_the_others(records, self.try_insert_many(records), put)
    }

    /// Returns the size of the index. Its leaves are the nodes with records; it has no inner nodes.
    fn stats(&self) -> Result<Stats, IndexError>;

    /// Verifies the whole structure; returns the number of records.
    fn check(&self) -> Result<u64, IndexError>;

    /// Returns what opening the index did.
    fn recovery_report(&self) -> RecoveryReport;
}

/// An index without an order that lives in a pool.
pub trait PmHashIndex<K: Key, V: Value, M: Medium>: HashIndex<K, V> + Sized {
    /// The name used by tools.
    const NAME: &'static str;

    /// Creates the index `name` in the pool.
    fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError>;

    /// Opens the index `name`, and recovers it if that is needed.
    fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError>;

    /// Closes the index, and saves what makes the next opening fast.
    fn close(self) -> Result<(), IndexError>;

    /// Returns the offsets of all blocks that this index owns, for the allocator's audit: see
    /// [`PmIndex::blocks`](crate::PmIndex::blocks).
    fn blocks(&self) -> Result<Vec<u64>, IndexError>;

    /// Removes the index `name` and frees all its blocks; returns `false` if it does not exist: see
    /// [`PmIndex::destroy`](crate::PmIndex::destroy).
    ///
    /// # Errors
    /// Those of [`open`](Self::open) and of [`Pool::drop_index`].
    fn destroy(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, IndexError> {
        pool.drop_index(name, |name| Self::open(pool, name)?.blocks())
    }
}

/// Implements [`HashIndex`] and [`PmHashIndex`] for an index whose own methods have the names and the
/// signatures of the traits' methods: what [`impl_index!`](crate::impl_index) is for [`Index`](crate::Index).
#[doc(hidden)]
#[macro_export]
macro_rules! impl_hash_index {
    (
        $index:ident<$key:ident, $value:ident, $medium:ident $(, $number:ident: $type:ty)*>,
        $name:expr
    ) => {
        impl<$key, $value, $medium $(, const $number: $type)*> $crate::HashIndex<$key, $value>
            for $index<$key, $value, $medium $(, $number)*>
        where
            $key: $crate::Key,
            $value: $crate::Value,
            $medium: $crate::Medium,
        {
            fn get(&self, key: &$key::Ref) -> Result<Option<$value>, $crate::IndexError> {
                $index::get(self, key)
            }
            fn get_into(&self, key: &$key::Ref, value: &mut $value) -> Result<bool, $crate::IndexError> {
                $index::get_into(self, key, value)
            }
            fn contains_key(&self, key: &$key::Ref) -> Result<bool, $crate::IndexError> {
                $index::contains_key(self, key)
            }
            fn insert(&self, key: &$key::Ref, value: &$value::Ref) -> Result<Option<$value>, $crate::IndexError> {
                $index::insert(self, key, value)
            }
            fn try_insert(&self, key: &$key::Ref, value: &$value::Ref) -> Result<Result<(), $crate::Occupied>, $crate::IndexError> {
                $index::try_insert(self, key, value)
            }
            fn update(&self, key: &$key::Ref, value: &$value::Ref) -> Result<Result<(), $crate::Missing>, $crate::IndexError> {
                $index::update(self, key, value)
            }
            fn put(&self, key: &$key::Ref, value: &$value::Ref) -> Result<bool, $crate::IndexError> {
                $index::put(self, key, value)
            }
            fn remove(&self, key: &$key::Ref) -> Result<Option<$value>, $crate::IndexError> {
                $index::remove(self, key)
            }
            fn remove_exact(&self, key: &$key::Ref, value: &$value) -> Result<Option<$value>, $crate::IndexError> {
                $index::remove_exact(self, key, value)
            }
            fn for_each(&self, visit: &mut dyn FnMut($key, $value) -> bool) -> Result<(), $crate::IndexError> {
                $index::for_each(self, visit)
            }
            fn len(&self) -> Result<u64, $crate::IndexError> {
                $index::len(self)
            }
            fn get_many(&self, keys: &[$key], out: &mut [Option<$value>]) -> Result<(), $crate::IndexError> {
                $index::get_many(self, keys, out)
            }
            fn try_insert_many(&self, records: &[($key, $value)]) -> $crate::InsertMany {
                $index::try_insert_many(self, records)
            }
            fn stats(&self) -> Result<$crate::Stats, $crate::IndexError> {
                $index::stats(self)
            }
            fn check(&self) -> Result<u64, $crate::IndexError> {
                $index::check(self)
            }
            fn recovery_report(&self) -> $crate::RecoveryReport {
                $index::recovery_report(self)
            }
        }

        impl<$key, $value, $medium $(, const $number: $type)*> $crate::PmHashIndex<$key, $value, $medium>
            for $index<$key, $value, $medium $(, $number)*>
        where
            $key: $crate::Key,
            $value: $crate::Value,
            $medium: $crate::Medium,
        {
            const NAME: &'static str = $name;

            fn create(pool: &std::sync::Arc<$crate::Pool<$medium>>, name: &str) -> Result<Self, $crate::IndexError> {
                $index::create(pool, name)
            }
            fn open(pool: &std::sync::Arc<$crate::Pool<$medium>>, name: &str) -> Result<Self, $crate::IndexError> {
                $index::open(pool, name)
            }
            fn close(self) -> Result<(), $crate::IndexError> {
                $index::close(self)
            }
            fn blocks(&self) -> Result<Vec<u64>, $crate::IndexError> {
                $index::blocks(self)
            }
        }
    };
}
