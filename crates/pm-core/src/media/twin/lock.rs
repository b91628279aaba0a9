//! A lock that no thread is handed over.
//!
//! Fences take it, and so do threads of lower priority. A lock that is fair is handed over to a thread that has
//! queued for it, even while that has no processor, and then every fence waits until it gets one: a millisecond
//! or more. This one is free as soon as it is left, and whichever thread runs takes it. A thread that is notified
//! does not queue either.

use core::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A value behind a lock.
#[derive(Debug, Default)]
pub(super) struct Lock<T>(Mutex<T>);

/// The value, while the lock is held.
pub(super) struct Held<'l, T> {
    lock: &'l Mutex<T>,
    /// None only while the lock is left for a while.
    guard: Option<MutexGuard<'l, T>>,
}

impl<T> Lock<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Takes the lock, even if a thread has panicked with it.
    pub(super) fn lock(&self) -> Held<'_, T> {
        Held { lock: &self.0, guard: Some(take(&self.0)) }
    }
}

fn take<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Held<'_, T> {
    /// Calls `act` while the lock is free.
    pub(super) fn unlocked<R>(&mut self, act: impl FnOnce() -> R) -> R {
        self.guard = None;
        let done = act();
        self.guard = Some(take(self.lock));
        done
    }

    /// Waits for a notification while the lock is free.
    pub(super) fn wait(&mut self, change: &Condvar) {
        let Some(guard) = self.guard.take() else { return };
        self.guard = Some(change.wait(guard).unwrap_or_else(PoisonError::into_inner));
    }

    /// As [`wait`](Self::wait), until this time at the latest; returns `true` if that is why it returns.
    pub(super) fn wait_until(&mut self, change: &Condvar, until: Instant) -> bool {
        let Some(guard) = self.guard.take() else { return false };
        let most = until.saturating_duration_since(Instant::now());
        let (guard, waited) =
            change.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner);
        self.guard = Some(guard);
        waited.timed_out()
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.guard.as_deref().expect("held, except within a call that has it")
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_deref_mut().expect("held, except within a call that has it")
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use core::time::Duration;

    use super::*;

    /// Lets this thread run on the first processor alone.
    fn on_one_processor() {
        let mut all = rustix::thread::sched_getaffinity(None).expect("told");
        let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).expect("one");
        all.clear();
        all.set(first);
        rustix::thread::sched_setaffinity(None, &all).expect("one of its own");
    }

    #[test]
    fn who_leaves_the_lock_may_take_it_again_before_a_thread_that_was_notified_has_a_processor() {
        const ROUNDS: usize = 100;
        let (lock, change, mut again) = (Lock::new(0), Condvar::new(), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                on_one_processor();
                crate::sys::be_nice(19);
                let mut round = lock.lock();
                while *round < ROUNDS {
                    round.wait(&change);
                }
            });
            scope.spawn(|| {
                on_one_processor();
                for _ in 0..ROUNDS {
                    let mut round = lock.lock();
                    // So long that a fair lock would be handed over.
                    std::thread::sleep(Duration::from_millis(2));
                    *round += 1;
                    change.notify_one();
                    drop(round);
                    again += usize::from(lock.0.try_lock().is_ok());
                }
            });
        });
        // A thread may lose its processor just here.
        assert!(again > ROUNDS / 2, "{again} of {ROUNDS}");
    }
}
