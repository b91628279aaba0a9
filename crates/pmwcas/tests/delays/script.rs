//! A scheduler that follows a script: each segment names a thread and its number of steps.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};
use pmindex_core::trace::ThreadControl;

use crate::Scheduler;

/// Enough steps for a thread to run to its end.
pub(crate) const ALL: usize = usize::MAX;

pub(crate) struct Script {
    turns: Mutex<Turns>,
    changed: Condvar,
}

struct Turns {
    current: usize,
    left: usize,
    rest: VecDeque<(usize, usize)>,
    alive: Vec<bool>,
}

impl Turns {
    /// Goes on to the next segment whose thread has not ended; after the last one, to any thread that has not
    /// ended.
    fn advance(&mut self) {
        while let Some((thread, steps)) = self.rest.pop_front() {
            if self.alive[thread] && steps > 0 {
                (self.current, self.left) = (thread, steps);
                return;
            }
        }
        self.current = self.alive.iter().position(|&alive| alive).unwrap_or(ALL);
        self.left = ALL;
    }
}

impl Script {
    /// Each segment is a thread and the number of steps it may take.
    pub(crate) fn new(threads: usize, segments: &[(usize, usize)]) -> Self {
        let rest = segments.iter().copied().collect();
        let mut turns = Turns { current: ALL, left: 0, rest, alive: vec![true; threads] };
        turns.advance();
        Self { turns: Mutex::new(turns), changed: Condvar::new() }
    }
}

impl Scheduler for Script {
    fn wait(&self, thread: usize) {
        let mut turns = self.turns.lock();
        while turns.current != thread {
            self.changed.wait(&mut turns);
        }
    }

    fn leave(&self, thread: usize) {
        let mut turns = self.turns.lock();
        turns.alive[thread] = false;
        turns.advance();
        self.changed.notify_all();
    }
}

impl ThreadControl for Script {
    fn yield_point(&self, thread: u16) {
        let thread = thread as usize - 1;
        let mut turns = self.turns.lock();
        if turns.left == 0 {
            turns.advance();
            self.changed.notify_all();
            while turns.current != thread {
                self.changed.wait(&mut turns);
            }
        }
        turns.left = turns.left.saturating_sub(1);
    }

    fn spin(&self, thread: u16) {
        self.yield_point(thread);
    }
}
