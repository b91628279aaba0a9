//! A snapshot that a follower receives: into a state beside the present one, piece by piece.

use std::collections::VecDeque;

use raft::prelude::Message;

/// The pieces that wait at most; more are sent again.
const MOST_PIECES: usize = 2;
/// The number of ticks without a piece after which the follower removes what it has received.
const GIVE_UP: u64 = 100;
/// The number of ticks for which a follower without room begins no other transfer.
pub(crate) const WITHOUT_ROOM: u64 = 100;

/// A transfer in progress. Leaders are compared by their terms.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) term: u64,
    pub(crate) transfer: u64,
    pub(crate) generation: u64,
    /// The number of the piece that is wanted next.
    pub(crate) wanted: u64,
    /// The beginning of a unit.
    pub(crate) unit: Vec<u8>,
    /// The time of the last piece.
    pub(crate) heard_at: u64,
}

/// What a follower receives.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    waiting: VecDeque<Message>,
    pub(crate) receiving: Option<Receiving>,
    /// The index and the term of a snapshot that was received completely, and its generation.
    pub(crate) complete: Option<(u64, u64, u64)>,
    /// The time before which it begins no transfer.
    pub(crate) not_before: u64,
}

impl Incoming {
    /// Accepts a piece, which the next turn processes.
    pub(crate) fn accept(&mut self, piece: Message) {
        if self.waiting.len() < MOST_PIECES {
            self.waiting.push_back(piece);
        }
    }

    pub(crate) fn next(&mut self) -> Option<Message> {
        self.waiting.pop_front()
    }

    /// Returns the bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        let waiting = self.waiting.iter().map(|piece| piece.get_snapshot().data.len());
        waiting.sum::<usize>() + self.receiving.as_ref().map_or(0, |state| state.unit.capacity())
    }

    /// Returns `true` if no piece has come for long.
    pub(crate) fn is_idle(&self, now: u64) -> bool {
        self.receiving.as_ref().is_some_and(|state| now > state.heard_at + GIVE_UP)
    }
}
