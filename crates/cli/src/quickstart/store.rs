//! The pool of a quickstart: two indexes, one of byte strings, one of integers.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex::core::{Mapped, Medium, Pool, PoolOptions};
use pmindex::{FpTree, RecoveryReport};

use crate::error::CliError;
use crate::medium::{MediumArgs, Promise};

/// An index of byte strings.
pub(crate) type Words<M = Mapped> = FpTree<Vec<u8>, Vec<u8>, M>;
/// An index of integers.
pub(crate) type Integers<M = Mapped> = FpTree<u64, u64, M>;

/// A pool with both indexes.
pub(crate) struct Store<M: Medium = Mapped> {
    pool: Arc<Pool<M>>,
    /// The byte strings.
    pub(crate) words: Words<M>,
    /// The integers.
    pub(crate) integers: Integers<M>,
}

/// What opening a store took.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    /// From the call until both indexes were usable.
    pub(crate) time: Duration,
    /// What each index had to do.
    pub(crate) reports: [RecoveryReport; 2],
}

impl Store {
    /// A new pool in a new file.
    pub(crate) fn create(path: &Path, medium: MediumArgs) -> Result<Self, CliError> {
        Self::create_in(Pool::create(path, &medium.apply(PoolOptions::new()))?)
    }

    /// Opens the pool, recovering what a crash left.
    pub(crate) fn open(path: &Path, medium: MediumArgs) -> Result<(Self, Opened), CliError> {
        let started = Instant::now();
        let pool = Arc::new(Pool::open(path, &medium.apply(PoolOptions::new()))?);
        let words = Words::open(&pool, "words")?;
        let integers = Integers::open(&pool, "integers")?;
        let time = started.elapsed();
        let reports = [words.recovery_report(), integers.recovery_report()];
        Ok((Self { pool, words, integers }, Opened { time, reports }))
    }
}

impl<M: Medium> Store<M> {
    /// Both indexes, empty, in this pool.
    pub(crate) fn create_in(pool: Pool<M>) -> Result<Self, CliError> {
        let pool = Arc::new(pool);
        let words = Words::create(&pool, "words")?;
        let integers = Integers::create(&pool, "integers")?;
        Ok(Self { pool, words, integers })
    }

    /// What it promises.
    pub(crate) fn promise(&self) -> Promise {
        Promise::of(&*self.pool)
    }

    /// The pool.
    pub(crate) fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    /// Checks the structure of both indexes.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        self.words.check()?;
        self.integers.check()?;
        Ok(())
    }

    /// Ends properly.
    pub(crate) fn close(self) -> Result<(), CliError> {
        self.words.close()?;
        self.integers.close()?;
        if let Some(pool) = Arc::into_inner(self.pool) {
            pool.close()?;
        }
        Ok(())
    }
}
