//! The checker: searches for an order of a key's calls that explains the result of each.
//!
//! A search in the manner of Wing and Gong, with Lowe's memory of the configurations seen. A *configuration*
//! is the set of calls already placed and the state they lead to. The next call to place is one that was
//! invoked before every unplaced call returned. Calls that only read are placed as soon as they fit: placing
//! one earlier rules out no other order. Calls that never returned may be placed or not.

use std::collections::HashSet;
use std::fmt;

use super::event::{Call, Event, Tag};

/// The number of configurations that the search visits before it gives up: more concurrent calls than a test
/// should have.
const MAX_CONFIGURATIONS: usize = 1 << 20;

/// A history that no order explains.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The key.
    pub key: u64,
    /// The state that the longest explicable part leads to.
    pub state: Option<Tag>,
    /// The number of the key's calls in that part.
    pub placed: usize,
    /// The calls of which none can come next.
    pub stuck: Vec<Event>,
    /// `true` if the search gave up, so that an order may exist.
    pub undecided: bool,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, state, placed, stuck, undecided } = self;
        let verdict = if *undecided { "undecided" } else { "not linearizable" };
        write!(f, "{verdict}: key {key} is {state:?} after {placed} calls, ")?;
        write!(f, "and none of these can be next:")?;
        for event in stuck {
            write!(f, "\n  {event:?}")?;
        }
        Ok(())
    }
}

/// Calls placed: all before `base`, and `beyond` (ascending, all greater than `base`).
#[derive(Clone, PartialEq, Eq, Hash)]
struct Configuration {
    base: usize,
    beyond: Vec<usize>,
    state: Option<Tag>,
}

impl Configuration {
    fn placed(&self) -> usize {
        self.base + self.beyond.len()
    }

    /// Returns this set with one more call placed.
    fn with(&self, call: usize, state: Option<Tag>) -> Self {
        let mut next = Self { state, ..self.clone() };
        if call != next.base {
            let at = next.beyond.partition_point(|&placed| placed < call);
            next.beyond.insert(at, call);
            return next;
        }
        next.base += 1;
        let run = next.beyond.iter().enumerate().take_while(|(i, call)| **call == next.base + i);
        let run = run.count();
        next.beyond.drain(..run);
        next.base += run;
        next
    }

    /// Returns the calls that may come next, in order of invocation.
    fn candidates<'a>(&'a self, events: &'a [Event]) -> impl Iterator<Item = usize> + 'a {
        let mut beyond = self.beyond.iter().peekable();
        let mut first_end = u64::MAX;
        (self.base..events.len()).filter(move |call| beyond.next_if_eq(&call).is_none()).take_while(
            move |&call| {
                let possible = events[call].start <= first_end;
                first_end = first_end.min(events[call].end);
                possible
            },
        )
    }
}

/// Checks the calls of one key, the key holding `initial` at first.
pub fn check_key(initial: Option<Tag>, events: &[Event]) -> Result<(), Violation> {
    let mut events: Vec<Event> = events.to_vec();
    // A call that never returned matters only for the change it may have made.
    events.retain(|e| e.outcome.is_some() || !matches!(e.call, Call::Get | Call::Contains));
    events.sort_by_key(|event| event.start);
    let start = Configuration { base: 0, beyond: Vec::new(), state: initial };
    let mut furthest = start.clone();
    let mut seen = HashSet::new();
    let mut todo = vec![start];
    while let Some(now) = todo.pop().filter(|_| seen.len() < MAX_CONFIGURATIONS) {
        if now.placed() > furthest.placed() {
            furthest = now.clone();
        }
        let mut finished = true;
        let from = todo.len();
        for call in now.candidates(&events) {
            let event = &events[call];
            let (outcome, state) = event.call.apply(now.state);
            match event.outcome {
                None => {
                    if state != now.state {
                        todo.push(now.with(call, state));
                    }
                    continue;
                }
                Some(returned) if returned == outcome => {
                    if event.call.only_reads(outcome) {
                        todo.truncate(from);
                        todo.push(now.with(call, state));
                        finished = false;
                        break;
                    }
                    todo.push(now.with(call, state));
                }
                Some(_) => {}
            }
            finished = false;
        }
        if finished {
            return Ok(());
        }
        let mut at = from;
        while at < todo.len() {
            if seen.insert(todo[at].clone()) {
                at += 1;
            } else {
                todo.remove(at);
            }
        }
        todo[from..].reverse(); // the earliest invoked first
    }
    let key = events.first().map_or(0, |event| event.key);
    let stuck = furthest.candidates(&events).map(|call| events[call]).take(16).collect();
    let undecided = seen.len() >= MAX_CONFIGURATIONS;
    Err(Violation { key, state: furthest.state, placed: furthest.placed(), stuck, undecided })
}
