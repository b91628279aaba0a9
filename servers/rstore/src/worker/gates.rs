//! Replies that wait until a group has agreed on what they tell.

use std::collections::VecDeque;

use crate::group::{Gate, Round};

/// Which of a connection's replies wait.
#[derive(Debug, Default)]
pub(super) struct Gates {
    /// Bytes of replies that were passed on and forgotten.
    passed: u64,
    /// A gate, and where the bytes behind it end, counted from the first that ever was.
    closed: VecDeque<(Gate, u64)>,
    /// Where those end that wait for nothing, if any wait.
    free: u64,
}

impl Gates {
    /// How many of `len` bytes of replies may be sent.
    pub(super) fn open(&self, len: usize) -> usize {
        if self.closed.is_empty() { len } else { len.min((self.free - self.passed) as usize) }
    }

    /// So many bytes at the beginning are gone.
    pub(super) fn pass(&mut self, bytes: usize) {
        self.passed += bytes as u64;
    }

    /// Of `len` bytes of replies those that do not wait yet wait at a gate. Returns `true` if they are the
    /// only ones.
    pub(super) fn close(&mut self, gate: Gate, len: usize, sent: usize) -> bool {
        let end = self.passed + len as u64;
        let first = self.closed.is_empty();
        if first {
            self.free = self.passed + sent as u64;
        }
        let last = self.closed.back().map_or(self.free, |&(_, end)| end);
        if last < end {
            self.closed.push_back((gate, end));
        }
        first && last < end
    }

    /// Lets go what a round allows.
    pub(super) fn let_go(&mut self, round: &Round) {
        while let Some((_, end)) = self.closed.pop_front_if(|(gate, _)| round.opens(*gate)) {
            self.free = end;
        }
    }

    /// Nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.closed.is_empty()
    }
}
