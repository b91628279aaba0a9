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
    /// The gate of replies of this turn and earlier ones that are not among the bytes yet, since they are behind one
    /// that is not complete.
    behind: Option<Gate>,
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

    /// Makes the bytes without a gate, of `len` bytes of replies, wait at the gate of this turn, and at that of
    /// earlier turns if they were behind an incomplete reply. If `more` replies still are, they wait too. Returns
    /// `true` if nothing waited before.
    pub(super) fn close(
        &mut self,
        gate: Option<Gate>,
        len: usize,
        sent: usize,
        more: bool,
    ) -> bool {
        let gate = match (gate, self.behind) {
            (Some(one), Some(other)) => one.and(other),
            (Some(gate), None) | (None, Some(gate)) => gate,
            (None, None) => return false,
        };
        let first = self.is_empty();
        self.behind = more.then_some(gate);
        let end = self.passed + len as u64;
        if self.closed.is_empty() {
            self.free = self.passed + sent as u64;
        }
        let last = self.closed.back().map_or(self.free, |&(_, end)| end);
        if last < end {
            self.closed.push_back((gate, end));
        }
        first && !self.is_empty()
    }

    /// Opens the gates that a round allows.
    pub(super) fn let_go(&mut self, round: &Round) {
        while self.closed.front().is_some_and(|(gate, _)| round.opens(*gate))
            && let Some((_, end)) = self.closed.pop_front()
        {
            self.free = end;
        }
        self.behind = self.behind.filter(|gate| !round.opens(*gate));
    }

    /// Returns `true` if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.behind.is_none()
    }
}
