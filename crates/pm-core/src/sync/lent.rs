//! Locks that are held while a caller's code runs.
//!
//! A bulk load holds the locks of an index while it takes records from an iterator, and the iterator may use
//! the same index: the thread would wait for itself, for ever. So the thread records which locks it holds,
//! and a wait for one of them is a panic, which ends the load as any panic in the iterator does. A thread
//! that finds a lock free, or that waits for another thread, pays nothing.

use core::marker::PhantomData;
use core::ops::Range;

use crate::threadlist::thread_list;

use super::version::VersionLock;

thread_list! {
    /// Addresses of locks that this thread holds while a caller's code runs.
    const LENT: Range<usize>, kept if |_| true;
}

/// The locks that this thread holds while a caller's code runs, until this is dropped: see
/// [`VersionLock::lend`].
#[derive(Debug)]
#[must_use]
pub struct Lent<'l> {
    _locks: PhantomData<&'l [VersionLock]>,
    _this_thread: PhantomData<*const ()>,
}

impl VersionLock {
    /// Records that this thread, which holds these locks, runs code of its caller: until the result is
    /// dropped, a wait of this thread for one of them is a panic. (The results must be dropped in reverse
    /// order.)
    pub fn lend(locks: &[Self]) -> Lent<'_> {
        let range = locks.as_ptr_range();
        LENT.with(|lent| lent.push(range.start.addr()..range.end.addr()));
        Lent { _locks: PhantomData, _this_thread: PhantomData }
    }

    /// Checks a wait of this thread before it begins.
    ///
    /// # Panics
    /// If it would wait for itself.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse_own_wait(&self) {
        let at = core::ptr::from_ref(self).addr();
        let own = LENT.with(|lent| lent.iter().any(|locks| locks.contains(&at)));
        assert!(!own, "an iterator of records uses the index that they are loaded into");
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        LENT.with(Vec::pop);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::pool::Pool;

    #[test]
    fn who_would_wait_for_itself_panics() {
        let pool = Pool::volatile(1 << 16).unwrap();
        let pm = pool.pm();
        let locks = [const { VersionLock::new() }; 3];
        let guard = locks[1].lock(pm);
        let lent = VersionLock::lend(&locks[..2]);
        let waits =
            |lock: &VersionLock| catch_unwind(AssertUnwindSafe(|| lock.begin_read(pm))).is_err();
        assert!(waits(&locks[1]) && waits(&locks[1]), "held and lent");
        assert!(!waits(&locks[0]) && !waits(&locks[2]), "free");
        std::thread::scope(|scope| {
            // Another thread waits as usual.
            let other = scope.spawn(|| locks[1].lock(pm));
            drop((lent, guard));
            drop(other.join().unwrap());
        });
        assert!(!waits(&locks[1]));
    }
}
