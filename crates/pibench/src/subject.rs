//! What can be measured: a thing that executes jobs, each of many operations of one kind.

use std::hint::black_box;

use pmindex_index::{Index, IndexError, Stats};

use crate::workload::{BATCH, SCAN_LENGTH};

/// Many operations of one kind, for one thread.
#[derive(Clone, Copy, Debug)]
pub enum Job<'a> {
    /// Looks up keys; an operation is done if it finds a value.
    Get(&'a [u64]),
    /// Looks up keys; an operation is done if it finds none.
    GetMiss(&'a [u64]),
    /// Reads [`SCAN_LENGTH`] records from each key on; done if it reads at least one.
    Scan(&'a [u64]),
    /// Inserts; done if the key was new.
    Insert(&'a [(u64, u64)]),
    /// Replaces values; done if the key existed.
    Update(&'a [(u64, u64)]),
    /// Removes; done if the key existed.
    Remove(&'a [u64]),
    /// Looks up keys, [`BATCH`] in a call.
    GetMany(&'a [u64]),
    /// Inserts, [`BATCH`] in a call.
    InsertMany(&'a [(u64, u64)]),
}

impl<'a> Job<'a> {
    /// Operations in it.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Get(keys)
            | Self::GetMiss(keys)
            | Self::Scan(keys)
            | Self::Remove(keys)
            | Self::GetMany(keys) => keys.len(),
            Self::Insert(records) | Self::Update(records) | Self::InsertMany(records) => {
                records.len()
            }
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same job in pieces of one call each: an operation, or a batch.
    pub fn calls(self) -> Box<dyn Iterator<Item = Job<'a>> + 'a> {
        match self {
            Self::Get(keys) => Box::new(keys.chunks(1).map(Job::Get)),
            Self::GetMiss(keys) => Box::new(keys.chunks(1).map(Job::GetMiss)),
            Self::Scan(keys) => Box::new(keys.chunks(1).map(Job::Scan)),
            Self::Remove(keys) => Box::new(keys.chunks(1).map(Job::Remove)),
            Self::GetMany(keys) => Box::new(keys.chunks(BATCH).map(Job::GetMany)),
            Self::Insert(records) => Box::new(records.chunks(1).map(Job::Insert)),
            Self::Update(records) => Box::new(records.chunks(1).map(Job::Update)),
            Self::InsertMany(records) => Box::new(records.chunks(BATCH).map(Job::InsertMany)),
        }
    }
}

/// What a counting medium counted, all threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines flushed, non-temporal stores included.
    pub flushed_lines: u64,
    /// Fences.
    pub fences: u64,
}

/// A thing that can be measured.
pub trait Subject: Send + Sync {
    /// Its name in tables and JSON.
    fn name(&self) -> &str;

    /// Whether several threads may run jobs at once.
    fn concurrent(&self) -> bool {
        true
    }

    /// Executes a job; returns how many of its operations were done, as [`Job`] defines it.
    fn run(&self, job: Job<'_>) -> Result<u64, IndexError>;

    /// Sizes; `None` if it cannot tell.
    fn stats(&self) -> Result<Option<Stats>, IndexError> {
        Ok(None)
    }
}

/// Any index as a subject.
#[derive(Debug)]
pub struct Indexed<I> {
    name: String,
    index: I,
}

impl<I: Index<u64, u64>> Indexed<I> {
    /// The index under this name.
    pub fn new(name: impl Into<String>, index: I) -> Self {
        Self { name: name.into(), index }
    }

    /// The index.
    pub fn index(&self) -> &I {
        &self.index
    }

    /// The index, to close it.
    pub fn into_index(self) -> I {
        self.index
    }
}

impl<I: Index<u64, u64>> Subject for Indexed<I> {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, job: Job<'_>) -> Result<u64, IndexError> {
        let index = &self.index;
        match job {
            Job::Get(keys) => count(keys, |key| Ok(index.get(key)?.map(black_box).is_some())),
            Job::GetMiss(keys) => count(keys, |key| Ok(index.get(key)?.map(black_box).is_none())),
            Job::Scan(keys) => {
                let mut found = Vec::with_capacity(SCAN_LENGTH);
                count(keys, |key| {
                    found.clear();
                    index.scan(key, SCAN_LENGTH, &mut found)?;
                    Ok(!black_box(&found).is_empty())
                })
            }
            Job::Insert(records) => count(records, |(key, value)| index.insert(key, value)),
            Job::Update(records) => count(records, |(key, value)| index.update(key, value)),
            Job::Remove(keys) => count(keys, |key| Ok(index.remove(key)?.map(black_box).is_some())),
            Job::GetMany(keys) => get_many(index, keys),
            Job::InsertMany(records) => insert_many(index, records),
        }
    }

    fn stats(&self) -> Result<Option<Stats>, IndexError> {
        self.index.stats().map(Some)
    }
}

/// How many of the items `op` is true for.
#[inline(always)]
fn count<T>(
    items: &[T],
    mut op: impl FnMut(&T) -> Result<bool, IndexError>,
) -> Result<u64, IndexError> {
    let mut done = 0;
    for item in items {
        done += u64::from(op(item)?);
    }
    Ok(done)
}

fn get_many<I: Index<u64, u64>>(index: &I, keys: &[u64]) -> Result<u64, IndexError> {
    let mut values = [None; BATCH];
    let mut done = 0;
    for keys in keys.chunks(BATCH) {
        let values = &mut values[..keys.len()];
        index.get_many(keys, values)?;
        done += values.iter().filter(|value| value.is_some()).count() as u64;
    }
    Ok(done)
}

fn insert_many<I: Index<u64, u64>>(index: &I, records: &[(u64, u64)]) -> Result<u64, IndexError> {
    let mut done = 0;
    for records in records.chunks(BATCH) {
        let outcome = index.insert_many(records);
        if let Some(stopped) = outcome.stopped {
            return Err(stopped);
        }
        done += outcome.inserted.iter().filter(|inserted| **inserted).count() as u64;
    }
    Ok(done)
}
