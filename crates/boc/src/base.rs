//! The indexes that can have buffers.

use std::ops::Bound;
use std::sync::Arc;

use pmindex_cceh::Cceh;
use pmindex_core::{Medium, Pool};
use pmindex_fastfair::FastFair;
use pmindex_index::{
    HashIndex, Index, IndexError, InsertMany, PmHashIndex, PmIndex, RangeIter, RecoveryReport,
    Stats,
};
use pmindex_record::hash_words;
use pmindex_skiplist::SkipList;

/// An index under buffers: the operations that buffers need, under the same names for ordered indexes and
/// those by hash.
pub trait Base<M: Medium>: Sized + Send + Sync + 'static {
    /// The name used by tools.
    const NAME: &'static str;
    /// Returns the position of a key in the order of the index's components.
    fn rank(key: u64) -> u64;
    /// Creates the index.
    ///
    /// # Errors
    /// Those of the index's own function, as for all functions of this trait.
    fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError>;
    /// Opens the index.
    ///
    /// # Errors
    /// See [`create`](Self::create).
    fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError>;
    /// Closes the index.
    ///
    /// # Errors
    /// See [`create`](Self::create).
    fn close(self) -> Result<(), IndexError>;
    /// Removes the index.
    ///
    /// # Errors
    /// See [`create`](Self::create).
    fn destroy(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, IndexError>;
    /// Returns the offsets of all its blocks.
    ///
    /// # Errors
    /// See [`create`](Self::create).
    fn blocks(&self) -> Result<Vec<u64>, IndexError>;
    /// Returns a value.
    ///
    /// # Errors
    /// See [`create`](Self::create).
    fn get(&self, key: u64) -> Result<Option<u64>, IndexError>;
    /// Adds or replaces a record.
    ///
    /// # Errors
    /// See [`create`](Self::create).
    fn put(&self, key: u64, value: u64) -> Result<(), IndexError>;
    /// Removes a record.
    ///
    /// # Errors
    /// See [`create`](Self::create).
    fn remove(&self, key: u64) -> Result<(), IndexError>;
    /// Adds records in one batch.
    fn add(&self, records: &[(u64, u64)]) -> InsertMany;
    /// Returns the number of records.
    ///
    /// # Errors
    /// See [`create`](Self::create).
    fn records(&self) -> Result<u64, IndexError>;
    /// Verifies the index; returns the number of records.
    ///
    /// # Errors
    /// See [`create`](Self::create).
    fn check(&self) -> Result<u64, IndexError>;
    /// Returns the size.
    ///
    /// # Errors
    /// See [`create`](Self::create).
    fn stats(&self) -> Result<Stats, IndexError>;
    /// Returns the report of opening.
    fn report(&self) -> RecoveryReport;
}

/// An index to which the study's techniques apply: it may write its components anew, and be searched in DRAM.
pub trait SpotOn: Sized {
    /// Returns the index with all that a search reads above its components in DRAM. By default it is there in any case.
    ///
    /// # Errors
    /// Those of the index's own function.
    fn cached(self) -> Result<Self, IndexError> {
        Ok(self)
    }

    /// Adds records, of which neighbours are in one component, out of place: a component that gets many is
    /// written anew, with its old records and the new ones, and replaces the old one.
    fn add_anew(&self, records: &[(u64, u64)]) -> InsertMany;
}

/// Its directory is in DRAM.
impl<M: Medium, const LINES: usize, const PROBE: usize> SpotOn for Cceh<u64, u64, M, LINES, PROBE> {
    fn add_anew(&self, records: &[(u64, u64)]) -> InsertMany {
        self.try_insert_many_anew(records)
    }
}

impl<M: Medium, const LEAF: usize, const INNER: usize> SpotOn
    for FastFair<u64, u64, M, LEAF, INNER>
{
    fn cached(self) -> Result<Self, IndexError> {
        Self::cached(self)
    }

    fn add_anew(&self, records: &[(u64, u64)]) -> InsertMany {
        self.try_insert_many_anew(records)
    }
}

/// In place: the study leaves it out, since its skip list has a node for each record. Its towers are in DRAM.
impl<M: Medium, const LINES: usize> SpotOn for SkipList<u64, u64, M, LINES> {
    fn add_anew(&self, records: &[(u64, u64)]) -> InsertMany {
        self.try_insert_many(records)
    }
}

/// An index with an order. With `ANEW`, batches go to it out of place; with `CACHED` searches go to its components by
/// DRAM alone.
#[derive(Debug)]
pub struct ByKey<I, const ANEW: bool = false, const CACHED: bool = false>(pub(crate) I);

/// An index by hash, whose directory is in DRAM. With `ANEW`, batches go to it out of place.
#[derive(Debug)]
pub struct ByHash<I, const ANEW: bool = false, const CACHED: bool = true>(pub(crate) I);

impl<I, const ANEW: bool, const CACHED: bool> ByKey<I, ANEW, CACHED> {
    /// Returns the records between two keys.
    pub(crate) fn between(&self, lower: Bound<u64>, upper: Bound<u64>) -> RangeIter<'_, u64, u64>
    where
        I: Index<u64, u64>,
    {
        self.0.range_bounds(lower.as_ref(), upper.as_ref())
    }
}

/// Implements [`Base`] by the methods that the traits of both sorts of index have under the same names.
macro_rules! base {
    ($base:ident, $pm:ident, $index:ident, $rank:expr) => {
        impl<
            M: Medium,
            I: $pm<u64, u64, M> + SpotOn + 'static,
            const ANEW: bool,
            const CACHED: bool,
        > Base<M> for $base<I, ANEW, CACHED>
        {
            const NAME: &'static str = <I as $pm<u64, u64, M>>::NAME;

            fn rank(key: u64) -> u64 {
                $rank(key)
            }
            fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
                let index = I::create(pool, name)?;
                Ok(Self(if CACHED { index.cached()? } else { index }))
            }
            fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
                let index = I::open(pool, name)?;
                Ok(Self(if CACHED { index.cached()? } else { index }))
            }
            fn close(self) -> Result<(), IndexError> {
                self.0.close()
            }
            fn destroy(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, IndexError> {
                I::destroy(pool, name)
            }
            fn blocks(&self) -> Result<Vec<u64>, IndexError> {
                self.0.blocks()
            }
            fn get(&self, key: u64) -> Result<Option<u64>, IndexError> {
                self.0.get(&key)
            }
            fn put(&self, key: u64, value: u64) -> Result<(), IndexError> {
                self.0.put(&key, &value).map(drop)
            }
            fn remove(&self, key: u64) -> Result<(), IndexError> {
                $index::remove(&self.0, &key).map(drop)
            }
            fn add(&self, records: &[(u64, u64)]) -> InsertMany {
                if ANEW { self.0.add_anew(records) } else { self.0.try_insert_many(records) }
            }
            fn records(&self) -> Result<u64, IndexError> {
                $index::len(&self.0)
            }
            fn check(&self) -> Result<u64, IndexError> {
                self.0.check()
            }
            fn stats(&self) -> Result<Stats, IndexError> {
                self.0.stats()
            }
            fn report(&self) -> RecoveryReport {
                self.0.recovery_report()
            }
        }
    };
}

base!(ByKey, PmIndex, Index, |key| key);
base!(ByHash, PmHashIndex, HashIndex, |key| hash_words(&[key]));
