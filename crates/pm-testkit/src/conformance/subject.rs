//! The subject of a test: an index type on a bed.
//!
//! Properties know the types of keys and values and the bed, [`Types`], and reach the index through a table
//! of calls in a [`Maker`]: a property is compiled once for its types, however many indexes it tests.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_index::{
    Index, IndexError, InsertMany, Key, Missing, Occupied, PmIndex, RangeIter, Records,
    RecoveryReport, Stats, Storable, Value,
};

use super::bed::Bed;
use super::sample::{SampleKey, SampleValue};
use super::verdict::{Failure, Verdict, Within};

/// An index type with its key and value types, on a bed. The
/// [`conformance!`](crate::conformance!) macro implements it.
pub trait Subject: 'static {
    /// Its keys.
    type Key: SampleKey;
    /// Its values.
    type Value: SampleValue;
    /// The bed of its pools.
    type Bed: Bed;
    /// The index type.
    type Index: PmIndex<Self::Key, Self::Value, <Self::Bed as Bed>::Medium>;
    /// Bytes of the pools in which schedules and crashes are simulated.
    const SIMULATED_BYTES: u64 = 256 << 10;
}

/// The types that properties are compiled for: `(Key, Value, Bed)`.
pub trait Types: 'static {
    /// Keys.
    type Key: SampleKey;
    /// Values.
    type Value: SampleValue;
    /// The bed of its pools.
    type Bed: Bed;
}

impl<K: SampleKey, V: SampleValue, B: Bed> Types for (K, V, B) {
    type Key = K;
    type Value = V;
    type Bed = B;
}

/// The types of a subject.
pub type TypesOf<S> = (<S as Subject>::Key, <S as Subject>::Value, <S as Subject>::Bed);

/// The medium of pools.
pub type MediumOf<S> = <<S as Types>::Bed as Bed>::Medium;

/// An index without its type.
pub trait Opened<K: Key, V: Value>: Index<K, V> {
    /// [`PmIndex::close`].
    fn close(self: Box<Self>) -> Result<(), IndexError>;
    /// [`PmIndex::blocks`].
    fn blocks(&self) -> Result<Vec<u64>, IndexError>;
}

/// An index of these types.
pub type IndexOf<S> = dyn Opened<<S as Types>::Key, <S as Types>::Value>;

/// Creates or opens an index.
type Make<S> = fn(&Arc<Pool<MediumOf<S>>>, &str) -> Result<Box<IndexOf<S>>, IndexError>;

/// Creates and opens the index of a subject for its properties.
pub struct Maker<S: Types> {
    create: Make<S>,
    open: Make<S>,
    simulated_bytes: u64,
    loads_at_once: bool,
}

impl<S: Types> Clone for Maker<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Types> Copy for Maker<S> {}

impl<S: Types> fmt::Debug for Maker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maker").finish_non_exhaustive()
    }
}

/// Returns the maker of a subject's indexes.
#[must_use]
pub fn maker<S: Subject>() -> Maker<TypesOf<S>> {
    Maker {
        create: |pool, name| Ok(Box::new(SubjectIndex::<S>(S::Index::create(pool, name)?))),
        open: |pool, name| Ok(Box::new(SubjectIndex::<S>(S::Index::open(pool, name)?))),
        simulated_bytes: S::SIMULATED_BYTES,
        loads_at_once: S::Index::LOADS_AT_ONCE,
    }
}

impl<S: Types> Maker<S> {
    /// [`PmIndex::create`].
    pub(crate) fn create(
        &self,
        pool: &Arc<Pool<MediumOf<S>>>,
        name: &str,
    ) -> Result<Box<IndexOf<S>>, IndexError> {
        (self.create)(pool, name)
    }

    /// [`PmIndex::open`].
    pub(crate) fn open(
        &self,
        pool: &Arc<Pool<MediumOf<S>>>,
        name: &str,
    ) -> Result<Box<IndexOf<S>>, IndexError> {
        (self.open)(pool, name)
    }

    /// [`PmIndex::LOADS_AT_ONCE`].
    pub(crate) fn loads_at_once(&self) -> bool {
        self.loads_at_once
    }

    /// [`Subject::SIMULATED_BYTES`].
    pub(crate) fn simulated_bytes(&self) -> u64 {
        self.simulated_bytes
    }
}

/// The index of a subject.
struct SubjectIndex<S: Subject>(S::Index);

impl<S: Subject> Opened<S::Key, S::Value> for SubjectIndex<S> {
    fn close(self: Box<Self>) -> Result<(), IndexError> {
        self.0.close()
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.0.blocks()
    }
}

/// Forwards every call of [`Index`] to the index itself, including those with a default.
impl<S: Subject> Index<S::Key, S::Value> for SubjectIndex<S> {
    fn get(&self, key: &KeyRef<S>) -> Result<Option<S::Value>, IndexError> {
        self.0.get(key)
    }

    fn get_into(&self, key: &KeyRef<S>, value: &mut S::Value) -> Result<bool, IndexError> {
        self.0.get_into(key, value)
    }

    fn contains_key(&self, key: &KeyRef<S>) -> Result<bool, IndexError> {
        self.0.contains_key(key)
    }

    fn insert(&self, key: &KeyRef<S>, value: &ValueRef<S>) -> Result<Option<S::Value>, IndexError> {
        self.0.insert(key, value)
    }

    fn try_insert(
        &self,
        key: &KeyRef<S>,
        value: &ValueRef<S>,
    ) -> Result<Result<(), Occupied>, IndexError> {
        self.0.try_insert(key, value)
    }

    fn update(
        &self,
        key: &KeyRef<S>,
        value: &ValueRef<S>,
    ) -> Result<Result<(), Missing>, IndexError> {
        self.0.update(key, value)
    }

    fn put(&self, key: &KeyRef<S>, value: &ValueRef<S>) -> Result<bool, IndexError> {
        self.0.put(key, value)
    }

    fn remove(&self, key: &KeyRef<S>) -> Result<Option<S::Value>, IndexError> {
        self.0.remove(key)
    }

    fn remove_exact(
        &self,
        key: &KeyRef<S>,
        value: &S::Value,
    ) -> Result<Option<S::Value>, IndexError> {
        self.0.remove_exact(key, value)
    }

    fn range_bounds(
        &self,
        lower: Bound<&KeyRef<S>>,
        upper: Bound<&KeyRef<S>>,
    ) -> RangeIter<'_, S::Key, S::Value> {
        self.0.range_bounds(lower, upper)
    }

    fn scan(
        &self,
        from: &KeyRef<S>,
        limit: usize,
        out: &mut RecordsOf<S>,
    ) -> Result<(), IndexError> {
        self.0.scan(from, limit, out)
    }

    fn scan_bounds_into(
        &self,
        lower: Bound<&KeyRef<S>>,
        upper: Bound<&KeyRef<S>>,
        limit: usize,
        out: &mut Records<S::Key, S::Value>,
    ) -> Result<usize, IndexError> {
        self.0.scan_bounds_into(lower, upper, limit, out)
    }

    fn first_key_value(&self) -> Result<Option<(S::Key, S::Value)>, IndexError> {
        self.0.first_key_value()
    }

    fn last_key_value(&self) -> Result<Option<(S::Key, S::Value)>, IndexError> {
        self.0.last_key_value()
    }

    fn pop_first(&self) -> Result<Option<(S::Key, S::Value)>, IndexError> {
        self.0.pop_first()
    }

    fn pop_last(&self) -> Result<Option<(S::Key, S::Value)>, IndexError> {
        self.0.pop_last()
    }

    fn len(&self) -> Result<u64, IndexError> {
        self.0.len()
    }

    fn is_empty(&self) -> Result<bool, IndexError> {
        self.0.is_empty()
    }

    fn bulk_load(
        &self,
        records: &mut dyn Iterator<Item = (S::Key, S::Value)>,
    ) -> Result<u64, IndexError> {
        self.0.bulk_load(records)
    }

    fn get_many(&self, keys: &[S::Key], out: &mut [Option<S::Value>]) -> Result<(), IndexError> {
        self.0.get_many(keys, out)
    }

    fn try_insert_many(&self, records: &[(S::Key, S::Value)]) -> InsertMany {
        self.0.try_insert_many(records)
    }

    fn put_many(&self, records: &[(S::Key, S::Value)]) -> Result<(), IndexError> {
        self.0.put_many(records)
    }

    fn insert_many(
        &self,
        records: &[(S::Key, S::Value)],
        out: &mut [Option<S::Value>],
    ) -> Result<(), IndexError> {
        self.0.insert_many(records, out)
    }

    fn remove_many(&self, keys: &[S::Key], out: &mut [Option<S::Value>]) -> Result<(), IndexError> {
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

type KeyRef<S> = <<S as Subject>::Key as Storable>::Ref;
type ValueRef<S> = <<S as Subject>::Value as Storable>::Ref;
type RecordsOf<S> = Vec<(<S as Subject>::Key, <S as Subject>::Value)>;

/// Enough for any test of inline types.
const SMALL_POOL: u64 = 32 << 20;
/// Enough for any test with large byte strings.
const LARGE_POOL: u64 = 256 << 20;

/// The name of the index under test.
pub(crate) const NAME: &str = "subject";

/// A bed and the index in it.
pub(crate) struct Rig<S: Types> {
    maker: Maker<S>,
    // Dropped first: the bed expects no open index.
    index: Option<Box<IndexOf<S>>>,
    pub(crate) bed: S::Bed,
}

impl<S: Types> Rig<S> {
    /// Makes an empty index in a fresh pool that is large enough for anything.
    pub(crate) fn new(maker: Maker<S>) -> Verdict<Self> {
        let bytes = S::Key::SHAPE.is_bytes() || S::Value::SHAPE.is_bytes();
        Self::with_pool(maker, if bytes { LARGE_POOL } else { SMALL_POOL })
    }

    /// Makes an empty index in a fresh pool of this many bytes.
    pub(crate) fn with_pool(maker: Maker<S>, bytes: u64) -> Verdict<Self> {
        Self::on(maker, S::Bed::new(bytes)?)
    }

    /// Makes an empty index in a fresh pool for this many operations of the allocator at once, if the bed
    /// supports that.
    pub(crate) fn with_slots(maker: Maker<S>, slots: u64) -> Verdict<Self> {
        Self::on(maker, S::Bed::with_slots(SMALL_POOL, slots)?)
    }

    fn on(maker: Maker<S>, bed: S::Bed) -> Verdict<Self> {
        let index = maker.create(bed.pool(), NAME).within("create")?;
        Ok(Self { maker, index: Some(index), bed })
    }

    /// Returns the index.
    pub(crate) fn index(&self) -> &IndexOf<S> {
        self.index.as_deref().expect("a rig has an index between its methods")
    }

    /// Checks that the blocks of the index are the live blocks of the pool, each once: nothing is leaked.
    pub(crate) fn audit(&self) -> Verdict {
        let blocks = self.index().blocks()?;
        let report = self.bed.pool().audit(blocks.into_iter());
        report.map(drop).map_err(|error| Failure::new(format!("audit: {error}")))
    }

    /// Closes the index and the pool, and opens both.
    pub(crate) fn close_and_open(&mut self) -> Verdict {
        self.close_index()?;
        self.reopen(true)
    }

    /// Closes the index; the pool stays open.
    pub(crate) fn close_index(&mut self) -> Verdict {
        self.index.take().map_or(Ok(()), |index| index.close().within("close"))
    }

    /// Opens the index that [`close_index`](Self::close_index) closed.
    pub(crate) fn open_index(&mut self) -> Verdict {
        self.index = Some(self.maker.open(self.bed.pool(), NAME).within("open")?);
        Ok(())
    }

    /// Drops the index and the pool without closing them, and opens both.
    pub(crate) fn drop_and_open(&mut self) -> Verdict {
        self.index = None;
        self.reopen(false)
    }

    /// Drops the index without closing it, calls `between`, which opens the pool again, and opens the index.
    pub(crate) fn drop_and(&mut self, between: impl FnOnce(&mut S::Bed) -> Verdict) -> Verdict {
        self.index = None;
        between(&mut self.bed)?;
        self.index = Some(self.maker.open(self.bed.pool(), NAME).within("open")?);
        Ok(())
    }

    /// Closes the index, and ignores an error.
    pub(crate) fn try_close(&mut self) {
        if let Some(index) = self.index.take() {
            let _ = index.close();
        }
    }

    fn reopen(&mut self, clean: bool) -> Verdict {
        self.bed.cycle(clean)?;
        self.open_index()
    }
}
