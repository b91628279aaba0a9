//! Unwatched writers, and how a watcher waits for them.
//!
//! While nothing reads old values, a write of a map notes nothing and goes to its index at once. So before a
//! thread begins to read a moment, it must know that no such write is in progress, since that would change
//! the moment while it is read. Writers announce themselves in a counter of their thread's lane and then
//! check whether a watcher exists; a watcher registers and then checks the counters. Both orders are
//! sequentially consistent, so at least one of the two sees the other:
//!
//! ```text
//! writer                              watcher
//! W1  lane += 1                       V1  watchers += 1
//! W2  watchers == 0 ? write : go back V2  wait until each lane was 0
//! W3  lane -= 1
//! ```
//!
//! If W2 reads 0, then W1 is before V1 in that order, and V2 waits for W3.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use pmindex_core::Medium;

use crate::wait::wait_until;

/// The number of counters of writers; threads share one only if there are more threads.
const LANES: usize = 64;

/// The distance between two counters in words, so that each has lines of its own.
const LANE_STRIDE: usize = 16;

/// The gate. The lanes come first, at the start of a line: their address is the gate's, and the offset of a
/// counter needs no multiplication.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Gate {
    /// A counter every [`LANE_STRIDE`] words.
    lanes: [AtomicU64; LANES * LANE_STRIDE],
    watchers: AtomicU64,
}

/// Exists while an unwatched write is in progress.
#[derive(Debug)]
#[must_use]
pub(crate) struct Unwatched<'g>(&'g AtomicU64);

impl Drop for Unwatched<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_sub(1, Release); // W3
    }
}

/// The number of lanes that threads have taken, of all gates.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The offset of this thread's counter; behind all of them if it has none yet.
    static PLACE: Cell<usize> = const { Cell::new(LANES * LANE_STRIDE) };
}

/// Returns the lane of this thread.
#[inline]
pub(crate) fn lane_of_thread() -> usize {
    match PLACE.get() / LANE_STRIDE {
        LANES.. => take_lane(),
        lane => lane,
    }
}

#[cold]
fn take_lane() -> usize {
    let lane = TAKEN.fetch_add(1, SeqCst) % LANES; // before: W1 of this thread
    PLACE.set(lane * LANE_STRIDE);
    lane
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { watchers: AtomicU64::new(0), lanes: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Returns `true` if a watcher exists. A reader that has seen a watched write sees its watcher too.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.load(Relaxed) != 0
    }

    /// Begins a write, unless a watcher exists.
    pub(crate) fn enter(&self, pm: &impl Medium) -> Option<Unwatched<'_>> {
        lane_of_thread();
        if self.is_watched() { None } else { self.enter_again(pm) }
    }

    /// Begins a write, unless a watcher exists or this is the first one of its thread. Few instructions: it
    /// calls nothing, so that its caller keeps its registers, and checks once.
    #[inline(always)]
    pub(crate) fn enter_again(&self, pm: &impl Medium) -> Option<Unwatched<'_>> {
        let lane = self.lanes.get(PLACE.get())?;
        pm.yield_point();
        lane.fetch_add(1, SeqCst); // W1
        let entered = Unwatched(lane);
        pm.yield_point();
        (self.watchers.load(SeqCst) == 0).then_some(entered) // W2; otherwise it leaves
    }

    /// Begins to watch: after it returns, all writes are watched until [`leave`](Self::leave).
    pub(crate) fn watch(&self, pm: &impl Medium) {
        self.watchers.fetch_add(1, SeqCst); // V1
        // A thread that takes a lane later has not checked for watchers yet.
        for lane in self.lanes.iter().step_by(LANE_STRIDE).take(TAKEN.load(SeqCst)) {
            if lane.load(SeqCst) != 0 {
                wait_until(pm, || lane.load(SeqCst) == 0); // V2
            }
        }
        std::sync::atomic::fence(Acquire);
    }

    /// Ends [`watch`](Self::watch).
    pub(crate) fn leave(&self) {
        self.watchers.fetch_sub(1, Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::Duration;

    use pmindex_core::Pool;

    use super::*;

    #[test]
    fn who_watches_waits_for_who_writes_and_stops_who_comes_later() {
        let pool = Pool::volatile(1 << 16).unwrap();
        let (gate, watches) = (Gate::new(), AtomicBool::new(false));
        let first = gate.enter(pool.pm()).unwrap();
        let second = gate.enter(pool.pm()).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                gate.watch(pool.pm());
                watches.store(true, SeqCst);
            });
            while !gate.is_watched() {
                thread::yield_now();
            }
            assert!(gate.enter(pool.pm()).is_none());
            drop(first);
            thread::sleep(Duration::from_millis(20)); // a watcher that did not wait would have finished
            assert!(!watches.load(SeqCst), "a write is under way");
            drop(second);
        });
        assert!(watches.load(SeqCst));
        gate.leave();
        assert!(gate.enter(pool.pm()).is_some());
    }

    /// Each writer increments two numbers; a watcher finds them equal and unchanging.
    #[test]
    fn nothing_moves_while_somebody_watches() {
        let pool = Pool::volatile(1 << 16).unwrap();
        let (gate, over) = (Gate::new(), AtomicBool::new(false));
        let numbers = [AtomicU64::new(0), AtomicU64::new(0)];
        let mut moved = None;
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Relaxed) {
                        if let Some(_unwatched) = gate.enter(pool.pm()) {
                            numbers[0].fetch_add(1, Relaxed);
                            (0..200).for_each(|_| std::hint::spin_loop());
                            numbers[1].fetch_add(1, Relaxed);
                        }
                    }
                });
            }
            for _ in 0..5_000 {
                gate.watch(pool.pm());
                let read = || [numbers[0].load(Relaxed), numbers[1].load(Relaxed)];
                let (one, other) = (read(), read());
                gate.leave();
                moved = moved.or((one != other || one[0] != one[1]).then_some((one, other)));
                (0..500).for_each(|_| std::hint::spin_loop()); // lets writers in
            }
            over.store(true, Relaxed);
        });
        assert_eq!(moved, None);
    }
}
