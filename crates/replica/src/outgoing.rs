//! Snapshots that a leader sends: at most one to each follower, and one piece of it at a time.
//!
//! The next piece is read from a view of the state when the follower has confirmed the one before. So the
//! leader holds a piece, and at most one unit: half a piece and a record.

use std::collections::BTreeMap;

use raft::prelude::{Message, Snapshot};

use crate::piece::{self, DONE, Place};
use crate::{Part, State, StateError};

/// The number of ticks after which a piece is sent again.
const AGAIN: u64 = 4;
/// The number of ticks without a reply after which a transfer is given up.
const GIVE_UP: u64 = 50;

/// The end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The follower has everything.
    Done,
    /// It must be begun again.
    Failed,
}

/// A transfer to a follower.
struct Sending<V> {
    transfer: u64,
    /// The snapshot without data.
    snapshot: Snapshot,
    /// The engine's message; `None`: it has not sent the snapshot yet.
    head: Option<Message>,
    view: V,
    is_read: bool,
    /// The bytes of a unit, and the number of those that were sent.
    unit: Vec<u8>,
    sent: usize,
    /// The piece that waits for its reply.
    piece: Option<Message>,
    number: u64,
    /// The time of the last reply, and of the last message.
    heard_at: u64,
    sent_at: u64,
    end: Option<End>,
}

impl<V> Sending<V> {
    /// Makes the next piece; returns `false` if the view has ended.
    fn read<S: State<View = V>>(
        &mut self,
        state: &mut S,
        bytes: usize,
    ) -> Result<bool, StateError> {
        let Some(head) = &self.head else { return Ok(true) };
        if self.sent == self.unit.len() {
            self.unit.clear();
            self.sent = 0;
            while self.unit.is_empty() && !self.is_read {
                match state.read(&mut self.view, bytes.div_ceil(2), &mut self.unit)? {
                    Part::More => {}
                    Part::Last => self.is_read = true,
                    Part::Ended => return Ok(false),
                }
            }
        }
        let data = if self.sent == 0 && self.unit.len() <= bytes {
            std::mem::take(&mut self.unit)
        } else {
            let end = self.unit.len().min(self.sent + bytes);
            let data = self.unit[self.sent..end].to_vec();
            self.sent = end;
            data
        };
        let ends_unit = self.unit.len() == self.sent;
        if ends_unit {
            (self.unit, self.sent) = (Vec::new(), 0); // a large record would stay in memory
        }
        let last = ends_unit && self.is_read;
        let place = Place { transfer: self.transfer, number: self.number, ends_unit, last };
        self.piece = Some(piece::message(head, place, data));
        Ok(true)
    }

    /// Returns the bytes that it holds.
    fn bytes(&self) -> usize {
        self.unit.capacity()
            + self.piece.as_ref().map_or(0, |piece| piece.get_snapshot().data.len())
    }
}

/// The transfers of a leader.
pub(crate) struct Outgoing<V> {
    all: BTreeMap<u64, Sending<V>>,
    /// The number of the last transfer.
    last: u64,
    piece_bytes: usize,
}

impl<V> Outgoing<V> {
    pub(crate) fn new(piece_bytes: usize) -> Self {
        Self { all: BTreeMap::new(), last: 0, piece_bytes: piece_bytes.max(1) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the least index of the snapshots that are on their way.
    pub(crate) fn least(&self) -> Option<u64> {
        let index = |sending: &Sending<V>| sending.snapshot.get_metadata().index;
        self.all.values().map(index).min()
    }

    /// Returns the bytes that the transfers hold.
    pub(crate) fn bytes(&self) -> usize {
        self.all.values().map(Sending::bytes).sum()
    }

    /// Prepares a transfer to a follower, in place of an earlier one.
    pub(crate) fn prepare(&mut self, to: u64, snapshot: Snapshot, view: V, now: u64) {
        self.last += 1;
        let sending = Sending {
            transfer: self.last,
            snapshot,
            head: None,
            view,
            is_read: false,
            unit: Vec::new(),
            sent: 0,
            piece: None,
            number: 0,
            heard_at: now,
            sent_at: now,
            end: None,
        };
        self.all.insert(to, sending);
    }

    /// Begins the prepared transfer, for which this is the engine's message.
    pub(crate) fn begin(&mut self, head: Message, now: u64) {
        let index = head.get_snapshot().get_metadata().index;
        if let Some(sending) = self.all.get_mut(&head.to)
            && sending.snapshot.get_metadata().index == index
            && sending.head.is_none()
        {
            sending.heard_at = now;
            sending.head = Some(head);
        }
    }

    /// Takes a reply of a follower.
    pub(crate) fn hear(&mut self, reply: &Message, now: u64) {
        let Some(sending) = self.all.get_mut(&reply.from) else { return };
        let Some(place) = sending.piece.as_ref().and_then(piece::place) else { return };
        if place.transfer != reply.index {
            return;
        }
        if reply.reject {
            sending.end = Some(End::Failed);
        } else if reply.commit == DONE || reply.commit == place.number + 1 && place.last {
            sending.end = Some(End::Done);
        } else if reply.commit == place.number + 1 {
            (sending.piece, sending.number, sending.heard_at) = (None, place.number + 1, now);
        }
    }

    /// Ends all transfers.
    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }

    /// Adds the pieces that are due to the messages; returns the followers whose transfers have ended.
    /// `is_waiting` tells whether the engine waits for the end of a follower's snapshot.
    pub(crate) fn turn<S: State<View = V>>(
        &mut self,
        state: &mut S,
        now: u64,
        is_waiting: impl Fn(u64) -> bool,
        messages: &mut Vec<Message>,
    ) -> Result<Vec<(u64, End)>, StateError> {
        let mut ended = Vec::new();
        for (&to, sending) in &mut self.all {
            let is_over = sending.head.is_some() && !is_waiting(to);
            if is_over || now > sending.heard_at + GIVE_UP {
                sending.end = sending.end.or(Some(End::Failed));
            }
            if let Some(end) = sending.end {
                ended.push((to, end));
                continue;
            }
            let is_new = sending.piece.is_none();
            if is_new && !sending.read(state, self.piece_bytes)? {
                ended.push((to, End::Failed));
                continue;
            }
            if let Some(piece) = &sending.piece
                && (is_new || now >= sending.sent_at + AGAIN)
            {
                sending.sent_at = now;
                messages.push(piece.clone());
            }
        }
        for (to, _) in &ended {
            self.all.remove(to);
        }
        Ok(ended)
    }
}
