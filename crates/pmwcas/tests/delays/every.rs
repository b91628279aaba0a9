//! Every schedule with few preemptions.
//!
//! A schedule says which thread runs until which other one takes over, and so on. Without preemptions a
//! thread runs until it ends or waits; a preemption lets another thread run instead at one step. All
//! schedules with at most a given number of preemptions are run, each once (most errors need one or two:
//! Musuvathi and Qadeer, *Iterative Context Bounding*, PLDI 2007). When a thread ends, every choice of the
//! next one is tried.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use pmindex_core::trace::ThreadControl;

use crate::Scheduler;

/// No thread.
const NO_THREAD: usize = usize::MAX;

/// A point at which the next thread is chosen.
#[derive(Clone, Copy)]
struct Point {
    ran: usize,
    next: usize,
    /// The threads that have not ended, as bits.
    alive: u64,
    /// Whether the thread that ran had to stop.
    forced: bool,
}

struct State {
    current: usize,
    alive: u64,
    /// The choices that differ from the usual ones: at which point, and which thread.
    switches: VecDeque<(usize, usize)>,
    points: Vec<Point>,
}

/// One schedule.
pub(crate) struct Every {
    state: Mutex<State>,
    changed: Condvar,
}

impl Every {
    fn new(threads: usize, first: usize, switches: &[(usize, usize)]) -> Self {
        let switches = switches.iter().copied().collect();
        let alive = (1 << threads) - 1;
        let state = State { current: first, alive, switches, points: Vec::new() };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Chooses the thread to run after `me`; returns when `me` may run, unless it has ended.
    fn decide(&self, me: usize, forced: bool, ended: bool) {
        let mut state = self.state.lock();
        if ended {
            state.alive &= !(1 << me);
        }
        // The next thread of a higher number, or the first.
        let others = state.alive & !(1 << me);
        let after = others >> me << me;
        let other = if after == 0 { others } else { after };
        let usual = match other.checked_ilog2() {
            Some(_) if forced => other.trailing_zeros() as usize,
            None if ended => NO_THREAD,
            _ => me,
        };
        let at = state.points.len();
        let next = match state.switches.front() {
            Some(&(point, thread)) if point == at => thread,
            _ => usual,
        };
        if next != usual {
            state.switches.pop_front();
        }
        let alive = state.alive;
        state.points.push(Point { ran: me, next, alive, forced });
        if next == me {
            return;
        }
        state.current = next;
        self.changed.notify_all();
        while !ended && state.current != me {
            self.changed.wait(&mut state);
        }
    }
}

impl ThreadControl for Every {
    fn yield_point(&self, thread: u16) {
        self.decide(usize::from(thread) - 1, false, false);
    }

    fn spin(&self, thread: u16) {
        self.decide(usize::from(thread) - 1, true, false);
    }
}

impl Scheduler for Every {
    fn wait(&self, thread: usize) {
        let mut state = self.state.lock();
        while state.current != thread {
            self.changed.wait(&mut state);
        }
    }

    fn leave(&self, thread: usize) {
        self.decide(thread, true, true);
    }
}

/// The start of a schedule, and the number of preemptions that may follow.
struct Prefix {
    first: usize,
    switches: Vec<(usize, usize)>,
    budget: usize,
}

/// Returns the threads of a set.
fn members(set: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |thread| set >> thread & 1 == 1)
}

/// Runs every schedule of `threads` threads with at most `preemptions` preemptions; returns their number.
pub(crate) fn every(threads: usize, preemptions: usize, mut run: impl FnMut(&Arc<Every>)) -> usize {
    let mut runs = 0;
    let start = |first| Prefix { first, switches: Vec::new(), budget: preemptions };
    let mut left: Vec<Prefix> = (0..threads).map(start).collect();
    while let Some(Prefix { first, switches, budget }) = left.pop() {
        let schedule = Arc::new(Every::new(threads, first, &switches));
        run(&schedule);
        runs += 1;
        let state = schedule.state.lock();
        assert!(state.switches.is_empty(), "the same steps every time");
        let from = switches.last().map_or(0, |&(point, _)| point + 1);
        for (at, point) in state.points.iter().enumerate().skip(from) {
            let cost = usize::from(!point.forced);
            let others = point.alive & !(1 << point.ran);
            for other in members(others).filter(|&other| other != point.next && cost <= budget) {
                let switches = switches.iter().copied().chain([(at, other)]).collect();
                left.push(Prefix { first, switches, budget: budget - cost });
            }
        }
    }
    runs
}
