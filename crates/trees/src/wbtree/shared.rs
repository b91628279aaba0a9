//! A wBTree for many threads: one lock around it.
//!
//! Writers exclude each other by a version lock. Readers take nothing and write nothing: they read
//! the tree while it may change, which is harmless because every word of a pool is atomic and every
//! pointer is checked, and believe what they found only if no write came between. A reader that has
//! lost too often takes the lock.
//!
//! A writer holds the lock until its last fence, so no thread sees what a crash could take back. It takes
//! the lock after it has found its leaf, as a reader does: the locked instruction waits for the
//! write-backs of the writes before, and the way down need not.

use std::ops::Bound;
use std::sync::Arc;

use pmindex_core::sync::VersionLock;
use pmindex_core::{Mapped, Medium, PmError, Pool};
use pmindex_index::{
    Index, IndexError, InsertMany, Key, Missing, Noted, Occupied, PmIndex, RangeIter, Records,
    RecoveryReport, Stats, Value, same_encoding,
};
use pmindex_record::{Bounds, EncodedValue, LeafSource, Probe, Scan, Sink};

use super::leaf::{Found, Incoming};
use super::range::Leaves;
use super::tree::WbTree;

/// The number of attempts of a reader before it takes the lock.
const TRIES: u32 = 32;

/// A [`WbTree`] behind a version lock: the contract of every index, for any number of threads.
///
/// Reads scale; writes take turns. Costs are those of the tree.
///
/// # Examples
///
/// ```
/// # mod pmindex {
/// #     pub use pmindex_core::Pool;
/// #     pub use pmindex_index::{Index, PmIndex};
/// #     pub use pmindex_trees::SharedWbTree;
/// # }
/// use std::sync::Arc;
/// use pmindex::{Index, PmIndex, Pool, SharedWbTree};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Arc::new(Pool::emulated(1 << 20)?);
/// let tree = SharedWbTree::<u64, u64>::create(&pool, "numbers")?;
/// std::thread::scope(|threads| {
///     for n in 0..4 {
///         let tree = &tree;
///         threads.spawn(move || tree.insert(&n, &(10 * n)));
///     }
/// });
/// assert_eq!(tree.get(&3)?, Some(30));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SharedWbTree<K, V, M: Medium = Mapped, const LEAF: usize = 52, const INNER: usize = 48> {
    tree: WbTree<K, V, M, LEAF, INNER>,
    lock: VersionLock,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    SharedWbTree<K, V, M, LEAF, INNER>
{
    /// Shares a tree.
    #[must_use]
    pub fn new(tree: WbTree<K, V, M, LEAF, INNER>) -> Self {
        Self { tree, lock: VersionLock::new() }
    }

    /// Returns the tree, for a caller that owns it exclusively.
    pub fn get_mut(&mut self) -> &mut WbTree<K, V, M, LEAF, INNER> {
        &mut self.tree
    }

    /// Returns the tree.
    #[must_use]
    pub fn into_inner(self) -> WbTree<K, V, M, LEAF, INNER> {
        self.tree
    }

    /// Returns the result of `read` during which nothing was written.
    #[inline(always)]
    fn read<T>(
        &self,
        mut read: impl FnMut(&WbTree<K, V, M, LEAF, INNER>) -> Result<T, IndexError>,
    ) -> Result<T, IndexError> {
        let pm = self.tree.pm();
        for _ in 0..TRIES {
            let version = self.lock.begin_read(pm);
            if self.tree.is_unfinished() {
                break; // a write panicked
            }
            let found = read(&self.tree);
            if self.lock.validate(pm, version) {
                return found.noted(&self.tree.pool);
            }
            pm.spin();
        }
        self.alone(read)
    }

    /// Returns the result of `apply`, under the lock, on what `seek` found without it. `None` if the two
    /// disagree, or more is to be done; then nothing has changed.
    #[inline(always)]
    fn find_and_write<'t, T>(
        &'t self,
        seek: impl Fn(&'t WbTree<K, V, M, LEAF, INNER>) -> Result<Found<'t, K, V, LEAF>, PmError>,
        apply: impl Fn(
            &'t WbTree<K, V, M, LEAF, INNER>,
            &Found<'t, K, V, LEAF>,
        ) -> Result<Option<T>, IndexError>,
    ) -> Result<Option<T>, IndexError> {
        let (tree, pm) = (&self.tree, self.tree.pm());
        tree.pool.check_writable()?;
        for _ in 0..TRIES {
            let version = self.lock.begin_read(pm);
            if tree.is_unfinished() {
                break; // a write panicked
            }
            let found = seek(tree);
            // All reads are still valid, and stay so: the version becomes the lock.
            if let Some(_guard) = self.lock.try_upgrade(pm, version) {
                return found.map_err(IndexError::from).and_then(|found| apply(tree, &found));
            }
            pm.spin();
        }
        Ok(None)
    }

    /// Removes a record if `wanted` accepts its value, under the lock.
    #[inline(always)]
    fn remove_where(
        &self,
        key: &K::Ref,
        wanted: impl Fn(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        let probe = Probe::new(key)?;
        let done = self
            .find_and_write(
                |tree| tree.seek_to_change(&probe),
                |tree, found| tree.remove_found(found, &probe, &wanted).map(Some),
            )
            .noted(&self.tree.pool)?;
        done.map_or_else(|| self.write(|tree| tree.do_remove(key, &wanted)), Ok)
            .noted(&self.tree.pool)
    }

    /// Runs `body` with the lock.
    #[inline(always)]
    fn write<T>(&self, body: impl FnOnce(&WbTree<K, V, M, LEAF, INNER>) -> T) -> T {
        let guard = self.lock.lock(self.tree.pm());
        let done = body(&self.tree);
        drop(guard);
        done
    }

    /// Reads with the lock, after settling what a write that panicked left.
    #[cold]
    #[inline(never)]
    fn alone<T>(
        &self,
        read: impl FnOnce(&WbTree<K, V, M, LEAF, INNER>) -> Result<T, IndexError>,
    ) -> Result<T, IndexError> {
        self.write(|tree| {
            if tree.is_unfinished() {
                tree.finish_write()?;
            }
            read(tree)
        })
        .noted(&self.tree.pool)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> Index<K, V>
    for SharedWbTree<K, V, M, LEAF, INNER>
{
    fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.read(|tree| tree.do_get(key))
    }

    fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        self.read(|tree| tree.do_get_into(key, value))
    }

    fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        self.read(|tree| tree.do_contains_key(key))
    }

    fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        self.write(|tree| tree.do_insert(key, value)).noted(&self.tree.pool)
    }

    fn try_insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Occupied>, IndexError> {
        let (probe, datum) = (Probe::new(key)?, EncodedValue::new(value)?);
        let record = Incoming { probe: &probe, datum: &datum };
        let done = self
            .find_and_write(
                |tree| tree.seek_to_insert(&probe),
                |tree, found| tree.insert_found(found, record),
            )
            .noted(&self.tree.pool)?;
        done.map_or_else(|| self.write(|tree| tree.do_try_insert(key, value)), Ok)
            .noted(&self.tree.pool)
            .map(Occupied::unless)
    }

    fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        let (probe, datum) = (Probe::new(key)?, EncodedValue::new(value)?);
        let record = Incoming { probe: &probe, datum: &datum };
        let done = self
            .find_and_write(
                |tree| tree.seek_to_change(&probe),
                |tree, found| tree.update_found(found, record).map(Some),
            )
            .noted(&self.tree.pool)?;
        done.map_or_else(|| self.write(|tree| tree.do_update(key, value)), Ok)
            .noted(&self.tree.pool)
            .map(Missing::unless)
    }

    fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let old = self.write(|tree| tree.do_put(key, value, |_| Ok(())));
        Ok(old.noted(&self.tree.pool)?.is_none())
    }

    fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.remove_where(key, |_| true)
    }

    fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        self.remove_where(key, |stored| same_encoding::<V>(stored.borrowed(), value.borrowed()))
    }

    fn range_bounds(&self, lower: Bound<&K::Ref>, upper: Bound<&K::Ref>) -> RangeIter<'_, K, V> {
        Box::new(Scan::new(Unlocked { shared: self }, Bounds::of((lower, upper))))
    }

    fn scan(&self, from: &K::Ref, limit: usize, out: &mut Vec<(K, V)>) -> Result<(), IndexError> {
        let before = out.len();
        self.read(|tree| {
            out.truncate(before);
            tree.do_scan(from, limit, out)
        })
    }

    fn scan_bounds_into(
        &self,
        lower: Bound<&K::Ref>,
        upper: Bound<&K::Ref>,
        limit: usize,
        out: &mut Records<K, V>,
    ) -> Result<usize, IndexError> {
        self.read(|tree| tree.do_scan_into((lower, upper), limit, out))
    }

    fn len(&self) -> Result<u64, IndexError> {
        self.alone(WbTree::len)
    }

    fn is_empty(&self) -> Result<bool, IndexError> {
        self.read(WbTree::do_is_empty)
    }

    fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        let loaded = self.write(|tree| {
            let _lent = VersionLock::lend(std::slice::from_ref(&self.lock));
            tree.do_bulk_load(records)
        });
        loaded.noted(&self.tree.pool)
    }

    fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        self.read(|tree| tree.do_get_many(keys, out))
    }

    fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany {
        self.write(|tree| tree.do_try_insert_many(records)).noted(&self.tree.pool)
    }

    fn stats(&self) -> Result<Stats, IndexError> {
        self.alone(WbTree::stats)
    }

    fn check(&self) -> Result<u64, IndexError> {
        self.alone(WbTree::check)
    }

    fn recovery_report(&self) -> RecoveryReport {
        self.tree.recovery_report()
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> PmIndex<K, V, M>
    for SharedWbTree<K, V, M, LEAF, INNER>
{
    const NAME: &'static str = "wbtree";

    fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        WbTree::create(pool, name).map(Self::new)
    }

    fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        WbTree::open(pool, name).map(Self::new)
    }

    fn close(self) -> Result<(), IndexError> {
        self.tree.close()
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.alone(WbTree::blocks)
    }
}

/// The leaves of the tree, each present at one moment. The tree may change between two of them.
struct Unlocked<'t, K, V, M: Medium, const LEAF: usize, const INNER: usize> {
    shared: &'t SharedWbTree<K, V, M, LEAF, INNER>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    Unlocked<'_, K, V, M, LEAF, INNER>
{
    /// Reads until there is a record, or nothing left; `more` reads a leaf.
    fn read<S: Sink<K, V>>(
        &self,
        bounds: &mut Bounds<K>,
        items: &mut S,
        more: impl Fn(
            &mut Leaves<'_, K, V, M, LEAF, INNER>,
            &mut Bounds<K>,
            &mut S,
        ) -> Result<bool, IndexError>,
    ) -> Result<bool, IndexError> {
        let before = items.count();
        let (moved, is_more) = self.shared.read(|tree| {
            items.truncate(before);
            let (mut leaves, mut moved) = (tree.leaves(), bounds.clone());
            loop {
                let is_more = more(&mut leaves, &mut moved, items)?;
                if items.count() > before || !is_more {
                    return Ok((moved, is_more));
                }
            }
        })?;
        *bounds = moved;
        Ok(is_more)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> LeafSource
    for Unlocked<'_, K, V, M, LEAF, INNER>
{
    type Key = K;
    type Value = V;
    type Medium = M;
    type Bound = K;

    fn pool(&self) -> &Pool<M> {
        &self.shared.tree.pool
    }

    fn read_front(
        &mut self,
        bounds: &mut Bounds<K>,
        most: usize,
        items: &mut impl Sink<K, V>,
    ) -> Result<bool, IndexError> {
        self.read(bounds, items, |leaves, bounds, items| leaves.read_front(bounds, most, items))
    }

    fn read_back(
        &mut self,
        bounds: &mut Bounds<K>,
        most: usize,
        items: &mut Vec<(K, V)>,
    ) -> Result<bool, IndexError> {
        self.read(bounds, items, |leaves, bounds, items| leaves.read_back(bounds, most, items))
    }
}
