//! The deterministic scheduler: several logical threads, one of which runs at a time.
//!
//! Each logical thread is an operating-system thread that waits for the baton. Every access to a cell, every
//! attempt to lock and every turn of a wait loop is a yield point, where the scheduler chooses by its seed
//! which thread gets the baton next: equal seeds give equal interleavings.
//!
//! Strategies, by seed: rare or frequent random preemption; priorities with a few change points (PCT), which
//! finds orderings of depth d with known probability; and priorities that change only at handover points
//! (every fence, and where an operation passes on a slot, a block, or a chain), so that other threads run whole
//! operations in between. [`preempt_once`] tries every place of a single preemption, [`preempt_nested`]
//! two of two threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pmindex_core::trace::{ThreadControl, run_as};

use super::panics;
use super::rng::Rng;

#[derive(Clone, Copy, Debug)]
enum Strategy {
    /// Another thread with probability 1 / n.
    Random(usize),
    /// The thread of the highest priority, changed at random moments.
    Priorities { change_one_in: usize },
    /// The same, changed only at handover points.
    Handovers { change_one_in: usize },
    /// This thread is the first to run and is preempted once, before this yield point of its own, or handover
    /// point; a thread that waits for it lets it continue.
    Once { thread: usize, at: u64, handovers: bool },
    /// Threads 0 and 1 are preempted once each, before these yield points of their own: by thread 1, and by
    /// thread 2. A thread that ends or waits lets the one before it continue.
    Nested { at: [u64; 2] },
}

impl Strategy {
    /// Returns whether it counts all yield points, not only the handover points.
    fn counts_all(self) -> bool {
        matches!(self, Self::Once { handovers: false, .. } | Self::Nested { .. })
    }
}

#[derive(Debug)]
struct State {
    /// The thread that holds the baton; `None` before the start and after the end.
    current: Option<usize>,
    alive: Vec<bool>,
    priority: Vec<u64>,
    rng: Rng,
    strategy: Strategy,
    /// Handover points of each thread so far, or yield points, if a strategy counts those.
    points: Vec<u64>,
    /// Yield points so far: shows the watchdog that the run makes progress.
    steps: u64,
    switches: u64,
    lowest: u64,
}

#[derive(Debug)]
struct Baton {
    state: Mutex<State>,
    turn: Vec<Condvar>,
    finished: Condvar,
}

/// How long a run may make no progress before it is given up: then a thread waits for a lock without
/// [`Medium::lock`](pmindex_core::Medium::lock), which the scheduler cannot see.
const WATCHDOG: Duration = Duration::from_secs(60);

impl State {
    fn choose(&mut self, me: usize, must: bool) -> Option<usize> {
        let others: Vec<usize> =
            (0..self.alive.len()).filter(|&t| t != me && self.alive[t]).collect();
        if others.is_empty() {
            return self.alive[me].then_some(me);
        }
        match self.strategy {
            Strategy::Random(_) => Some(others[self.rng.below(others.len())]),
            // The next one in turn, so that a waiting thread gets its turn again.
            Strategy::Once { .. } => others.iter().find(|&&t| t > me).or(others.first()).copied(),
            // A thread that was preempted, the last one first.
            Strategy::Nested { .. } if must => {
                others.iter().rev().find(|&&t| t < me).or(others.last()).copied()
            }
            Strategy::Nested { .. } => others.iter().find(|&&t| t > me).copied(),
            Strategy::Priorities { .. } | Strategy::Handovers { .. } => {
                self.lowest -= 1;
                if must {
                    self.priority[me] = self.lowest; // a waiting thread steps back
                }
                others
                    .into_iter()
                    .chain(self.alive[me].then_some(me).filter(|_| !must))
                    .max_by_key(|&t| self.priority[t])
            }
        }
    }

    /// Gives a thread the lowest priority.
    fn sink(&mut self, me: usize) -> bool {
        self.lowest -= 1;
        self.priority[me] = self.lowest;
        true
    }

    /// Returns the thread that continues after a yield point of `me`.
    fn next(&mut self, me: usize, must: bool, handover: bool) -> usize {
        self.steps += 1;
        let counted = handover || self.strategy.counts_all();
        self.points[me] += u64::from(counted);
        let go = match self.strategy {
            Strategy::Random(n) => self.rng.one_in(n),
            Strategy::Priorities { change_one_in } => {
                self.rng.one_in(change_one_in) && self.sink(me)
            }
            Strategy::Handovers { change_one_in } => {
                handover && self.rng.one_in(change_one_in) && self.sink(me)
            }
            Strategy::Once { thread, at, .. } => counted && me == thread && self.points[me] == at,
            Strategy::Nested { at } => at.get(me) == Some(&self.points[me]),
        };
        if go || must { self.choose(me, must).unwrap_or(me) } else { me }
    }
}

impl Baton {
    fn pass(&self, me: usize, must: bool, handover: bool) {
        let mut state = self.state.lock();
        let next = state.next(me, must, handover);
        if next == me {
            return;
        }
        state.switches += 1;
        state.current = Some(next);
        self.turn[next].notify_one();
        while state.current != Some(me) {
            self.turn[me].wait(&mut state);
        }
    }

    fn await_turn(&self, me: usize) {
        let mut state = self.state.lock();
        while state.current != Some(me) {
            self.turn[me].wait(&mut state);
        }
    }

    fn leave(&self, me: usize) {
        let mut state = self.state.lock();
        state.alive[me] = false;
        state.current = state.choose(me, true);
        match state.current {
            Some(next) => {
                self.turn[next].notify_one();
            }
            None => {
                self.finished.notify_one();
            }
        }
    }

    /// Starts the threads and waits for the last of them.
    fn drive(&self) {
        let mut state = self.state.lock();
        let threads = self.turn.len();
        let random = state.rng.below(threads);
        let first = match state.strategy {
            Strategy::Once { thread, .. } => thread,
            Strategy::Nested { .. } => 0,
            _ => random,
        };
        state.current = Some(first);
        self.turn[first].notify_one();
        let mut steps = 0;
        while state.current.is_some() {
            let timed_out = self.finished.wait_for(&mut state, WATCHDOG).timed_out();
            if timed_out && state.current.is_some() && state.steps == steps {
                let stuck = state.current;
                // The threads cannot be ended, so no test of this process can go on.
                eprintln!("scheduler: thread {stuck:?} waits where no yield point is; giving up");
                std::process::abort();
            }
            steps = state.steps;
        }
    }
}

impl ThreadControl for Baton {
    fn yield_point(&self, thread: u16) {
        self.pass(thread as usize - 1, false, false);
    }

    fn handover_point(&self, thread: u16) {
        self.pass(thread as usize - 1, false, true);
    }

    fn spin(&self, thread: u16) {
        self.pass(thread as usize - 1, true, false);
    }
}

/// What threads did: for each, the message of its panic, and the number of its handover points (or yield
/// points, if the strategy counts those).
pub(crate) struct Ended {
    pub(crate) panics: Vec<Option<String>>,
    pub(crate) points: Vec<u64>,
}

/// Runs `body(thread)` for each of `threads` logical threads, interleaved by `seed`; returns the panic
/// message of each that panicked.
pub fn interleave(threads: usize, seed: u64, body: impl Fn(usize) + Sync) -> Vec<Option<String>> {
    seeded(threads, seed, body).panics
}

/// As [`interleave`].
pub(crate) fn seeded(threads: usize, seed: u64, body: impl Fn(usize) + Sync) -> Ended {
    let mut rng = Rng::new(seed);
    let strategy = match rng.below(8) {
        0 => Strategy::Random(2),
        1 => Strategy::Random(8),
        2 => Strategy::Random(40),
        3 => Strategy::Priorities { change_one_in: 12 },
        4 => Strategy::Priorities { change_one_in: 60 },
        5 => Strategy::Priorities { change_one_in: 400 },
        6 => Strategy::Handovers { change_one_in: 4 },
        _ => Strategy::Handovers { change_one_in: 12 },
    };
    scheduled(threads, strategy, rng, body)
}

/// Runs `body(thread)` for each thread: thread 0 until its yield point number `at`, then the others to their
/// ends, one after the other, then thread 0. Returns the panic messages, and whether thread 0 reached `at`.
/// Calling it with 1, 2, .. until it does not preempts thread 0 at every step.
pub fn preempt_once(
    threads: usize,
    at: u64,
    body: impl Fn(usize) + Sync,
) -> (Vec<Option<String>>, bool) {
    let once = Strategy::Once { thread: 0, at, handovers: false };
    let Ended { panics, points } = scheduled(threads, once, Rng::new(0), body);
    (panics, points[0] >= at)
}

/// Runs `body(thread)` for each of three threads: thread 0 until its yield point number `at[0]`, thread 1 until
/// its number `at[1]`, thread 2 to its end, then thread 1, then thread 0. Returns the panic messages, and the
/// numbers of yield points.
pub fn preempt_nested(
    at: [u64; 2],
    body: impl Fn(usize) + Sync,
) -> (Vec<Option<String>>, Vec<u64>) {
    let Ended { panics, points } = scheduled(3, Strategy::Nested { at }, Rng::new(0), body);
    (panics, points)
}

/// Runs `body(thread)` for each thread: `first` until its handover point number `at`, then the others to their
/// ends, then `first`.
pub(crate) fn hand_over_once(
    threads: usize,
    first: usize,
    at: u64,
    body: impl Fn(usize) + Sync,
) -> Ended {
    let once = Strategy::Once { thread: first, at, handovers: true };
    scheduled(threads, once, Rng::new(0), body)
}

/// Runs the threads by a strategy.
fn scheduled(
    threads: usize,
    strategy: Strategy,
    mut rng: Rng,
    body: impl Fn(usize) + Sync,
) -> Ended {
    let priority = (0..threads).map(|_| (1 << 62) + rng.next_u64() / 4).collect();
    let baton = Arc::new(Baton {
        state: Mutex::new(State {
            current: None,
            alive: vec![true; threads],
            priority,
            rng,
            strategy,
            points: vec![0; threads],
            steps: 0,
            switches: 0,
            lowest: 1 << 62,
        }),
        turn: (0..threads).map(|_| Condvar::new()).collect(),
        finished: Condvar::new(),
    });
    let panics = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let (baton, body) = (Arc::clone(&baton), &body);
                scope.spawn(move || {
                    baton.await_turn(thread);
                    let control: Arc<dyn ThreadControl> = Arc::<Baton>::clone(&baton);
                    let result = panics::quietly(|| {
                        catch_unwind(AssertUnwindSafe(|| {
                            run_as(thread as u16 + 1, control, || body(thread));
                        }))
                    });
                    let message = result.err().map(|_| panics::last_message());
                    baton.leave(thread);
                    message
                })
            })
            .collect();
        baton.drive();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|_| Some("a thread died".into())))
            .collect()
    });
    let points = std::mem::take(&mut baton.state.lock().points);
    Ended { panics, points }
}
