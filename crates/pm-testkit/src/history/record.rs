//! Recording: one clock for all threads, one log for each.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use super::check::{Violation, check_key};
use super::event::{Call, Event, Outcome, Tag};

/// The clock that orders invocations and returns. Its stamps are distinct.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// Returns the next stamp.
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, SeqCst)
    }
}

/// The calls of one thread.
#[derive(Debug)]
pub struct Log<'c> {
    clock: &'c Clock,
    thread: u32,
    events: Vec<Event>,
}

impl<'c> Log<'c> {
    /// Makes an empty log.
    #[must_use]
    pub fn new(clock: &'c Clock, thread: u32) -> Self {
        Self { clock, thread, events: Vec::new() }
    }

    /// Runs a call and records its result. If `run` fails or panics, the call stays in the log as one that
    /// never returned.
    ///
    /// # Errors
    /// Those of `run`.
    pub fn call<E>(
        &mut self,
        key: u64,
        call: Call,
        run: impl FnOnce() -> Result<Outcome, E>,
    ) -> Result<Outcome, E> {
        let start = self.clock.tick();
        let at = self.events.len();
        self.push(key, call, None, (start, u64::MAX));
        let outcome = run()?;
        self.events[at].outcome = Some(outcome);
        self.events[at].end = self.clock.tick();
        Ok(outcome)
    }

    /// Runs a call on several keys; `run` returns the result for each. Each is recorded as a call of its own
    /// in the same interval.
    ///
    /// # Errors
    /// Those of `run`.
    pub fn calls<E>(
        &mut self,
        run: impl FnOnce() -> Result<Vec<(u64, Call, Outcome)>, E>,
    ) -> Result<(), E> {
        let start = self.clock.tick();
        let done = run()?;
        let end = self.clock.tick();
        for (key, call, outcome) in done {
            self.push(key, call, Some(outcome), (start, end));
        }
        Ok(())
    }

    /// Runs a scan; `run` returns the records it saw, and `covered` names the keys in its range. Each record
    /// was there, and each missing one was not, at some moment during the scan.
    ///
    /// # Errors
    /// Those of `run`.
    pub fn scan<E>(
        &mut self,
        covered: impl IntoIterator<Item = u64>,
        run: impl FnOnce() -> Result<BTreeMap<u64, Tag>, E>,
    ) -> Result<(), E> {
        self.calls(|| {
            let mut seen = run()?;
            let mut calls: Vec<_> = covered
                .into_iter()
                .map(|key| (key, Call::Get, Outcome::Value(seen.remove(&key))))
                .collect();
            // Records outside the covered range were seen all the same.
            let rest = seen.into_iter();
            calls.extend(rest.map(|(key, tag)| (key, Call::Get, Outcome::Value(Some(tag)))));
            Ok(calls)
        })
    }

    fn push(&mut self, key: u64, call: Call, outcome: Option<Outcome>, span: (u64, u64)) {
        let (start, end) = span;
        self.events.push(Event { thread: self.thread, key, call, outcome, start, end });
    }

    /// Returns the calls, in order of invocation.
    #[must_use]
    pub fn into_events(self) -> Vec<Event> {
        self.events
    }
}

/// The calls of all threads on an index with known initial contents.
#[derive(Clone, Debug, Default)]
pub struct History {
    initial: BTreeMap<u64, Tag>,
    events: Vec<Event>,
}

impl History {
    /// Makes a history of an index that contains `initial`.
    #[must_use]
    pub fn new(initial: BTreeMap<u64, Tag>) -> Self {
        Self { initial, events: Vec::new() }
    }

    /// Adds calls.
    pub fn add(&mut self, events: impl IntoIterator<Item = Event>) {
        self.events.extend(events);
    }

    /// Adds the state after everything, the crash included: for each of `keys`, its value in `found`. A call
    /// that did not return may have taken effect or not; it cannot take effect later.
    pub fn ends_with(&mut self, keys: impl IntoIterator<Item = u64>, found: &BTreeMap<u64, Tag>) {
        let over = |e: &Event| if e.outcome.is_some() { e.end } else { e.start };
        let at = self.events.iter().map(over).max().map_or(0, |last| last + 1);
        let keys: std::collections::BTreeSet<u64> =
            keys.into_iter().chain(found.keys().copied()).collect();
        self.events.extend(keys.into_iter().map(|key| {
            let outcome = Some(Outcome::Value(found.get(&key).copied()));
            Event { thread: u32::MAX, key, call: Call::Get, outcome, start: at, end: at + 1 }
        }));
    }

    /// Returns the number of calls.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns `true` if the history has no calls.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Checks linearizability: an order must explain the calls, key by key (it is a local property).
    ///
    /// # Errors
    /// The first key whose calls no order explains.
    pub fn check(&self) -> Result<(), Violation> {
        let mut keys: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
        for event in &self.events {
            keys.entry(event.key).or_default().push(*event);
        }
        for (key, events) in keys {
            check_key(self.initial.get(&key).copied(), &events)?;
        }
        Ok(())
    }
}
