//! Group commit: threads leave what they want, one of them does it for all, and all wait for it.

use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Gathers what threads want done; one of those that wait leads.
///
/// While one leads, others gather what the next leader does. So the longer a round takes, the more
/// share the next one.
#[derive(Debug)]
pub struct Group<T, R, E> {
    state: Mutex<State<T, R, E>>,
    over: Condvar,
}

/// What became of a round.
type Outcome<R, E> = Arc<OnceLock<Result<R, E>>>;

#[derive(Debug)]
struct State<T, R, E> {
    /// What is wanted of the next round.
    wanted: T,
    /// Of the next round.
    next: Outcome<R, E>,
    /// A round is under way.
    led: bool,
}

/// The leader of a round panicked: nobody knows what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandoned;

impl<T: Default, R, E> Default for Group<T, R, E> {
    fn default() -> Self {
        let state = State { wanted: T::default(), next: Outcome::default(), led: false };
        Self { state: Mutex::new(state), over: Condvar::new() }
    }
}

impl<T: Default, R: Clone, E: Clone + From<Abandoned>> Group<T, R, E> {
    /// Adds what this thread wants to the next round, and waits until it is over. `join` adds it and
    /// returns what it needs to know of its place; if there is no room in this round, `None`, and is
    /// asked again for the one after. `lead` does what all of a round want: one round at a time, and
    /// no thread joins a round that has begun.
    ///
    /// # Errors
    /// Those of `lead`, to everybody in the round.
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
            // The round is full, so somebody is in it.
            let full = Arc::clone(&state.next);
            self.see_through(&mut state, &full, &mut lead);
        };
        let mine = Arc::clone(&state.next);
        self.see_through(&mut state, &mine, &mut lead);
        drop(state);
        match mine.get() {
            Some(outcome) => outcome.clone().map(|result| (place, result)),
            None => Err(Abandoned.into()), // never
        }
    }

    /// Waits until a round is over, and leads it if nobody does.
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
            // Nothing is under way and this round is not over: it is the next.
            state.led = true;
            let wanted = core::mem::take(&mut state.wanted);
            let under_way = core::mem::take(&mut state.next);
            MutexGuard::unlocked(state, || {
                let _end = End { group: self, round: &under_way };
                let _ = under_way.set(lead(wanted));
            });
        }
    }
}

/// Ends a round, even if its leader panics.
struct End<'g, T, R, E: From<Abandoned>> {
    group: &'g Group<T, R, E>,
    round: &'g Outcome<R, E>,
}

impl<T, R, E: From<Abandoned>> Drop for End<'_, T, R, E> {
    fn drop(&mut self) {
        let _ = self.round.set(Err(Abandoned.into())); // has one, unless the leader panicked
        self.group.state.lock().led = false;
        self.group.over.notify_all();
    }
}
