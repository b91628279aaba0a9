//! Tokens that carry the obligation to fence, and the proof of a fence.
//!
//! They help the compiler find a forgotten fence; the crash simulator judges.

/// Flushed lines that await a fence. Join several with [`and`](Self::and).
#[derive(Debug)]
#[must_use = "flushed lines are not durable before a fence"]
pub struct Flushed(());

impl Flushed {
    pub(crate) const fn new() -> Self {
        Self(())
    }

    /// Returns the token of no flush: the neutral element of [`and`](Self::and), for loops.
    pub const fn nothing() -> Self {
        Self(())
    }

    /// Joins both sets of lines.
    pub const fn and(self, _other: Self) -> Self {
        self
    }
}

/// The proof that a fence completed after the flushes it was given: they are durable.
#[derive(Clone, Copy, Debug)]
pub struct Durable(());

impl Durable {
    pub(crate) const fn new() -> Self {
        Self(())
    }
}
