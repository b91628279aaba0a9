//! Locks of keys, so that a call that looks at a value and then removes it is one operation.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How many locks there are: few enough for the cache, many enough that two threads seldom meet.
const LOCKS: usize = 64;

/// A lock on a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Lock(RwLock<()>);

/// Locks that keys share by their hash. Whoever writes a value holds the lock of its key with others;
/// whoever removes what fits into a buffer holds it alone.
#[derive(Debug)]
pub(crate) struct KeyLocks(Box<[Lock]>);

impl Default for KeyLocks {
    fn default() -> Self {
        Self(std::iter::repeat_with(Lock::default).take(LOCKS).collect())
    }
}

impl KeyLocks {
    /// Keeps out who looks at the value of the key and removes it.
    pub(crate) fn shared(&self, key: &[u8]) -> RwLockReadGuard<'_, ()> {
        self.of(key).read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps out who writes the value of the key.
    pub(crate) fn alone(&self, key: &[u8]) -> RwLockWriteGuard<'_, ()> {
        self.of(key).write().unwrap_or_else(PoisonError::into_inner)
    }

    /// As `shared`, for many keys.
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

/// Which lock a key has.
fn place(key: &[u8]) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() % LOCKS as u64) as usize
}
