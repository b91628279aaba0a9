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
//!
//! **Watched writers.** A watched write reads its record, notes it, and then changes the index. So no unwatched
//! write may come in between, although the last watcher may end meanwhile. The writer announces itself beside the
//! watchers, in the same word, while there is a watcher, and waits as in V2, since that watcher may still wait. Once
//! only watched writers are left, a write that begins waits for their end: if it were watched too, writers could keep
//! each other watched for as long as there are any.
//!
//! The first one that has waited says so in the word, until it is 0: those that come later need not wait.
//!
//! A lane belongs to one thread while the thread lives, so W1 is one exchange and W3 a plain store. Threads beyond
//! the number of lanes share one lane, and count in it.
//!
//! **Quick writers.** An exchange at W1 waits until all earlier stores of its thread are visible, which takes longer
//! than the instruction itself if these stores miss the caches. So while watchers are rare, writers are *quick*: W1 is a
//! plain store, and a watcher makes all threads pass a [barrier] between V1 and V2. One word holds the number of
//! watchers and the quick flag: a quick writer's W2 reads "quick, and no watchers" in it, or the writer leaves and
//! begins again with an exchange. A watcher that adds itself to a word with the quick flag passes the barrier and then
//! clears the flag, so the next watchers need no barrier. After [`PATIENCE`] writes of one lane that met no watcher,
//! the flag is set again if no watcher exists. So a workload of transactions rarely passes the barrier, and
//! single writes alone never do.

use std::cell::Cell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, compiler_fence, fence};

use pmindex_core::Medium;

use crate::barrier;
use crate::wait::wait_until;

/// The number of counters of writers.
const LANES: usize = 64;

/// The lane of threads that have none of their own.
const SHARED: usize = 0;

/// The distance between two counters in words, so that each has lines of its own. The word after a counter is the
/// number of its lane's writes that met no watcher, for [`PATIENCE`].
const LANE_STRIDE: usize = 16;

/// The number of writes of a lane that must meet no watcher before writers are quick again.
const PATIENCE: u64 = 64;

/// In the gate's word: writers are quick.
const QUICK: u64 = 1;
/// In the gate's word: no unwatched write is in progress, and none begins.
const CLOSED: u64 = 2;
/// In the gate's word: one watched writer.
const WRITER: u64 = 4;
/// In the gate's word: one watcher.
const WATCHER: u64 = 1 << 32;

/// The gate. The lanes come first, at the start of a line: their address is the gate's, and the offset of a
/// counter needs no multiplication.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Gate {
    /// A counter every [`LANE_STRIDE`] words.
    lanes: [AtomicU64; LANES * LANE_STRIDE],
    /// [`QUICK`] or [`CLOSED`] or neither, a [`WRITER`] for each watched one, a [`WATCHER`] for each.
    watchers: AtomicU64,
    /// How often a first watcher has come.
    periods: AtomicU64,
}

/// Exists while an unwatched write is in progress. It stays with the thread that has begun it, and ends
/// before those that the thread began earlier.
#[derive(Debug)]
#[must_use]
pub(crate) struct Unwatched<'g> {
    lane: &'g AtomicU64,
    /// What the thread's own lane was before W1.
    before: u64,
}

impl Drop for Unwatched<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lane.store(self.before, Release); // W3
    }
}

/// As [`Unwatched`], in the lane that threads share.
#[derive(Debug)]
#[must_use]
pub(crate) struct Counted<'g>(&'g AtomicU64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Release); // W3
    }
}

/// Either.
#[derive(Debug)]
#[must_use]
#[allow(dead_code, reason = "it is dropped at the end of the write")]
pub(crate) enum Entered<'g> {
    Own(Unwatched<'g>),
    Shared(Counted<'g>),
}

/// Exists while a watched write is in progress: no unwatched write is.
#[derive(Debug)]
#[must_use]
pub(crate) struct WatchedWriter<'g>(&'g Gate);

impl Drop for WatchedWriter<'_> {
    fn drop(&mut self) {
        self.0.leave_as(WRITER);
    }
}

/// A write that has begun.
#[derive(Debug)]
#[must_use]
pub(crate) enum Write<'g> {
    Unwatched(#[allow(dead_code, reason = "it is dropped at the end of the write")] Entered<'g>),
    Watched(WatchedWriter<'g>),
}

/// Whether each lane belongs to a thread, of all gates.
static TAKEN: [AtomicBool; LANES] = [const { AtomicBool::new(false) }; LANES];

/// The first of the lanes that no thread has ever taken.
static NEVER: AtomicUsize = AtomicUsize::new(SHARED + 1);

/// The offset for a thread that has no lane yet, and for one that shares: behind all lanes.
const NO_PLACE: usize = LANES * LANE_STRIDE;
const SHARED_PLACE: usize = NO_PLACE + LANE_STRIDE;

/// Gives the thread's lane back when the thread ends.
struct Owner(usize);

impl Drop for Owner {
    fn drop(&mut self) {
        PLACE.set(SHARED_PLACE); // for what the thread's other variables do at their end
        TAKEN[self.0].store(false, Release); // after: its last W3
    }
}

thread_local! {
    /// The offset of this thread's counter; behind all of them if it has no lane of its own.
    static PLACE: Cell<usize> = const { Cell::new(NO_PLACE) };
    static OWNER: Cell<Option<Owner>> = const { Cell::new(None) };
}

/// Returns the lane of this thread.
#[inline]
pub(crate) fn lane_of_thread() -> usize {
    match PLACE.get() {
        NO_PLACE => take_lane(),
        SHARED_PLACE => SHARED,
        place => place / LANE_STRIDE,
    }
}

#[cold]
fn take_lane() -> usize {
    let is_free =
        |lane: &usize| TAKEN[*lane].compare_exchange(false, true, Acquire, Relaxed).is_ok();
    let own = (SHARED + 1..LANES).find(is_free).filter(|lane| {
        let owned = OWNER.try_with(|owner| owner.set(Some(Owner(*lane))));
        if owned.is_err() {
            TAKEN[*lane].store(false, Release); // the thread is at its end
        }
        owned.is_ok()
    });
    let Some(lane) = own else {
        PLACE.set(SHARED_PLACE);
        return SHARED;
    };
    NEVER.fetch_max(lane + 1, SeqCst); // before: W1 of this thread
    PLACE.set(lane * LANE_STRIDE);
    lane
}

impl Gate {
    pub(crate) fn new() -> Self {
        let watchers = if barrier::is_available() { QUICK } else { 0 };
        Self {
            watchers: AtomicU64::new(watchers),
            periods: AtomicU64::new(0),
            lanes: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Returns `true` if a watcher exists. A reader that has seen a watched write sees its watcher too; one that
    /// finds none sees all changes of commits that have ended.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.load(Acquire) >= WATCHER
    }

    /// Returns a number that stays the same, and [`is_unwatched_since`](Self::is_unwatched_since), as long as no
    /// watcher comes; `None` if one exists.
    #[inline]
    pub(crate) fn unwatched(&self) -> Option<u64> {
        let period = self.periods.load(Acquire);
        (!self.is_watched()).then_some(period)
    }

    /// Returns `true` if no watcher has come since then whose changes were seen.
    #[inline]
    pub(crate) fn is_unwatched_since(&self, period: u64) -> bool {
        fence(Acquire);
        // In this order: the first watcher is counted before it leaves.
        !self.is_watched() && self.periods.load(Relaxed) == period
    }

    /// Begins a write.
    pub(crate) fn begin(&self, pm: &impl Medium) -> Write<'_> {
        loop {
            if let Some(entered) = self.enter(pm) {
                return Write::Unwatched(entered);
            }
            if let Some(watched) = self.enter_watched(pm) {
                return Write::Watched(watched);
            }
            // The last watcher has left.
            wait_until(pm, || {
                let word = self.watchers.load(Acquire);
                !(WRITER..WATCHER).contains(&word)
            });
        }
    }

    /// Begins a watched write, if a watcher exists.
    fn enter_watched(&self, pm: &impl Medium) -> Option<WatchedWriter<'_>> {
        let with = |word| (word >= WATCHER).then_some(word + WRITER);
        let before = self.watchers.fetch_update(SeqCst, Relaxed, with).ok()?;
        let watched = WatchedWriter(self);
        self.close(pm, before);
        Some(watched)
    }

    /// Begins an unwatched write, unless a watcher or a watched writer exists.
    fn enter(&self, pm: &impl Medium) -> Option<Entered<'_>> {
        let place = lane_of_thread() * LANE_STRIDE;
        if let Some(entered) = self.enter_quickly(pm) {
            return Some(Entered::Own(entered));
        }
        if self.watchers.load(Relaxed) >= WRITER {
            return None;
        }
        let (lane, met_none) = (&self.lanes[place], &self.lanes[place + 1]);
        pm.yield_point();
        let entered = if place == SHARED * LANE_STRIDE {
            lane.fetch_add(1, SeqCst); // W1
            Entered::Shared(Counted(lane))
        } else {
            let before = lane.load(Relaxed);
            lane.swap(before + 1, SeqCst); // W1
            Entered::Own(Unwatched { lane, before })
        };
        pm.yield_point();
        if self.watchers.load(SeqCst) >= WRITER {
            return None; // W2; it leaves
        }
        if barrier::is_available() {
            let writes = met_none.load(Relaxed) + 1;
            if writes >= PATIENCE {
                // Or there is a watcher, or another thread was first.
                let _ = self.watchers.compare_exchange(0, QUICK, SeqCst, Relaxed);
            }
            met_none.store(writes % PATIENCE, Relaxed);
        }
        Some(entered)
    }

    /// Begins a write, if writers are quick and the thread has a lane of its own. Few instructions: it
    /// calls nothing, so that its caller keeps its registers, and checks once.
    #[inline(always)]
    pub(crate) fn enter_quickly(&self, pm: &impl Medium) -> Option<Unwatched<'_>> {
        let lane = self.lanes.get(PLACE.get())?;
        pm.yield_point();
        let before = lane.load(Relaxed);
        lane.store(before + 1, Relaxed); // W1
        compiler_fence(SeqCst); // the watcher has the processor pass the other half
        let entered = Unwatched { lane, before };
        pm.yield_point();
        (self.watchers.load(Acquire) == QUICK).then_some(entered) // W2; otherwise it leaves
    }

    /// Begins to watch: after it returns, all writes are watched until [`leave`](Self::leave).
    pub(crate) fn watch(&self, pm: &impl Medium) {
        let before = self.watchers.fetch_add(WATCHER, SeqCst); // V1
        if before < WATCHER {
            self.periods.fetch_add(1, Release);
        }
        self.close(pm, before);
    }

    /// Waits until no unwatched write is in progress, for one who has announced itself in the word, which was
    /// `before`.
    fn close(&self, pm: &impl Medium, before: u64) {
        if before & CLOSED != 0 {
            return;
        }
        if before & QUICK != 0 {
            barrier::for_all();
            self.watchers.fetch_and(!QUICK, SeqCst); // after the barrier: the next watcher passes none
        }
        // A thread that takes a new lane later has not checked for watchers yet.
        for lane in self.lanes.iter().step_by(LANE_STRIDE).take(NEVER.load(SeqCst)) {
            if lane.load(SeqCst) != 0 {
                wait_until(pm, || lane.load(SeqCst) == 0); // V2
            }
        }
        fence(Acquire);
        self.watchers.fetch_or(CLOSED, Release); // after: the writes that it waited for
    }

    /// Ends [`watch`](Self::watch).
    pub(crate) fn leave(&self) {
        self.leave_as(WATCHER);
    }

    fn leave_as(&self, one: u64) {
        let without = |word: u64| {
            let left = word - one;
            Some(if left < WRITER { left & !CLOSED } else { left })
        };
        let _ = self.watchers.fetch_update(AcqRel, Relaxed, without);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;
    use std::time::Duration;

    use pmindex_core::Pool;

    use super::*;

    /// More threads than lanes, and threads that come when others have gone.
    #[test]
    fn each_thread_has_its_lane_or_shares_one_that_counts() {
        let pool = Pool::volatile(1 << 16).unwrap();
        let gate = Gate::new();
        for round in 0..3 {
            let (all_in, all_seen) = (Barrier::new(2 * LANES + 1), Barrier::new(2 * LANES + 1));
            thread::scope(|scope| {
                for _ in 0..2 * LANES {
                    scope.spawn(|| {
                        let outer = gate.enter(pool.pm()).unwrap();
                        drop(gate.enter(pool.pm()).unwrap()); // within: the outer one goes on
                        all_in.wait();
                        all_seen.wait();
                        drop(outer);
                    });
                }
                all_in.wait();
                let lanes = gate.lanes.iter().step_by(LANE_STRIDE).map(|lane| lane.load(SeqCst));
                let lanes: Vec<_> = lanes.collect();
                assert_eq!(lanes.iter().sum::<u64>(), 2 * LANES as u64, "{round}: {lanes:?}");
                assert!(lanes[SHARED] > LANES as u64, "{round}: {lanes:?}");
                // Other tests' threads may have some of them.
                assert!(lanes[SHARED + 1..].iter().all(|lane| *lane <= 1), "{round}: {lanes:?}");
                all_seen.wait();
            });
            gate.watch(pool.pm()); // nobody is left behind
            gate.leave();
        }
    }

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
            drop(second);
            thread::sleep(Duration::from_millis(20)); // a watcher that did not wait would have finished
            assert!(!watches.load(SeqCst), "a write is under way");
            drop(first);
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
        let was_quick = AtomicU64::new(0);
        let numbers = [AtomicU64::new(0), AtomicU64::new(0)];
        let mut moved = None;
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Relaxed) {
                        if let Some(_unwatched) = gate.enter(pool.pm()) {
                            was_quick.fetch_add(gate.watchers.load(Relaxed) & QUICK, Relaxed);
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
        assert!(was_quick.into_inner() > 0 || !barrier::is_available());
    }

    #[test]
    fn writers_are_quick_until_somebody_watches_and_a_while_after() {
        if !barrier::is_available() {
            return;
        }
        let pool = Pool::volatile(1 << 16).unwrap();
        let gate = Gate::new();
        let is_quick = || gate.watchers.load(SeqCst) & QUICK != 0;
        for _ in 0..2 {
            assert!(is_quick() && gate.enter(pool.pm()).is_some());
            gate.watch(pool.pm());
            assert!(!is_quick() && gate.enter(pool.pm()).is_none());
            gate.watch(pool.pm()); // passes no barrier
            gate.leave();
            gate.leave();
            for _ in 0..PATIENCE {
                assert!(!is_quick());
                drop(gate.enter(pool.pm()).unwrap());
            }
        }
    }
}
