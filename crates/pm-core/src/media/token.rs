//! Tokens that carry the obligation to fence, and the proof that it was met.
//!
//! They help the compiler find a forgotten fence; the crash simulator judges.

/// Lines were flushed and await a fence. Join several with [`and`](Self::and).
#[derive(Debug)]
#[must_use = "flushed lines are not durable before a fence"]
pub struct Flushed(());

impl Flushed {
    pub(crate) const fn new() -> Self {
        Self(())
    }

    /// Nothing flushed: the neutral element of [`and`](Self::and), for loops.
    pub const fn nothing() -> Self {
        Self(())
    }

    /// Both sets of lines.
    pub const fn and(self, _other: Self) -> Self {
        self
    }
}

/// A fence completed after the flushes it was given: what they covered is durable.
#[derive(Clone, Copy, Debug)]
pub struct Durable(());

impl Durable {
    pub(crate) const fn new() -> Self {
        Self(())
    }
}
