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
/// that wait for each other's rounds. So the next leader waits for as many requests as there were threads in the
/// round before and waiting behind it, but no longer than a [part](PATIENCE) of the time that that round took. A
/// thread that is alone waits for nobody.
#[derive(Debug)]
pub struct Group<T, R, E> {
    state: Mutex<State<T, R, E>>,
    over: Condvar,
    /// Signalled when the next round has as many requests as its leader expects.
    gathered: Condvar,
}

/// A leader waits for others at most the time that the last round took, divided by this.
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
    /// The number of requests that its leader expects, from what was there at the end of the last round.
    expected: usize,
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
            took: Duration::ZERO,
            led: false,
        };
        Self { state: Mutex::new(state), over: Condvar::new(), gathered: Condvar::new() }
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
        mut lead: impl FnMut(T) -> Result<R, E>,
    ) -> Result<(P, R), E> {
        let mut state = self.state.lock();
        let place = loop {
            if let Some(place) = join(&mut state.wanted) {
                break place;
            }
            // The round is full, so it has threads, one of which will lead it.
            let full = Arc::clone(&state.next);
            self.see_through(&mut state, &full, &mut lead);
        };
        state.joined += 1;
        if state.joined >= state.expected {
            self.gathered.notify_one();
        }
        let mine = Arc::clone(&state.next);
        self.see_through(&mut state, &mine, &mut lead);
        drop(state);
        match mine.get() {
            Some(outcome) => outcome.clone().map(|result| (place, result)),
            None => Err(Abandoned.into()), // never
        }
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

    /// Waits until a round is over, and leads it if no other thread does.
    fn see_through(
        &self,
        state: &mut MutexGuard<'_, State<T, R, E>>,
        round: &Outcome<R, E>,
        lead: &mut impl FnMut(T) -> Result<R, E>,
    ) {
        while round.get().is_none() {
            if state.led {
                self.over.wait(state);
                continue;
            }
            // No round is in progress and this one is not over: it is the next.
            state.led = true;
            let until = Instant::now() + state.took / PATIENCE;
            while state.joined < state.expected {
                if self.gathered.wait_until(state, until).timed_out() {
                    break;
                }
            }
            let wanted = core::mem::take(&mut state.wanted);
            let under_way = core::mem::take(&mut state.next);
            let members = core::mem::take(&mut state.joined);
            MutexGuard::unlocked(state, || {
                let began = Instant::now();
                let _end = End { group: self, round: &under_way, members, began };
                let _ = under_way.set(lead(wanted));
            });
        }
    }
}

/// Ends a round, even if its leader panics.
struct End<'g, T, R, E: From<Abandoned>> {
    group: &'g Group<T, R, E>,
    round: &'g Outcome<R, E>,
    members: usize,
    began: Instant,
}

impl<T, R, E: From<Abandoned>> Drop for End<'_, T, R, E> {
    fn drop(&mut self) {
        let _ = self.round.set(Err(Abandoned.into())); // has one, unless the leader panicked
        {
            let mut state = self.group.state.lock();
            state.led = false;
            state.expected = self.members + state.joined;
            state.took = self.began.elapsed();
        }
        self.group.over.notify_all();
    }
}
