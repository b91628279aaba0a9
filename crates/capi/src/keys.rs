//! Locks of keys: they make reading a value and then removing it one operation.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The number of locks: few enough for the cache, enough that two threads rarely share one.
const LOCKS: usize = 64;

/// A lock on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Lock(RwLock<()>);

/// Locks that keys share by their hash. A writer of a value holds the lock of its key in shared mode; a
/// call that removes a value only if it fits into a buffer holds it exclusively.
#[derive(Debug)]
pub(crate) struct KeyLocks(Box<[Lock]>);

impl Default for KeyLocks {
    fn default() -> Self {
        Self(std::iter::repeat_with(Lock::default).take(LOCKS).collect())
    }
}

impl KeyLocks {
    /// Locks the key against a call that reads its value and then removes it.
    pub(crate) fn shared(&self, key: &[u8]) -> RwLockReadGuard<'_, ()> {
        self.of(key).read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the key against all writers of its value.
    pub(crate) fn alone(&self, key: &[u8]) -> RwLockWriteGuard<'_, ()> {
        self.of(key).write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what `shared` does, for many keys.
    pub(crate) fn all_shared<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Vec<RwLockReadGuard<'_, ()>> {
        let mut places: Vec<usize> = keys.map(place).collect();
        places.sort_unstable();
        places.dedup();
        let lock = |place: usize| self.0[place].0.read().unwrap_or_else(PoisonError::into_inner);
        places.into_iter().map(lock).collect()
    }

    fn of(&self, key: &[u8]) -> &RwLock<()> {
        &self.0[place(key)].0
    }
}

/// Returns the number of a key's lock.
fn place(key: &[u8]) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() % LOCKS as u64) as usize
}
