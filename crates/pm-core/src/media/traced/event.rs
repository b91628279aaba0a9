//! The events that a traced medium records: one for each access that matters to persistence.

use core::panic::Location;

/// The kind of an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// An ordinary 8-byte store.
    Store,
    /// A successful atomic read-modify-write: for persistence an ordinary store, never a fence.
    Rmw,
    /// One word of a bulk copy with ordinary stores: unordered against the copy's other words.
    Bulk,
    /// One word of a non-temporal copy: unordered, and flushed already.
    Stream,
    /// The write-back of one line was started.
    Flush,
    /// A fence completed.
    Fence,
    /// A barrier between stores of the thread to one line: see
    /// [`Medium::in_order`](crate::Medium::in_order).
    InOrder,
    /// All earlier stores, by any process, to the words from `word` to `value` were written back from
    /// outside: see [`Medium::written_back`](crate::Medium::written_back).
    WriteBack,
    /// The pool's file grew: `old` and `value` are its lengths in bytes.
    Grow,
    /// A mark set by the test: `value` is its meaning.
    Note,
}

impl EventKind {
    /// Returns `true` if the event changes a word of the pool.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::Store | Self::Rmw | Self::Bulk | Self::Stream)
    }
}

/// One recorded access.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The logical thread.
    pub thread: u16,
    /// The word (its offset / 8); for [`EventKind::Flush`] the first word of the line.
    pub word: u32,
    /// The value stored.
    pub value: u64,
    /// The value before.
    pub old: u64,
    /// The call site, which identifies the persistence step.
    pub site: &'static Location<'static>,
}
