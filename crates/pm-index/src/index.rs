//! The contract of every index as traits.

use std::any::Any;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pmindex_core::{Medium, Pool};

use crate::error::{IndexError, Missing, Occupied};
use crate::key::{Key, Value};
use crate::many::{insert_the_others, put_the_others, remove_the_found};
use crate::range::{KeyRange, PrefixKey};
use crate::records::Records;

/// The iterator of a range: records in key order, or errors, from both ends.
pub type RangeIter<'a, K, V> =
    Box<dyn DoubleEndedIterator<Item = Result<(K, V), IndexError>> + Send + 'a>;

/// Room that an index keeps for records that are certain to come, until this is dropped: see [`PmIndex::reserve`].
#[derive(Debug, Default)]
pub struct Reserved(Option<Box<dyn Any + Send + Sync>>);

impl Reserved {
    /// Wraps what keeps the room until it is dropped. The default keeps none, for indexes that need none.
    pub fn new(keeps: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(keeps)))
    }

    /// Returns `None` if it keeps no room.
    #[must_use]
    pub fn if_any(&self) -> Option<&Self> {
        self.0.is_some().then_some(self)
    }
}

/// The outcome of [`Index::try_insert_many`].
#[derive(Debug, Default)]
#[must_use = "the batch may have stopped, or left out keys that were there"]
pub struct InsertMany {
    /// One result per item handled, in input order: whether the key was inserted.
    pub inserted: Vec<bool>,
    /// Why it stopped at item `inserted.len()`, if it did. Earlier items are durable.
    pub stopped: Option<IndexError>,
}

impl InsertMany {
    /// Calls `insert`, which returns whether the key is new, with one record after another, until the first error.
    pub fn one_by_one<R>(records: &[R], insert: impl Fn(&R) -> Result<bool, IndexError>) -> Self {
        let mut result = Self::default();
        for record in records {
            match insert(record) {
                Ok(new) => result.inserted.push(new),
                Err(error) => {
                    result.stopped = Some(error);
                    break;
                }
            }
        }
        result
    }
}

/// The size of an index: counts, and bytes where the name says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of records.
    pub records: u64,
    /// The number of levels of nodes, leaves included.
    pub height: u32,
    /// The number of leaves.
    pub leaves: u64,
    /// The number of inner nodes.
    pub inners: u64,
    /// Bytes of PM in its blocks.
    pub pm_bytes: u64,
    /// Bytes of DRAM that it uses.
    pub dram_bytes: u64,
}

/// The report of an index's opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// `true` if the last shutdown was clean.
    pub clean: bool,
    /// `true` if the parts in DRAM were read from an image that a clean shutdown wrote.
    pub from_image: bool,
    /// Time until the index was usable.
    pub elapsed: Duration,
    /// The number of records found; 0 if opening does not count them.
    pub records: u64,
    /// The number of leaves read.
    pub leaves: u64,
    /// The number of interrupted operations that were rolled forward or back.
    pub repaired: u64,
    /// The number of threads that worked.
    pub threads: usize,
}

/// An ordered, durable, concurrent map. Names and semantics follow `std::collections::BTreeMap`.
///
/// When a write returns, its effect is durable in the pool's mode; no operation returns or acts on
/// an effect that a crash could still take back. All operations are linearizable, scans excepted:
/// each item of a scan was present and durable at some moment during it. A pop is two operations, a read
/// of the first or the last record and its removal.
///
/// A conditional write (only if the key is present, or only if it is absent) returns a `Result` inside
/// the `Result` of the index. The compiler warns if a program ignores it; a second `?` turns it into an
/// error of the index.
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use pmindex_index::{Index, IndexError};
/// fn set(index: &dyn Index<u64, u64>) -> Result<(), IndexError> {
///     index.update(&1, &10)?; // perhaps there is no key 1
///     Ok(())
/// }
/// ```
///
/// ```
/// #![deny(unused_must_use)]
/// # use pmindex_index::{Index, IndexError};
/// fn set(index: &dyn Index<u64, u64>) -> Result<bool, IndexError> {
///     index.update(&1, &10)??; // `IndexError::Missing` if there is no key 1
///     let is_new = index.try_insert(&2, &20)?.is_ok();
///     index.insert(&3, &30)?; // whatever is there
///     Ok(is_new)
/// }
/// ```
pub trait Index<K: Key, V: Value>: Send + Sync {
    /// Returns the value of `key`.
    fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError>;

    /// Reads the value of `key` into `value`, whose memory it uses again; returns `false` if the key is
    /// absent.
    ///
    /// After `false` or an error `value` is unspecified, but valid: what it was before, or an earlier value
    /// of the key.
    ///
    /// # Cost
    /// That of [`get`](Self::get), without an allocation if `V` has a fixed size, or is a `Vec<u8>` or a
    /// `String` with room for the value. (A type of several parts allocates for its parts.)
    ///
    /// ```
    /// # use pmindex_index::{Index, IndexError};
    /// fn longest(index: &dyn Index<u64, String>) -> Result<usize, IndexError> {
    ///     let (mut text, mut longest) = (String::new(), 0);
    ///     for key in 0..1000 {
    ///         if index.get_into(&key, &mut text)? {
    ///             longest = longest.max(text.len());
    ///         }
    ///     }
    ///     Ok(longest)
    /// }
    /// ```
    fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        Ok(self.get(key)?.map(|found| *value = found).is_some())
    }

    /// Returns whether `key` is present.
    fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        Ok(self.get(key)?.is_some())
    }

    /// Inserts or replaces a record; returns the value that it replaced.
    fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError>;

    /// Inserts a record; returns [`Occupied`], and changes nothing, if the key is present.
    fn try_insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Occupied>, IndexError>;

    /// Replaces a value; returns [`Missing`], and changes nothing, if the key is absent.
    fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError>;

    /// Inserts or replaces a record without reading the old value; returns `true` if the key is new.
    fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError>;

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
        while let Some(value) = self.get(key)? {
            if !condition(&value) {
                break;
            }
            if let Some(removed) = self.remove_exact(key, &value)? {
                return Ok(Some(removed));
            }
        }
        Ok(None)
    }

    /// Removes the least record and returns it.
    ///
    /// It was the least at some moment during the call; a smaller one that another thread inserts
    /// meanwhile may stay.
    ///
    /// A read and a removal, done again if another thread removes the record in between. Each time another
    /// call has succeeded, but one call may do so without a bound while others remove the same records: lock-free, not
    /// wait-free.
    fn pop_first(&self) -> Result<Option<(K, V)>, IndexError> {
        while let Some((key, _)) = self.first_key_value()? {
            if let Some(value) = self.remove(key.borrowed())? {
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }

    /// Removes the greatest record and returns it; see [`pop_first`](Self::pop_first).
    fn pop_last(&self) -> Result<Option<(K, V)>, IndexError> {
        while let Some((key, _)) = self.last_key_value()? {
            if let Some(value) = self.remove(key.borrowed())? {
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }

    /// Removes the records for which `keep` returns `false`; returns how many.
    ///
    /// Each removal is an operation of its own: other threads go on, and after a crash some of the records
    /// are removed and the others are whole. If another thread replaces a value meanwhile, `keep` runs again
    /// on the new one.
    fn retain(&self, keep: &mut dyn FnMut(&K, &V) -> bool) -> Result<u64, IndexError> {
        let mut removed = 0;
        for item in self.range_bounds(Bound::Unbounded, Bound::Unbounded) {
            let (key, value) = item?;
            if !keep(&key, &value) {
                let gone = match self.remove_exact(key.borrowed(), &value)? {
                    None => self.remove_if(key.borrowed(), &mut |value| !keep(&key, value))?,
                    gone => gone,
                };
                removed += u64::from(gone.is_some());
            }
        }
        Ok(removed)
    }

    /// Removes the records with keys in the bounds; returns how many.
    ///
    /// Each removal is an operation of its own: other threads go on, and what they insert meanwhile may
    /// stay. After a crash some of the records are removed and the others are whole.
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    fn remove_bounds(
        &self,
        lower: Bound<&K::Ref>,
        upper: Bound<&K::Ref>,
    ) -> Result<u64, IndexError> {
        let mut removed = 0;
        for item in self.range_bounds(lower, upper) {
            removed += u64::from(self.remove(item?.0.borrowed())?.is_some());
        }
        Ok(removed)
    }

    /// Removes the records with keys in `range`, as [`remove_bounds`](Self::remove_bounds) does;
    /// returns how many.
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    fn remove_range(&self, range: impl KeyRange<K>) -> Result<u64, IndexError>
    where
        Self: Sized,
    {
        let (lower, upper) = range.bounds();
        self.remove_bounds(lower, upper)
    }

    /// Removes all records, as [`remove_bounds`](Self::remove_bounds) does.
    fn clear(&self) -> Result<(), IndexError> {
        self.remove_bounds(Bound::Unbounded, Bound::Unbounded).map(drop)
    }

    /// Returns an iterator over the records with keys in the bounds, in key order, from both ends.
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    fn range_bounds(&self, lower: Bound<&K::Ref>, upper: Bound<&K::Ref>) -> RangeIter<'_, K, V>;

    /// Returns an iterator over the records with keys in `range`, in key order, from both ends. On a
    /// `dyn Index` call [`range_bounds`](Self::range_bounds).
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    fn range(&self, range: impl KeyRange<K>) -> RangeIter<'_, K, V>
    where
        Self: Sized,
    {
        let (lower, upper) = range.bounds();
        self.range_bounds(lower, upper)
    }

    /// Returns an iterator over the records whose keys begin with `prefix`, in key order, from both ends.
    fn prefix(&self, prefix: &K::Ref) -> RangeIter<'_, K, V>
    where
        K: PrefixKey,
    {
        let after = K::after_prefix(prefix);
        self.range_bounds(Bound::Included(prefix), after.as_ref().map(K::borrowed))
    }

    /// Appends up to `limit` records with keys from `from` on to `out`, in ascending order.
    fn scan(&self, from: &K::Ref, limit: usize, out: &mut Vec<(K, V)>) -> Result<(), IndexError> {
        for item in self.range_bounds(Bound::Included(from), Bound::Unbounded).take(limit) {
            out.push(item?);
        }
        Ok(())
    }

    /// Reads up to `limit` records with keys in the bounds into `out`, in ascending order; returns how many.
    /// They replace what `out` had, and use its memory again.
    ///
    /// # Cost
    /// That of [`scan`](Self::scan), without an allocation if keys and values have a fixed size, or are
    /// `Vec<u8>` or `String`, and `out` has had as many records, and as long ones, before.
    ///
    /// # Errors
    /// Those of a scan. What was read before stays in `out`.
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    fn scan_bounds_into(
        &self,
        lower: Bound<&K::Ref>,
        upper: Bound<&K::Ref>,
        limit: usize,
        out: &mut Records<K, V>,
    ) -> Result<usize, IndexError> {
        out.clear();
        for item in self.range_bounds(lower, upper).take(limit) {
            out.push(item?);
        }
        Ok(out.len())
    }

    /// Reads up to `limit` records with keys in `range` into `out`. On a `dyn Index` call
    /// [`scan_bounds_into`](Self::scan_bounds_into).
    ///
    /// # Errors
    /// Those of a scan.
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    fn scan_into(
        &self,
        range: impl KeyRange<K>,
        limit: usize,
        out: &mut Records<K, V>,
    ) -> Result<usize, IndexError>
    where
        Self: Sized,
    {
        let (lower, upper) = range.bounds();
        self.scan_bounds_into(lower, upper, limit, out)
    }

    /// Returns the least record.
    ///
    /// An index without locks may read again where other threads have written meanwhile. Each time one of them has
    /// succeeded, but while they go on there, one call has no bound: lock-free, not wait-free.
    fn first_key_value(&self) -> Result<Option<(K, V)>, IndexError> {
        self.range_bounds(Bound::Unbounded, Bound::Unbounded).next().transpose()
    }

    /// Returns the greatest record; see [`first_key_value`](Self::first_key_value).
    fn last_key_value(&self) -> Result<Option<(K, V)>, IndexError> {
        self.range_bounds(Bound::Unbounded, Bound::Unbounded).next_back().transpose()
    }

    /// Returns the number of records.
    fn len(&self) -> Result<u64, IndexError>;

    /// Returns whether there are no records.
    fn is_empty(&self) -> Result<bool, IndexError> {
        Ok(self.first_key_value()?.is_none())
    }

    /// Fills an empty index from strictly ascending records; returns how many.
    ///
    /// # Errors
    /// [`IndexError::NotEmpty`], [`IndexError::NotSorted`]; the index stays as it was.
    fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError>;

    /// Looks up many keys with overlapping cache misses; `out[i]` is the value of `keys[i]`.
    ///
    /// # Panics
    /// If the slices differ in length.
    fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError>;

    /// Adds many records whose keys are new, with one fence per phase for all; nothing is visible before its fence.
    fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany;

    /// Adds or replaces many records, each by itself, with fewer fences than one by one: in general
    /// [`try_insert_many`](Self::try_insert_many) of those whose keys are new, then a [`put`](Self::put) of each
    /// other one; in `FpTree` one fence per phase for all. Of records with the same key the last one stays.
    ///
    /// # Durability
    /// All are durable when it returns. A crash, or an error, leaves any of them undone.
    ///
    /// # Errors
    /// Those of `put`; records may have been written then.
    fn put_many(&self, records: &[(K, V)]) -> Result<(), IndexError> {
        let put = |key: &K, value: &V| self.put(key.borrowed(), value.borrowed());
        put_the_others(records, self.try_insert_many(records), put)
    }

    /// Adds or replaces many records, each by itself; `out[i]` is the value that `records[i]` replaced. Of records
    /// with the same key the last one stays, and replaces those before it.
    ///
    /// All are durable when it returns. Those whose keys are new share fences, as in
    /// [`try_insert_many`](Self::try_insert_many); [`put_many`](Self::put_many) reads no old values.
    ///
    /// # Errors
    /// Those of `insert`. Any of the records may have been written then; `out` has old values of some of them.
    ///
    /// # Panics
    /// If the slices differ in length.
    fn insert_many(&self, records: &[(K, V)], out: &mut [Option<V>]) -> Result<(), IndexError> {
        assert_eq!(records.len(), out.len(), "one place per record");
        let insert = |key: &K, value: &V| self.insert(key.borrowed(), value.borrowed());
        insert_the_others(records, out, self.try_insert_many(records), insert)
    }

    /// Removes many records, each by itself, with overlapping cache misses; `out[i]` is the value that `keys[i]`
    /// had. Of equal keys the first one takes the record.
    ///
    /// All removals are durable when it returns, each as that of [`remove`](Self::remove).
    ///
    /// # Errors
    /// Those of `remove`, at the first key that it cannot remove: `out` has what was removed before, and `None` from
    /// there on.
    ///
    /// # Panics
    /// If the slices differ in length.
    ///
    /// ```
    /// # use pmindex_index::{Index, IndexError};
    /// /// Moves jobs from one index to another; returns how many there were.
    /// fn take_over(
    ///     from: &dyn Index<u64, String>,
    ///     to: &dyn Index<u64, String>,
    ///     jobs: &[u64],
    /// ) -> Result<usize, IndexError> {
    ///     let mut taken = vec![None; jobs.len()];
    ///     from.remove_many(jobs, &mut taken)?;
    ///     let there = jobs.iter().zip(taken).filter_map(|(job, text)| Some((*job, text?)));
    ///     let there: Vec<(u64, String)> = there.collect();
    ///     to.put_many(&there)?;
    ///     Ok(there.len())
    /// }
    /// ```
    fn remove_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        let get_many = |keys: &[K], out: &mut [Option<V>]| self.get_many(keys, out);
        remove_the_found(keys, out, get_many, |key| self.remove(key.borrowed()))
    }

    /// Returns the size of the index.
    fn stats(&self) -> Result<Stats, IndexError>;

    /// Verifies the whole structure; returns the number of records.
    fn check(&self) -> Result<u64, IndexError>;

    /// Returns what opening the index did.
    fn recovery_report(&self) -> RecoveryReport;

    /// Returns whether the index has work that a background thread can do instead of its writers.
    fn has_background(&self) -> bool {
        false
    }

    /// Does work that the writers would do otherwise, until `stop` is set, and then what is left of it. To
    /// end it at once, [unpark](std::thread::Thread::unpark) its thread after setting `stop`. Calling it is
    /// optional; an index without such work returns at once.
    ///
    /// # Errors
    /// Those of the pool. The writers do the work themselves then.
    fn background(&self, stop: &AtomicBool) -> Result<(), IndexError> {
        let _ = stop;
        Ok(())
    }
}

/// An index that lives in a pool.
pub trait PmIndex<K: Key, V: Value, M: Medium>: Index<K, V> + Sized {
    /// The name used by tools: `fptree`, `wbtree`, ...
    const NAME: &'static str;
    /// `true` if a crash leaves all of a bulk load or none of it. For tests: an index without an order has no
    /// bulk load of its own, and a crash may leave a part.
    #[doc(hidden)]
    const LOADS_AT_ONCE: bool = true;
    /// `true` if it is limited by more than its pool, so that [`reserve`](Self::reserve) keeps room.
    const RESERVES: bool = false;

    /// Creates the index `name` in the pool.
    fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError>;

    /// Opens the index `name`, and recovers it if that is needed.
    fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError>;

    /// Closes the index: waits for background work, and saves what makes the next opening fast.
    fn close(self) -> Result<(), IndexError>;

    /// Returns the offsets of all blocks that this index owns (its root block, nodes, records out of line),
    /// for the allocator's audit. Call it while no operation is in progress.
    fn blocks(&self) -> Result<Vec<u64>, IndexError>;

    /// Returns the files beside the pool that this index owns. The caller removes them after it has
    /// removed the index.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Returns the error that a write of this record would have because of its length, or because the index
    /// is nearly full of what removals do not give back.
    ///
    /// # Errors
    /// [`IndexError::KeyTooLong`], [`IndexError::ValueTooLong`], [`PmError::Full`](pmindex_core::PmError).
    fn fits(&self, key: &K::Ref, value: &V::Ref) -> Result<(), IndexError> {
        let _ = (key, value);
        Ok(())
    }

    /// Keeps the room that puts of these records take at most, if the index is limited by more than its pool: until the
    /// result is dropped, no other write takes it. For changes that are certain to come, because they are durable
    /// elsewhere before. The keys differ, and until then the caller keeps other writers from them.
    ///
    /// # Errors
    /// [`PmError::Full`](pmindex_core::PmError): there may not be enough.
    fn reserve<'r>(
        &self,
        puts: &mut dyn Iterator<Item = (&'r K::Ref, &'r V::Ref)>,
    ) -> Result<Reserved, IndexError> {
        let _ = puts;
        Ok(Reserved::default())
    }

    /// As [`put`](Index::put), in reserved room.
    ///
    /// # Errors
    /// Those of `put`.
    fn put_reserved(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        reserved: &Reserved,
    ) -> Result<bool, IndexError> {
        let _ = reserved;
        self.put(key, value)
    }

    /// As [`put_many`](Index::put_many), in reserved room.
    ///
    /// # Errors
    /// Those of `put_many`.
    fn put_many_reserved(&self, records: &[(K, V)], reserved: &Reserved) -> Result<(), IndexError> {
        let _ = reserved;
        self.put_many(records)
    }

    /// Removes the index `name`, which must not be open, and frees all its blocks; returns `false` if it
    /// does not exist.
    ///
    /// After a crash the index is as it was, or gone; later operations free what is left of its blocks.
    /// Other indexes of the pool can be used meanwhile. See [`Pool::drop_index`].
    ///
    /// # Errors
    /// Those of [`open_to_remove`](Self::open_to_remove) and of [`Pool::drop_index`].
    fn destroy(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, IndexError> {
        pool.drop_index(name, |name| Self::open_to_remove(pool, name)?.blocks())
    }

    /// Opens the index `name`, which is about to be removed: if it does not open whole, then without what its
    /// removal does not need.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    fn open_to_remove(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        Self::open(pool, name)
    }
}
