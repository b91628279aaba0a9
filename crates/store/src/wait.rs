//! Waiting for another thread.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pmindex_core::Medium;

/// The number of turns without sleep.
const AWAKE: u32 = 2_000;
/// The duration of the sleep in each later turn.
const NAP: Duration = Duration::from_micros(50);

/// Waits until `is_so` returns `true`.
pub(crate) fn wait_until(pm: &impl Medium, mut is_so: impl FnMut() -> bool) {
    let mut turns = 0;
    loop {
        pm.yield_point();
        if is_so() {
            return;
        }
        turns += 1;
        pm.spin();
        if turns > AWAKE {
            pm.nap(NAP);
        } else if turns % 16 == 0 {
            std::thread::yield_now();
        }
    }
}

/// Locks a mutex that is held across accesses to a pool.
pub(crate) fn lock<'m, T>(pm: &impl Medium, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
    let mut locked = None;
    wait_until(pm, || {
        locked = mutex.try_lock();
        locked.is_some()
    });
    locked.unwrap_or_else(|| mutex.lock())
}
