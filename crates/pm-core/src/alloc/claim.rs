//! A claim: a lock that no thread waits for, released by a plain store.
//!
//! A slot is claimed and released once per operation, and atomic read-modify-writes are expensive: on x86
//! each drains the store buffer. A mutex needs one to lock and one to unlock; a claim needs one in all.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A value that one thread at a time can claim.
#[derive(Debug, Default)]
pub(super) struct Claim<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `taken` lets one thread at a time reach the value, which therefore only moves between
// threads.
unsafe impl<T: Send> Sync for Claim<T> {}

/// The claimed value; dropping it releases the claim. It stays on its thread, because a fence covers the
/// flushes of its own thread only.
#[derive(Debug)]
pub(super) struct Claimed<'a, T> {
    claim: &'a Claim<T>,
    not_send: PhantomData<*mut T>,
}

impl<T> Claim<T> {
    /// Claims the value; `None` if another thread has it.
    #[inline]
    pub(super) fn try_claim(&self) -> Option<Claimed<'_, T>> {
        // Acquire pairs with the Release of the last holder's drop.
        let free = !self.taken.load(Relaxed)
            && self.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok();
        free.then(|| Claimed { claim: self, not_send: PhantomData })
    }
}

impl<T> Deref for Claimed<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: only one `Claimed` exists at a time, and this borrows it.
        unsafe { &*self.claim.value.get() }
    }
}

impl<T> DerefMut for Claimed<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: only one `Claimed` exists at a time, and this borrows it mutably.
        unsafe { &mut *self.claim.value.get() }
    }
}

impl<T> Drop for Claimed<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.claim.taken.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_it() {
        let claim: Claim<u64> = Claim::default();
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..10_000 {
                        loop {
                            if let Some(mut value) = claim.try_claim() {
                                // A failed attempt must not release the claim, nor must a second one.
                                assert!(claim.try_claim().is_none());
                                assert!(claim.try_claim().is_none());
                                *value += 1;
                                break;
                            }
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        assert_eq!(claim.try_claim().map(|value| *value), Some(40_000));
    }
}
