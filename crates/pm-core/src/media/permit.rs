//! The permission to write to a private copy, which only threads in recovery have.
//!
//! A pool that is open for reading only, or that lost its disk, is a private copy of the file. Recovery may
//! write to it, and its fences succeed, although nothing is durable. Any other write would be acknowledged
//! and lost. So the permission belongs to the thread and to the pool that it recovers, never to the pool as a
//! whole.

use core::marker::PhantomData;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::threadlist::thread_list;

thread_list! {
    /// The pools that this thread recovers, one entry for each scope.
    const RECOVERS: u64, kept if |_| true;
}

/// Identifies a pool of this process, closed ones included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permit(u64);

/// Allows this thread to write until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Permitted {
    permit: Permit,
    /// Only the thread that took it can drop it.
    here: PhantomData<*const ()>,
}

impl Permit {
    /// Makes the permit of a pool that is being opened.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Relaxed))
    }

    /// Lets this thread write.
    pub(crate) fn take(self) -> Permitted {
        RECOVERS.with(|recovers| recovers.push(self.0));
        Permitted { permit: self, here: PhantomData }
    }

    /// Returns `true` if this thread may write.
    pub(crate) fn is_taken(self) -> bool {
        RECOVERS.with(|recovers| recovers.contains(&self.0))
    }
}

impl Drop for Permitted {
    fn drop(&mut self) {
        RECOVERS.with(|recovers| {
            if let Some(at) = recovers.iter().rposition(|&pool| pool == self.permit.0) {
                recovers.swap_remove(at);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_of_one_thread_and_one_pool() {
        let (pool, other) = (Permit::new(), Permit::new());
        let first = pool.take();
        let second = pool.take();
        assert!(pool.is_taken() && !other.is_taken());
        let elsewhere = std::thread::spawn(move || pool.is_taken());
        assert!(!elsewhere.join().unwrap());
        drop(first);
        assert!(pool.is_taken());
        drop(second);
        assert!(!pool.is_taken());
    }
}
