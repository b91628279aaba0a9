//! Locks of keys: they make reading a value and then removing it one operation.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use facade::Pool;

use crate::status::Fault;

/// The number of locks: few enough for the cache, enough that two threads rarely share one.
const LOCKS: usize = 64;

/// A lock on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Lock(RwLock<()>);

/// Locks that keys share by their hash. A writer of a value holds the lock of its key in shared mode; a
/// call that removes a value only if it fits into a buffer holds it exclusively.
///
/// In a forked child a lock may be held by a thread that exists in the parent only: there none is taken, and the
/// error is that of the pool.
#[derive(Debug)]
pub(crate) struct KeyLocks {
    locks: Box<[Lock]>,
    pool: Arc<Pool>,
}

impl KeyLocks {
    /// Makes the locks of an index in a pool.
    pub(crate) fn new(pool: &Arc<Pool>) -> Self {
        let locks = std::iter::repeat_with(Lock::default).take(LOCKS).collect();
        Self { locks, pool: Arc::clone(pool) }
    }

    /// Locks the key against a call that reads its value and then removes it.
    pub(crate) fn shared(&self, key: &[u8]) -> Result<RwLockReadGuard<'_, ()>, Fault> {
        self.pool.check_process()?;
        Ok(self.of(key).read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Locks the key against all writers of its value.
    pub(crate) fn alone(&self, key: &[u8]) -> Result<RwLockWriteGuard<'_, ()>, Fault> {
        self.pool.check_process()?;
        Ok(self.of(key).write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does what `shared` does, for many keys.
    pub(crate) fn all_shared<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<Vec<RwLockReadGuard<'_, ()>>, Fault> {
        self.pool.check_process()?;
        let mut places: Vec<usize> = keys.map(place).collect();
        places.sort_unstable();
        places.dedup();
        let lock =
            |place: usize| self.locks[place].0.read().unwrap_or_else(PoisonError::into_inner);
        Ok(places.into_iter().map(lock).collect())
    }

    fn of(&self, key: &[u8]) -> &RwLock<()> {
        &self.locks[place(key)].0
    }
}

/// Returns the number of a key's lock.
fn place(key: &[u8]) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() % LOCKS as u64) as usize
}
