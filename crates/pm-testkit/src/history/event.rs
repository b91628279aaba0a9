//! The parts of a history: calls on one key, their outcomes, and their intervals.

use std::fmt;

/// The identity of a value: writers of a history write distinct ones.
pub type Tag = u64;

/// A call on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named after the methods of `Index`")]
pub enum Call {
    Get,
    Contains,
    Insert(Tag),
    TryInsert(Tag),
    Update(Tag),
    Put(Tag),
    Remove,
    RemoveExact(Tag),
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Of `get`, `insert`, `remove` and `remove_exact`.
    Value(Option<Tag>),
    /// Of the others.
    Done(bool),
}

impl Call {
    /// Returns the call's result and the state it leaves, in an index with `state` under the key.
    #[must_use]
    pub fn apply(self, state: Option<Tag>) -> (Outcome, Option<Tag>) {
        use Outcome::{Done, Value};
        match (self, state) {
            (Self::Get, _) => (Value(state), state),
            (Self::Contains, _) => (Done(state.is_some()), state),
            (Self::TryInsert(tag), None) | (Self::Update(tag), Some(_)) => (Done(true), Some(tag)),
            (Self::TryInsert(_) | Self::Update(_), _) => (Done(false), state),
            (Self::Put(tag), _) => (Done(state.is_none()), Some(tag)),
            (Self::Insert(tag), _) => (Value(state), Some(tag)),
            (Self::Remove, _) => (Value(state), None),
            (Self::RemoveExact(tag), _) if state == Some(tag) => (Value(state), None),
            (Self::RemoveExact(_), _) => (Value(None), state),
        }
    }

    /// Returns `true` if the call, with this result, changes nothing in any state.
    pub(super) fn only_reads(self, outcome: Outcome) -> bool {
        match (self, outcome) {
            (Self::Get | Self::Contains, _)
            | (Self::TryInsert(_) | Self::Update(_), Outcome::Done(false))
            | (Self::Remove | Self::RemoveExact(_), Outcome::Value(None)) => true,
            (
                Self::Insert(_)
                | Self::TryInsert(_)
                | Self::Update(_)
                | Self::Put(_)
                | Self::Remove
                | Self::RemoveExact(_),
                _,
            ) => false,
        }
    }
}

/// A call, from its invocation to its return.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The thread; for messages only.
    pub thread: u32,
    /// The key's number in the test's family of keys.
    pub key: u64,
    /// The call.
    pub call: Call,
    /// The result; `None` if the call never returned (a crash, or the end of the test).
    pub outcome: Option<Outcome>,
    /// When it was invoked.
    pub start: u64,
    /// When it returned; `u64::MAX` if it never did.
    pub end: u64,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread, key, call, outcome, start, end } = self;
        write!(f, "[{start}..")?;
        if self.outcome.is_some() {
            write!(f, "{end}")?;
        }
        write!(f, "] thread {thread}: {call:?} of key {key}")?;
        match outcome {
            Some(Outcome::Value(value)) => write!(f, " -> {value:?}"),
            Some(Outcome::Done(done)) => write!(f, " -> {done}"),
            None => f.write_str(" (did not return)"),
        }
    }
}
