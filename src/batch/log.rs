//! The log of batches: a second index beside the one that they change.
//!
//! A batch in progress is one record there. Adding and removing it are single operations of an index, so
//! each takes effect completely or not at all, whatever the length of the record.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pmindex_core::{Medium, Pool};
use pmindex_index::{Index, IndexError};

use crate::any::{AnyIndex, Kind};

/// The suffix that an index's name gets for the name of its log.
const SUFFIX: &str = ".batch";

pub(super) struct Log {
    /// `None` in a pool that is open for reading only and has no log.
    index: Option<AnyIndex<u64, Vec<u8>>>,
    next: AtomicU64,
}

impl Log {
    /// Opens the log of the index `name`; creates it if it does not exist.
    pub(super) fn open<M: Medium>(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let name = format!("{name}{SUFFIX}");
        let index = match AnyIndex::open(pool, &name) {
            Err(IndexError::NoSuchIndex { .. }) if pool.is_read_only() => None,
            Err(IndexError::NoSuchIndex { .. }) => {
                Some(AnyIndex::create(pool, &name, Kind::ALL[0])?)
            }
            opened => Some(opened?),
        };
        let last = index.as_ref().map(Index::last_key_value).transpose()?.flatten();
        let next = AtomicU64::new(last.map_or(0, |(number, _): (u64, _)| number.wrapping_add(1)));
        Ok(Self { index, next })
    }

    /// Returns `true` if the index `name` has a log.
    pub(super) fn exists<M: Medium>(pool: &Pool<M>, name: &str) -> Result<bool, IndexError> {
        Ok(pool.find_index(&format!("{name}{SUFFIX}"))?.is_some())
    }

    /// Removes the log of the index `name`; returns `true` if it existed.
    pub(super) fn destroy<M: Medium>(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, IndexError> {
        AnyIndex::<u64, Vec<u8>>::destroy(pool, &format!("{name}{SUFFIX}"))
    }

    fn index(&self) -> Result<&AnyIndex<u64, Vec<u8>>, IndexError> {
        self.index.as_ref().ok_or(pmindex_core::PmError::ReadOnly.into())
    }

    /// Makes a record durable; returns its number.
    pub(super) fn put(&self, record: &[u8]) -> Result<u64, IndexError> {
        loop {
            // Skips numbers that are in use: those of a damaged file may reach the greatest number.
            let number = self.next.fetch_add(1, Relaxed);
            if self.index()?.try_insert(&number, record)?.is_ok() {
                return Ok(number);
            }
        }
    }

    /// Removes a record, durably.
    pub(super) fn retire(&self, number: u64) -> Result<(), IndexError> {
        self.index()?.remove(&number)?;
        Ok(())
    }

    /// Returns the records of batches in progress.
    pub(super) fn records(&self) -> Result<Vec<(u64, Vec<u8>)>, IndexError> {
        let Some(index) = &self.index else { return Ok(Vec::new()) };
        let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        index.range_bounds(all.0, all.1).collect()
    }

    pub(super) fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.index.as_ref().map_or(Ok(Vec::new()), AnyIndex::blocks)
    }

    pub(super) fn check(&self) -> Result<(), IndexError> {
        self.index.as_ref().map_or(Ok(()), |index| index.check().map(drop))
    }

    pub(super) fn close(self) -> Result<(), IndexError> {
        self.index.map_or(Ok(()), AnyIndex::close)
    }
}
