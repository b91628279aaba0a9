//! The log of batches: a second index beside the one that they change.
//!
//! A batch in progress is one record there. Adding and removing it are single operations of an index, so
//! each takes effect completely or not at all, whatever the length of the record.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use std::ops::Bound;

use pmindex_core::{Medium, Pool};
use pmindex_index::{Index, IndexError};

use super::changes;
use crate::any::{AnyIndex, Kind};

/// The ending of the names of logs of batches: that of the index `NAME` is `NAME.batch`. Give no index of your own
/// such a name: [`Batched`](super::Batched) would take it for a log.
pub const BATCH_LOG: &str = ".batch";

/// An index with the types of a log.
type Records = AnyIndex<u64, Vec<u8>>;

fn reserved(name: &str) -> IndexError {
    IndexError::ReservedName { name: name.into(), ending: BATCH_LOG }
}

/// Returns the name of the log of the index `name`.
fn name_of(name: &str) -> Result<String, IndexError> {
    if name.ends_with(BATCH_LOG) {
        return Err(reserved(name)); // the log of a log
    }
    Ok(format!("{name}{BATCH_LOG}"))
}

/// Returns `true` if the error says that an index has not the types of a log, so that it is none.
fn is_of_type(error: &IndexError) -> bool {
    matches!(error, IndexError::WrongType { .. } | IndexError::WrongLayout { .. })
}

/// Opens the log of the index `name`, if it has one. An index of the log's name and other types is none.
fn find<M: Medium>(pool: &Arc<Pool<M>>, name: &str) -> Result<Option<Records>, IndexError> {
    match AnyIndex::open(pool, &name_of(name)?) {
        Ok(index) => Ok(Some(index)),
        Err(IndexError::NoSuchIndex { .. }) => Ok(None),
        Err(error) if is_of_type(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns `true` if all records are those of a log.
fn is_log(index: &Records) -> Result<bool, IndexError> {
    for record in index.range_bounds(Bound::Unbounded, Bound::Unbounded) {
        if !changes::is_record(&record?.1) {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) struct Log {
    /// `None` in a pool that is open for reading only and has no log.
    index: Option<Records>,
    next: AtomicU64,
}

impl Log {
    /// Opens the log of the index `name`; creates it if it does not exist.
    pub(super) fn open<M: Medium>(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let name = name_of(name)?;
        let index = match AnyIndex::open(pool, &name) {
            Err(IndexError::NoSuchIndex { .. }) if pool.is_read_only() => None,
            Err(IndexError::NoSuchIndex { .. }) => {
                Some(AnyIndex::create(pool, &name, Kind::ALL[0])?)
            }
            Err(error) if is_of_type(&error) => return Err(reserved(&name)),
            opened => Some(opened?),
        };
        let last = index.as_ref().map(Index::last_key_value).transpose()?.flatten();
        let next = AtomicU64::new(last.map_or(0, |(number, _): (u64, _)| number.wrapping_add(1)));
        Ok(Self { index, next })
    }

    /// Returns `true` if the index `name` has a log.
    pub(super) fn exists<M: Medium>(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, IndexError> {
        Ok(find(pool, name)?.is_some())
    }

    /// Returns the number of records in the log of the index `name`; 0 if an index of the log's name and types has
    /// others, and is none.
    pub(super) fn len<M: Medium>(pool: &Arc<Pool<M>>, name: &str) -> Result<u64, IndexError> {
        let Some(index) = find(pool, name)? else { return Ok(0) };
        if is_log(&index)? { index.len() } else { Ok(0) }
    }

    /// Removes the log of the index `name`; returns `true` if it existed. Removes nothing that is no log.
    pub(super) fn destroy<M: Medium>(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, IndexError> {
        let Some(index) = find(pool, name)? else { return Ok(false) };
        let name = name_of(name)?;
        if !is_log(&index)? {
            return Err(reserved(&name));
        }
        drop(index);
        Records::destroy(pool, &name)
    }

    fn index(&self) -> Result<&Records, IndexError> {
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
        index.range_bounds(Bound::Unbounded, Bound::Unbounded).collect()
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
