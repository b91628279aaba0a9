//! Pools in a space, for subjects.

use std::sync::Arc;

use pmindex_core::trace::Space;
use pmindex_core::{Medium, OpenError, PmError, Pool, PoolOptions, Traced};

use super::explore::{PAUSE, RESUME};
use super::rng::mix;
use super::subject::Fault;

/// Creates a pool that fills the space's file.
///
/// # Errors
/// The errors of creating it.
pub fn create_pool(space: &Space, options: &PoolOptions) -> Result<Arc<Pool<Traced>>, Fault> {
    Ok(Arc::new(Pool::create_traced(space, options)?))
}

/// Creates a pool whose free memory is not zero, as after long use: a word that a structure forgets to
/// initialize, or to flush, is not right by chance.
///
/// # Errors
/// The errors of creating it.
pub fn create_used_pool(space: &Space, options: &PoolOptions) -> Result<Arc<Pool<Traced>>, Fault> {
    let pool = create_pool(space, options)?;
    use_memory(space, &pool)?;
    Ok(pool)
}

/// Fills a part of the free memory of a pool with garbage, as in [`create_used_pool`]. A subject that needs other
/// blocks than those of the structure allocates them before.
///
/// # Errors
/// The errors of allocating it.
pub fn use_memory(space: &Space, pool: &Pool<Traced>) -> Result<(), Fault> {
    space.note(PAUSE);
    let mut op = pool.op()?;
    let mut bytes = 16 << 10;
    let extent = loop {
        match op.reserve_bytes(bytes, 64) {
            Err(PmError::Full { .. } | PmError::TooLarge { .. }) if bytes > 4096 => bytes /= 2,
            other => break other?.ptr(),
        }
    };
    let words = pool.words(extent.offset(), bytes as usize / 8)?;
    for (i, chunk) in words.chunks(64).enumerate() {
        let garbage: Vec<u64> = (0..chunk.len()).map(|j| mix((i * 64 + j) as u64 + 1)).collect();
        pool.pm().write_words(chunk, &garbage);
        pool.pm().fence(pool.pm().flush_words(chunk))?;
    }
    drop(op); // gives all of it back
    space.note(RESUME);
    Ok(())
}

/// Opens the pool in the space; `None` if there is none, because a crash interrupted its creation.
///
/// # Errors
/// The errors of opening it.
pub fn open_pool(space: &Space, options: &PoolOptions) -> Result<Option<Arc<Pool<Traced>>>, Fault> {
    match Pool::open_traced(space, options) {
        Ok(pool) => Ok(Some(Arc::new(pool))),
        Err(OpenError::NotAPool { .. }) => Ok(None),
        Err(other) => Err(other.into()),
    }
}
