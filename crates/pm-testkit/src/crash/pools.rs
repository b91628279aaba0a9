//! Pools in a space, for subjects.

use std::sync::Arc;

use pmindex_core::trace::Space;
use pmindex_core::{OpenError, Pool, PoolOptions, Traced};

use super::subject::Fault;

/// Creates a pool that fills the space's file.
///
/// # Errors
/// Whatever creation refuses.
pub fn create_pool(space: &Space, options: &PoolOptions) -> Result<Arc<Pool<Traced>>, Fault> {
    Ok(Arc::new(Pool::create_traced(space, options)?))
}

/// Opens the pool in the space; `None` if there is none, because a crash interrupted its creation.
///
/// # Errors
/// Whatever opening refuses.
pub fn open_pool(space: &Space, options: &PoolOptions) -> Result<Option<Arc<Pool<Traced>>>, Fault> {
    match Pool::open_traced(space, options) {
        Ok(pool) => Ok(Some(Arc::new(pool))),
        Err(OpenError::NotAPool { .. }) => Ok(None),
        Err(other) => Err(other.into()),
    }
}
