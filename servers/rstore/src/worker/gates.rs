//! Replies that wait until a group has agreed on the changes that they report.

use std::collections::VecDeque;

use crate::group::{Gate, Round};

/// The waiting replies of a connection.
#[derive(Debug, Default)]
pub(super) struct Gates {
    /// The bytes of replies that were sent and dropped.
    passed: u64,
    /// A gate, and the end of the bytes that wait at it, counted from the first reply of the connection.
    closed: VecDeque<(Gate, u64)>,
    /// The end of the bytes that wait at no gate, if any wait.
    free: u64,
}

impl Gates {
    /// Returns the number of bytes that may be sent, of `len` bytes of replies.
    pub(super) fn open(&self, len: usize) -> usize {
        if self.closed.is_empty() { len } else { len.min((self.free - self.passed) as usize) }
    }

    /// Drops this number of bytes at the start.
    pub(super) fn pass(&mut self, bytes: usize) {
        self.passed += bytes as u64;
    }

    /// Makes the bytes without a gate, of `len` bytes of replies, wait at this gate. Returns `true` if no
    /// other bytes wait.
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

    /// Opens the gates that a round allows.
    pub(super) fn let_go(&mut self, round: &Round) {
        while self.closed.front().is_some_and(|(gate, _)| round.opens(*gate))
            && let Some((_, end)) = self.closed.pop_front()
        {
            self.free = end;
        }
    }

    /// Returns `true` if no bytes wait.
    pub(super) fn is_empty(&self) -> bool {
        self.closed.is_empty()
    }
}
