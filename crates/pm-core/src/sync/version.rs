//! Version locks: writers exclude each other, readers validate and write nothing.
//!
//! A word holds `version << 1 | locked`. A writer locks by CAS and unlocks by storing the next
//! version, so that the version never goes back. A reader takes the version, reads, and validates;
//! it executes no locked instruction and no fence (on x86-64), so successive reads overlap in the
//! out-of-order window.
//!
//! `protocol` has the memory orders and says why they suffice; a model checker tests it.
//!
//! Invariants: the word is odd exactly while a guard lives; the end of a guard sets the word to a value that
//! it never had before. A panic drops the guard, so it leaves no lock held.

use crate::media::Medium;

use super::primitive::AtomicU64;
use super::protocol::VersionWord;

/// A version lock: one word of DRAM.
///
/// It may be in the nodes of an [`Arena`](crate::Arena) (zero is version 0, unlocked), never in a pool, where
/// a crash would leave it locked.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct VersionLock(VersionWord);

// SAFETY: `repr(transparent)` over one atomic word, valid for every bit pattern.
#[diagnostic::do_not_recommend]
unsafe impl crate::cell::PmType for VersionLock {
    const WORDS: usize = 1;
}

/// Exclusive ownership of a [`VersionLock`]; unlocks to the next version when dropped.
#[derive(Debug)]
#[must_use]
pub struct VersionGuard<'a> {
    lock: &'a VersionLock,
    locked: u64,
}

impl VersionLock {
    /// Makes an unlocked lock at version 0.
    #[must_use]
    pub const fn new() -> Self {
        Self(VersionWord(AtomicU64::new(0)))
    }

    /// Returns a version, unlocked and not 0, above all that this lock ever had; the lock must be free.
    #[must_use]
    pub fn above(&self) -> u64 {
        self.0.above()
    }

    /// Sets the version to `version`, if it is 0: for the lock of a node that no thread can reach yet, in
    /// memory that may be [released](crate::Arena::free_and_release) and become zero again. So the lock is
    /// never at version 0 while the node can be reached, and a reader that has an older version notices the
    /// zeros.
    #[inline(always)]
    pub fn begin_at(&self, version: u64) {
        self.0.begin_at(version);
    }

    /// Starts an optimistic read: waits while a writer holds the lock, then returns the version.
    #[inline(always)]
    pub fn begin_read(&self, pm: &impl Medium) -> u64 {
        pm.yield_point();
        match self.0.version() {
            Some(version) => version,
            None => self.wait(pm),
        }
    }

    /// Waits until no writer holds the lock, and returns the version. Apart, so that readers are short.
    #[cold]
    #[inline(never)]
    fn wait(&self, pm: &impl Medium) -> u64 {
        loop {
            self.refuse_own_wait();
            pm.spin();
            pm.yield_point();
            if let Some(version) = self.0.version() {
                return version;
            }
        }
    }

    /// Returns `true` if no writer has locked since [`begin_read`](Self::begin_read) returned `version`.
    #[inline(always)]
    #[must_use]
    pub fn validate(&self, pm: &impl Medium, version: u64) -> bool {
        pm.yield_point();
        self.0.is_still(version)
    }

    /// Locks if the version is still `version`.
    #[inline(always)]
    pub fn try_upgrade(&self, pm: &impl Medium, version: u64) -> Option<VersionGuard<'_>> {
        pm.yield_point();
        self.0.try_lock(version).then(|| VersionGuard { lock: self, locked: version | 1 }) // not eagerly: it unlocks
    }

    /// Locks, unless the lock is held: for a thread that holds another lock and must not wait.
    #[inline]
    pub fn try_lock(&self, pm: &impl Medium) -> Option<VersionGuard<'_>> {
        self.0.version().and_then(|version| self.try_upgrade(pm, version))
    }

    /// Locks, spinning while another writer holds it.
    #[inline]
    pub fn lock(&self, pm: &impl Medium) -> VersionGuard<'_> {
        loop {
            let version = self.begin_read(pm);
            if let Some(guard) = self.try_upgrade(pm, version) {
                return guard;
            }
            pm.spin();
        }
    }
}

impl VersionGuard<'_> {
    /// Returns the version that readers will see after this guard is dropped.
    #[must_use]
    pub fn next_version(&self) -> u64 {
        self.locked.wrapping_add(1)
    }

    /// Returns `true` if this guard holds `lock`.
    #[must_use]
    pub fn is_of(&self, lock: &VersionLock) -> bool {
        core::ptr::eq(self.lock, lock)
    }
}

impl Drop for VersionGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.0.unlock(self.locked);
    }
}

/// Version locks shared by many nodes: node `offset` uses the lock at a hash of its offset.
///
/// The locks outlive every node, so a node's memory may be reused for anything at any time: a reader that
/// followed a stale pointer fails its validation, because the thread that unlinked the node held its lock.
/// Nodes that share a lock only cause each other retries. A thread that needs several locks takes them in
/// ascending order of [`index_of`](Self::index_of), each once.
#[derive(Debug)]
pub struct VersionTable {
    locks: Box<[VersionLock]>,
    shift: u32,
}

impl VersionTable {
    /// Makes a table of `2^bits` locks (8 bytes of DRAM each); `bits` is 1 to 32.
    #[must_use]
    pub fn new(bits: u32) -> Self {
        let bits = bits.clamp(1, 32);
        Self { locks: (0..1usize << bits).map(|_| VersionLock::new()).collect(), shift: 64 - bits }
    }

    /// Returns the number of locks.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// Returns all locks, by index: for an operation that excludes all others.
    #[must_use]
    pub fn all(&self) -> &[VersionLock] {
        &self.locks
    }

    /// Returns the index of the lock of the node at `offset`.
    #[inline(always)]
    #[must_use]
    pub fn index_of(&self, offset: u64) -> usize {
        // Fibonacci hashing; the shift leaves `bits` bits, so the index is in range.
        (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// Returns the lock of the node at `offset`.
    #[inline(always)]
    #[must_use]
    pub fn of(&self, offset: u64) -> &VersionLock {
        let index = self.index_of(offset);
        debug_assert!(index < self.locks.len());
        // SAFETY: the shift leaves as many bits as `new` made locks for.
        unsafe { self.locks.get_unchecked(index) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;

    #[test]
    fn all_locks_are_those_that_offsets_use() {
        let table = VersionTable::new(3);
        assert_eq!(table.all().len(), table.len());
        for offset in 0..100 {
            assert!(core::ptr::eq(
                &raw const table.all()[table.index_of(offset)],
                table.of(offset)
            ));
        }
    }

    #[test]
    fn a_failed_upgrade_leaves_the_holder_alone() {
        let pool = Pool::volatile(1 << 16).unwrap();
        let lock = VersionLock::new();
        let version = lock.begin_read(pool.pm());
        let guard = lock.try_upgrade(pool.pm(), version).unwrap();
        assert!(lock.try_upgrade(pool.pm(), version).is_none());
        assert!(!lock.validate(pool.pm(), version + 2), "still locked");
        drop(guard);
        assert_eq!(lock.begin_read(pool.pm()), version + 2);
    }
}
