//! Group commit: threads leave their requests, one of them executes all, and the others wait for it.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Gathers the requests of threads; one of those that wait becomes the leader.
///
/// While one leads, others gather the requests for the next leader. So the longer a round takes, the more
/// threads share the next one.
///
/// The threads of a round that is over usually come back soon. Without them threads would split into two halves
/// that wait for each other's rounds. So a round begins only when it has as many requests as there were threads in
/// the round before and waiting behind it: the last of them leads, at once. The first one waits for them no longer
/// than a part (`PATIENCE`) of the time that the last round took, and leads then. A thread that is alone waits for
/// no other.
///
/// A round's end wakes its threads with one call of the system, and none of them takes a lock for it.
#[derive(Debug)]
pub struct Group<T, R, E> {
    state: Mutex<State<T, R, E>>,
    /// Wakes the first thread of the next round: a round is over, or the next one is full.
    turn: Condvar,
    /// Wakes the threads that wait for the end of a round of others.
    over: Condvar,
}

/// The first thread of a round waits for others at most the time that the last round took, divided by this.
const PATIENCE: u32 = 4;

/// The outcome of a round.
type Outcome<R, E> = Arc<OnceLock<Result<R, E>>>;

#[derive(Debug)]
struct State<T, R, E> {
    /// The requests of the next round.
    wanted: T,
    /// The outcome of the next round.
    next: Outcome<R, E>,
    /// The number of these requests.
    joined: usize,
    /// The number of requests with which the next round begins at once.
    expected: usize,
    /// `true` if there is no room for another request in the next round.
    full: bool,
    /// The time that the last round took.
    took: Duration,
    /// `true` if a round is in progress.
    led: bool,
}

/// The leader of a round panicked: its outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandoned;

impl<T: Default, R, E> Default for Group<T, R, E> {
    fn default() -> Self {
        let state = State {
            wanted: T::default(),
            next: Outcome::default(),
            joined: 0,
            expected: 0,
            full: false,
            took: Duration::ZERO,
            led: false,
        };
        Self { state: Mutex::new(state), turn: Condvar::new(), over: Condvar::new() }
    }
}

impl<T: Default, R: Clone, E: Clone + From<Abandoned>> Group<T, R, E> {
    /// Adds this thread's request to the next round, and waits until the round is over. `join` adds the
    /// request and returns what the thread needs to know about its place; if this round has no room, it
    /// returns `None` and is called again for the round after it. `lead` executes all requests of a round:
    /// one round at a time, and no thread joins a round that has begun.
    ///
    /// # Errors
    /// Those of `lead`, for every thread of the round.
    pub fn commit<P>(
        &self,
        mut join: impl FnMut(&mut T) -> Option<P>,
        lead: impl FnOnce(T) -> Result<R, E>,
    ) -> Result<(P, R), E> {
        let mut state = self.state.lock();
        let place = loop {
            if let Some(place) = join(&mut state.wanted) {
                break place;
            }
            // So the round has a first thread, which need not wait for others.
            let full = Arc::clone(&state.next);
            state.full = true;
            self.turn.notify_all();
            MutexGuard::unlocked(&mut state, || full.wait());
        };
        state.joined += 1;
        let mine = Arc::clone(&state.next);
        if self.is_my_turn(&mut state, &mine) {
            self.lead(state, lead);
        } else {
            drop(state);
        }
        mine.wait().clone().map(|result| (place, result))
    }

    /// Returns `true` if this thread, which has joined the next round, begins it now; `false` if another thread
    /// of the round does.
    fn is_my_turn(&self, state: &mut MutexGuard<'_, State<T, R, E>>, mine: &Outcome<R, E>) -> bool {
        let first = state.joined == 1;
        let mut until = None;
        loop {
            if !state.led && (state.full || state.joined >= state.expected) {
                return true;
            }
            if !first {
                return false;
            }
            if state.led {
                self.turn.wait(state);
            } else {
                let until = *until.get_or_insert_with(|| Instant::now() + state.took / PATIENCE);
                if self.turn.wait_until(state, until).timed_out() {
                    return Arc::ptr_eq(&state.next, mine);
                }
            }
            if !Arc::ptr_eq(&state.next, mine) {
                return false;
            }
        }
    }

    /// Executes the requests of the next round.
    fn lead(
        &self,
        mut state: MutexGuard<'_, State<T, R, E>>,
        lead: impl FnOnce(T) -> Result<R, E>,
    ) {
        state.led = true;
        let wanted = core::mem::take(&mut state.wanted);
        let round = core::mem::take(&mut state.next);
        let members = core::mem::take(&mut state.joined);
        state.full = false;
        drop(state);
        let mut end = End { group: self, round, members, began: Instant::now(), outcome: None };
        end.outcome = Some(lead(wanted));
    }

    /// Sleeps until a round is over, if one is in progress, but no longer than `most`; otherwise lets other
    /// threads run. For a thread that waits for one that is probably in a round.
    pub fn await_round(&self, most: Duration) {
        let mut state = self.state.lock();
        if state.led {
            self.over.wait_for(&mut state, most);
            return;
        }
        drop(state);
        std::thread::yield_now();
    }
}

/// Ends a round, even if its leader panics.
struct End<'g, T, R, E: From<Abandoned>> {
    group: &'g Group<T, R, E>,
    round: Outcome<R, E>,
    members: usize,
    began: Instant,
    /// None if the leader panicked.
    outcome: Option<Result<R, E>>,
}

impl<T, R, E: From<Abandoned>> Drop for End<'_, T, R, E> {
    fn drop(&mut self) {
        {
            let mut state = self.group.state.lock();
            state.led = false;
            state.expected = self.members + state.joined;
            state.took = self.began.elapsed();
        }
        self.group.turn.notify_all();
        let outcome = self.outcome.take().unwrap_or_else(|| Err(Abandoned.into()));
        let _ = self.round.set(outcome); // only here
        self.group.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that lead to no error.
    type Numbers = Group<Vec<u32>, u32, Abandoned>;

    /// Commits `count` numbers with each of `threads` threads, in rounds of at most `most`; returns the rounds.
    fn rounds(threads: u32, count: u32, most: usize) -> Vec<Vec<u32>> {
        let (group, over) = (Numbers::default(), Mutex::new(Vec::new()));
        let commit = |number: u32| {
            let join = |all: &mut Vec<u32>| {
                (all.len() < most).then(|| all.push(number))?;
                Some(all.len() - 1)
            };
            let lead = |all: Vec<u32>| {
                let mut over = over.lock();
                over.push(all);
                Ok(over.len() as u32 - 1)
            };
            let (place, round) = group.commit(join, lead).unwrap();
            assert_eq!(
                over.lock()[round as usize][place],
                number,
                "it is over when commit returns"
            );
        };
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || (0..count).for_each(|n| commit(thread * count + n)));
            }
        });
        over.into_inner()
    }

    #[test]
    fn each_request_is_in_one_round_and_rounds_have_no_more_than_their_room() {
        for (threads, most) in [(1, 1), (2, 1), (3, 2), (8, 3), (8, 100)] {
            let rounds = rounds(threads, 200, most);
            assert!(rounds.iter().all(|round| (1..=most).contains(&round.len())));
            let mut all = rounds.concat();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..threads * 200), "{threads} threads, {most} in a round");
        }
    }
}
