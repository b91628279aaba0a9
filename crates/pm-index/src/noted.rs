//! Telling the pool of damage that an operation ends with.

use pmindex_core::{Medium, PmError, Pool};

use crate::error::IndexError;
use crate::index::InsertMany;

/// The outcome of an operation of an index.
pub trait Noted: Sized {
    /// Tells the pool if the outcome is that something is damaged, and returns it. The last thing an
    /// operation does: what a racing reader found must have been validated.
    #[must_use]
    fn noted<M: Medium>(self, pool: &Pool<M>) -> Self;
}

impl<T> Noted for Result<T, IndexError> {
    #[inline(always)]
    fn noted<M: Medium>(self, pool: &Pool<M>) -> Self {
        if let Err(IndexError::Pool(error @ PmError::Corrupt { .. })) = &self {
            pool.note_damage(error);
        }
        self
    }
}

impl Noted for InsertMany {
    fn noted<M: Medium>(self, pool: &Pool<M>) -> Self {
        if let Some(IndexError::Pool(error)) = &self.stopped {
            pool.note_damage(error);
        }
        self
    }
}
