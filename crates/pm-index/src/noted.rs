//! Tells the pool of damage that an operation has found.

use pmindex_core::{Medium, PmError, Pool};

use crate::error::IndexError;
use crate::index::InsertMany;

/// The outcome of an operation on an index.
pub trait Noted: Sized {
    /// Returns the outcome, and tells the pool if it is an error that says that something is damaged. An
    /// operation does this last: what a racing reader found must have been validated before.
    #[must_use]
    fn noted<M: Medium>(self, pool: &Pool<M>) -> Self;
}

impl<T> Noted for Result<T, IndexError> {
    #[inline(always)]
    fn noted<M: Medium>(self, pool: &Pool<M>) -> Self {
        match self {
            Ok(done) => Ok(done),
            Err(error) => Err(note(pool, error)),
        }
    }
}

#[cold]
#[inline(never)]
fn note<M: Medium>(pool: &Pool<M>, error: IndexError) -> IndexError {
    if let IndexError::Pool(damage @ PmError::Corrupt { .. }) = &error {
        pool.note_damage(damage);
    }
    error
}

impl Noted for InsertMany {
    fn noted<M: Medium>(self, pool: &Pool<M>) -> Self {
        if let Some(IndexError::Pool(error)) = &self.stopped {
            pool.note_damage(error);
        }
        self
    }
}
