//! The pool of a trial: two indexes of one kind, one of byte strings, one of integers.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex::core::{Pool, PoolOptions};
use pmindex::{AnyIndex, Index, Kind, RecoveryReport};

use crate::error::CliError;
use crate::medium::{MediumArgs, Promise};

/// A pool with both indexes.
pub(crate) struct Store {
    pool: Arc<Pool>,
    /// The byte strings.
    pub(crate) words: AnyIndex<Vec<u8>, Vec<u8>>,
    /// The integers.
    pub(crate) integers: AnyIndex<u64, u64>,
}

/// How long opening took, and what it did.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    /// From the call until both indexes were usable.
    pub(crate) time: Duration,
    /// What recovery did in each index.
    pub(crate) reports: [RecoveryReport; 2],
}

impl Store {
    /// Creates a pool in a new file.
    pub(crate) fn create(path: &Path, options: &PoolOptions, kind: Kind) -> Result<Self, CliError> {
        Self::create_in(Pool::create(path, options)?, kind)
    }

    /// Opens the pool, and recovers it.
    pub(crate) fn open(path: &Path, medium: MediumArgs) -> Result<(Self, Opened), CliError> {
        let started = Instant::now();
        let store = Self::open_with(path, &medium.apply(PoolOptions::new(), path))?;
        let time = started.elapsed();
        let reports = [store.words.recovery_report(), store.integers.recovery_report()];
        Ok((store, Opened { time, reports }))
    }

    /// Opens the pool with these options.
    pub(crate) fn open_with(path: &Path, options: &PoolOptions) -> Result<Self, CliError> {
        let pool = Arc::new(Pool::open(path, options)?);
        let words = AnyIndex::open(&pool, "words")?;
        let integers = AnyIndex::open(&pool, "integers")?;
        Ok(Self { pool, words, integers })
    }

    /// Ends as if this process were killed.
    pub(crate) fn abandon(self) {
        drop((self.words, self.integers));
        if let Some(pool) = Arc::into_inner(self.pool) {
            pool.kill();
        }
    }

    /// Creates both indexes, empty, in this pool.
    pub(crate) fn create_in(pool: Pool, kind: Kind) -> Result<Self, CliError> {
        let pool = Arc::new(pool);
        let words = AnyIndex::create(&pool, "words", kind)?;
        let integers = AnyIndex::create(&pool, "integers", kind)?;
        Ok(Self { pool, words, integers })
    }

    /// Returns what the pool promises.
    pub(crate) fn promise(&self) -> Promise {
        Promise::of(&self.pool)
    }

    /// Returns the pool.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Removes the first word, as if it had been lost.
    pub(crate) fn lose_a_record(&self) -> Result<(), CliError> {
        let all = (Bound::Unbounded, Bound::Unbounded);
        if let Some(word) = self.words.range_bounds(all.0, all.1).next() {
            self.words.remove(&word?.0)?;
        }
        Ok(())
    }

    /// Verifies the structure of both indexes.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        self.words.check()?;
        self.integers.check()?;
        Ok(())
    }

    /// Closes the indexes and the pool cleanly.
    pub(crate) fn close(self) -> Result<(), CliError> {
        self.words.close()?;
        self.integers.close()?;
        if let Some(pool) = Arc::into_inner(self.pool) {
            pool.close()?;
        }
        Ok(())
    }
}
