//! The contract of every index as traits.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pmindex_core::{Medium, Pool};

use crate::error::{IndexError, Missing, Occupied};
use crate::key::{Key, Value};
use crate::range::{KeyRange, PrefixKey};
use crate::records::Records;

/// Items of a range scan, from both ends.
pub type RangeIter<'a, K, V> =
    Box<dyn DoubleEndedIterator<Item = Result<(K, V), IndexError>> + Send + 'a>;

/// What [`Index::try_insert_many`] did.
#[derive(Debug, Default)]
#[must_use = "the batch may have stopped, or left out keys that were there"]
pub struct InsertMany {
    /// One result per item handled, in input order: whether the key was inserted.
    pub inserted: Vec<bool>,
    /// Why it stopped at item `inserted.len()`, if it did. Earlier items are durable.
    pub stopped: Option<IndexError>,
}

/// Numbers about an index. Bytes are bytes, counts are counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records.
    pub records: u64,
    /// Levels of nodes, leaves included.
    pub height: u32,
    /// Leaves.
    pub leaves: u64,
    /// Inner nodes.
    pub inners: u64,
    /// PM in blocks of this index.
    pub pm_bytes: u64,
    /// DRAM of this index.
    pub dram_bytes: u64,
}

/// What opening did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Whether the last shutdown was clean.
    pub clean: bool,
    /// Whether DRAM parts were restored from a clean-shutdown image.
    pub from_image: bool,
    /// Time until the index was usable.
    pub elapsed: Duration,
    /// Records found (0 where opening does not count).
    pub records: u64,
    /// Leaves read.
    pub leaves: u64,
    /// Interrupted operations rolled forward or back.
    pub repaired: u64,
    /// Threads used.
    pub threads: usize,
}

/// An ordered, durable, concurrent map. Names and semantics follow `std::collections::BTreeMap`.
///
/// When a write returns, its effect is durable in the pool's mode; no operation returns or acts on
/// an effect that a crash could still take back. All operations are linearizable, scans excepted:
/// each item of a scan was present and durable at some moment during it.
///
/// Writes that take place only if the key is there, or is not, return a `Result` of their own inside
/// that of the index, which the compiler does not let a program forget; a second `?` makes it an error
/// of the index.
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
    /// The value of `key`.
    fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError>;

    /// Reads the value of `key` into `value`, in the memory that it has; `false` if there is no `key`.
    ///
    /// `value` is some value of its type after `false` or an error: what it was before, or what the key
    /// had a moment ago.
    ///
    /// # Cost
    /// That of [`get`](Self::get), and no allocation if `V` is of fixed size, a `Vec<u8>` or a `String`
    /// with room for the value. (A type of several parts allocates what its parts need.)
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

    /// Whether `key` is present.
    fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        Ok(self.get(key)?.is_some())
    }

    /// Adds or replaces; returns the value that was there.
    fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError>;

    /// Adds a record; [`Occupied`] (and no change) if the key exists.
    fn try_insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Occupied>, IndexError>;

    /// Replaces a value; [`Missing`] (and no change) if the key does not exist.
    fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError>;

    /// Adds or replaces, without reading the old value; `true` if the key is new.
    fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError>;

    /// Removes a record and returns its value.
    fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError>;

    /// Removes a record if its value is encoded as `value` is; returns what was removed.
    fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError>;

    /// Removes a record if `condition` says so of its value; returns what was removed.
    ///
    /// A value that another thread replaces meanwhile is judged again. No lock is held while
    /// `condition` runs.
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
    /// It was the least at some moment; a lesser one that another thread adds meanwhile may stay.
    fn pop_first(&self) -> Result<Option<(K, V)>, IndexError> {
        while let Some((key, _)) = self.first_key_value()? {
            if let Some(value) = self.remove(key.borrowed())? {
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }

    /// Removes the greatest record and returns it, as [`pop_first`](Self::pop_first) the least.
    fn pop_last(&self) -> Result<Option<(K, V)>, IndexError> {
        while let Some((key, _)) = self.last_key_value()? {
            if let Some(value) = self.remove(key.borrowed())? {
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }

    /// Removes the records of which `keep` says `false`; returns how many.
    ///
    /// Record by record: other threads go on, and a crash leaves some removed, all of them whole. A
    /// value that another thread replaces meanwhile is judged again.
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
    /// Record by record: other threads go on, what they add meanwhile may stay, and a crash leaves
    /// some removed, all of them whole.
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

    /// The records with keys in the bounds, in order, from both ends.
    ///
    /// # Panics
    /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
    fn range_bounds(&self, lower: Bound<&K::Ref>, upper: Bound<&K::Ref>) -> RangeIter<'_, K, V>;

    /// The records with keys in `range`, in order, from both ends. As
    /// [`range_bounds`](Self::range_bounds), for which the index need not be of a known size.
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

    /// The records whose keys begin with `prefix`, in order, from both ends.
    fn prefix(&self, prefix: &K::Ref) -> RangeIter<'_, K, V>
    where
        K: PrefixKey,
    {
        let after = K::after_prefix(prefix);
        self.range_bounds(Bound::Included(prefix), after.as_ref().map(K::borrowed))
    }

    /// Up to `limit` records from `from` on, ascending, appended to `out`.
    fn scan(&self, from: &K::Ref, limit: usize, out: &mut Vec<(K, V)>) -> Result<(), IndexError> {
        for item in self.range_bounds(Bound::Included(from), Bound::Unbounded).take(limit) {
            out.push(item?);
        }
        Ok(())
    }

    /// Reads up to `limit` records with keys in the bounds, ascending, into `out`, in the memory that it
    /// has; returns how many. They take the place of what was in it.
    ///
    /// # Cost
    /// That of [`scan`](Self::scan), and no allocation if keys and values are of fixed size, `Vec<u8>` or
    /// `String`, and `out` has had as many and as long ones before.
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

    /// Reads up to `limit` records with keys in `range` into `out`. As
    /// [`scan_bounds_into`](Self::scan_bounds_into), for which the index need not be of a known size.
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

    /// The least record.
    fn first_key_value(&self) -> Result<Option<(K, V)>, IndexError> {
        self.range_bounds(Bound::Unbounded, Bound::Unbounded).next().transpose()
    }

    /// The greatest record.
    fn last_key_value(&self) -> Result<Option<(K, V)>, IndexError> {
        self.range_bounds(Bound::Unbounded, Bound::Unbounded).next_back().transpose()
    }

    /// How many records there are.
    fn len(&self) -> Result<u64, IndexError>;

    /// Whether there are none.
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

    /// Inserts many records with one fence per phase for all; nothing is visible before its fence.
    fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany;

    /// Sizes.
    fn stats(&self) -> Result<Stats, IndexError>;

    /// Verifies the whole structure; returns the number of records.
    fn check(&self) -> Result<u64, IndexError>;

    /// What opening did.
    fn recovery_report(&self) -> RecoveryReport;

    /// Whether there is work that a thread of its own can take off those that write.
    fn has_background(&self) -> bool {
        false
    }

    /// Does the work in the background that those who write would do themselves otherwise, until `stop`
    /// is set (and its thread [unparked](std::thread::Thread::unpark), to be seen at once), and then what
    /// is left of it. Nobody need call it; an index without any returns at once.
    ///
    /// # Errors
    /// The pool's. Those who write do the work themselves then.
    fn background(&self, stop: &AtomicBool) -> Result<(), IndexError> {
        let _ = stop;
        Ok(())
    }
}

/// An index that lives in a pool.
pub trait PmIndex<K: Key, V: Value, M: Medium>: Index<K, V> + Sized {
    /// The name used by tools: `fptree`, `wbtree`, ...
    const NAME: &'static str;
    /// Whether a crash leaves all of a bulk load or nothing. For tests: one of an index without an order,
    /// which has no bulk load of its own, leaves a part.
    #[doc(hidden)]
    const LOADS_AT_ONCE: bool = true;

    /// Creates the index `name` in the pool.
    fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError>;

    /// Opens the index `name`: recovery is part of it.
    fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError>;

    /// Waits for background work, saves what makes the next open fast, and ends.
    fn close(self) -> Result<(), IndexError>;

    /// The offsets of all blocks this index owns, for the allocator's audit: its root block, nodes,
    /// records out of line. Called on a quiescent index.
    fn blocks(&self) -> Result<Vec<u64>, IndexError>;

    /// Removes the index `name` and frees all its blocks; `false` if there is none. Nobody has it open.
    ///
    /// A crash leaves the index as it was, or gone; what is left of its blocks then is freed by the
    /// operations that follow. Others use the pool meanwhile. See [`Pool::drop_index`].
    ///
    /// # Errors
    /// Those of [`open`](Self::open) and of [`Pool::drop_index`].
    fn destroy(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, IndexError> {
        pool.drop_index(name, |name| Self::open(pool, name)?.blocks())
    }
}
