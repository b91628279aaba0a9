//! Snapshots, in pieces of bounded size, while the replicas go on.
//!
//! ```text
//! step  store                                                      durable before
//! P1    the pieces: records of a state of the next generation,     P2
//!       beside the present one; at the end the index it has
//! P2    the base of the log, which refers to that state (LIN,      the last reply; the removal of the
//!       DUR)                                                       state before
//! ```
//!
//! A follower confirms each piece; the leader sends a piece again that is not confirmed. A follower that
//! crashes removes what it has received, and asks for another transfer. So does one whose leader crashes, or
//! if the view has ended from which the pieces are read.

use pmindex_core::Medium;
use raft::prelude::{Message, Snapshot};
use raft::{ProgressState, SnapshotStatus};

use super::Replica;
use crate::incoming::{Receiving, WITHOUT_ROOM};
use crate::log::Base;
use crate::outgoing::End;
use crate::piece::{self, Answer, DONE, Place};
use crate::wrong::Wrong;
use crate::{Error, State};

/// The number of ticks without progress after which entries are no longer kept for a follower.
const PATIENCE: u64 = 50;

/// A follower that has got a snapshot, and fetches the entries after it.
#[derive(Debug)]
pub(super) struct Fetching {
    /// The last index that it has.
    has: u64,
    /// The tick at which that grew.
    at: u64,
}

impl<M: Medium, S: State> Replica<M, S> {
    /// Returns the bytes in memory of snapshots that are being sent or received: for each one at most a
    /// few pieces (see [`Options::piece_bytes`](crate::Options::piece_bytes)) and twice the longest record,
    /// whatever the size of the state.
    #[must_use]
    pub fn transfer_bytes(&self) -> usize {
        self.outgoing.bytes() + self.incoming.bytes()
    }

    /// Returns `true` while a snapshot is being received.
    #[must_use]
    pub fn is_receiving(&self) -> bool {
        self.incoming.receiving.is_some()
    }

    /// Makes views of the state for followers that lack entries that were cut off.
    pub(super) fn make_snapshots(&mut self) -> Result<(), Error> {
        let wanted = self.node.store().wants_snapshot.take();
        if wanted.is_empty() {
            return Ok(());
        }
        if !self.make_durable()? {
            return Ok(()); // the engine asks again
        }
        let index = self.applied;
        let term = raft::Storage::term(self.node.store(), index)?;
        let configuration = self.node.store().configuration(index);
        for to in wanted {
            let view = self.state.view().map_err(Error::State)?;
            let mut snapshot = Snapshot::default();
            let metadata = snapshot.mut_metadata();
            (metadata.index, metadata.term) = (index, term);
            metadata.set_conf_state(configuration.clone());
            self.node.store().snapshots.borrow_mut().insert(to, snapshot.clone());
            self.outgoing.prepare(to, snapshot, view, self.ticks);
        }
        Ok(())
    }

    /// Sends the pieces that are due.
    pub(super) fn send_pieces(&mut self, messages: &mut Vec<Message>) -> Result<(), Error> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        if !self.leads() {
            self.end_transfers();
            return Ok(());
        }
        let prs = self.node.raft.prs();
        let waits = |to| prs.get(to).is_some_and(|pr| pr.state == ProgressState::Snapshot);
        let ended = self.outgoing.turn(&mut self.state, self.ticks, waits, messages);
        let ended = ended.map_err(Error::State)?;
        for (to, end) in ended {
            let snapshot = self.node.store().snapshots.borrow_mut().remove(&to);
            if let Some(snapshot) = snapshot.filter(|_| end == End::Done) {
                let has = snapshot.get_metadata().index;
                self.fetching.insert(to, Fetching { has, at: self.ticks });
            }
            let status =
                if end == End::Done { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
            self.node.report_snapshot(to, status);
        }
        Ok(())
    }

    /// Returns `true` if a follower needs entries up to this index: it gets a snapshot, or has got one and fetches the
    /// entries after it.
    pub(super) fn is_needed(&mut self, index: u64) -> bool {
        let (ticks, progress) = (self.ticks, self.node.raft.prs());
        self.fetching.retain(|to, fetching| {
            let has = progress.get(*to).map_or(u64::MAX, |progress| progress.matched);
            if has > fetching.has {
                *fetching = Fetching { has, at: ticks };
            }
            fetching.has < index && ticks <= fetching.at + PATIENCE
        });
        !self.fetching.is_empty() || self.outgoing.least().is_some_and(|least| least < index)
    }

    /// Ends the transfers of a leader that leads no more.
    pub(super) fn end_transfers(&mut self) {
        self.fetching.clear();
        self.outgoing.clear();
        self.node.store().snapshots.borrow_mut().clear();
        self.node.store().wants_snapshot.take();
    }

    /// Processes the pieces that have come.
    pub(super) fn receive_pieces(&mut self, messages: &mut Vec<Message>) -> Result<(), Error> {
        while let Some(piece) = self.incoming.next() {
            if let Some(place) = piece::place(&piece) {
                let answer = self.receive(&piece, place)?;
                messages.extend(piece::reply(&piece, place, answer));
                let is_complete = self.incoming.complete.is_some();
                if is_complete || answer == Answer::Wanted(DONE) {
                    // The engine installs it, or finds that it has these entries.
                    let _ = self.node.step(piece::head(piece));
                }
                if is_complete {
                    return Ok(());
                }
            }
        }
        if self.incoming.is_idle(self.ticks) {
            self.stop_receiving()?;
        }
        Ok(())
    }

    /// Processes a piece.
    fn receive(&mut self, piece: &Message, place: Place) -> Result<Answer, Error> {
        let log = &self.node.raft.raft_log;
        let metadata = piece.get_snapshot().get_metadata();
        let has = metadata.index < log.committed || log.match_term(metadata.index, metadata.term);
        if piece.term < self.node.raft.term {
            return Ok(Answer::Silence); // of a former leader
        }
        if has {
            self.stop_receiving()?;
            return Ok(Answer::Wanted(DONE));
        }
        let name = (piece.term, place.transfer);
        let present = self.incoming.receiving.as_ref().map(|state| (state.term, state.transfer));
        if present != Some(name) {
            if place.number > 0 {
                return Ok(Answer::Refused); // this follower has lost the pieces before
            }
            let is_late = present.is_some_and(|present| present > name);
            if is_late || self.ticks < self.incoming.not_before {
                return Ok(Answer::Silence);
            }
            if !self.begin_receiving(name)? {
                self.incoming.not_before = self.ticks + WITHOUT_ROOM;
                return Ok(Answer::Refused);
            }
        }
        let Some(receiving) = &mut self.incoming.receiving else { return Ok(Answer::Silence) };
        receiving.heard_at = self.ticks;
        if place.number != receiving.wanted && !self.faults.has(Wrong::PieceTwice) {
            return Ok(Answer::Wanted(receiving.wanted)); // it came twice
        }
        let data = &piece.get_snapshot().data;
        let mut fits = true;
        if !place.ends_unit {
            receiving.unit.extend_from_slice(data);
        } else if receiving.unit.is_empty() {
            fits = data.is_empty() || self.state.restore(data).map_err(Error::State)?;
        } else {
            let mut unit = std::mem::take(&mut receiving.unit);
            unit.extend_from_slice(data);
            fits = self.state.restore(&unit).map_err(Error::State)?;
        }
        receiving.wanted += 1;
        let wanted = receiving.wanted;
        if fits && place.last {
            let (index, term) = (metadata.index, metadata.term);
            let generation = receiving.generation;
            fits = self.faults.has(Wrong::SwitchedEarly)
                || self.state.finish(index).map_err(Error::State)?; // P1
            if fits {
                self.incoming.receiving = None;
                self.incoming.complete = Some((index, term, generation));
            }
        }
        if !fits {
            self.stop_receiving()?;
            self.incoming.not_before = self.ticks + WITHOUT_ROOM;
        }
        Ok(if fits { Answer::Wanted(wanted) } else { Answer::Refused })
    }

    /// Begins a state of the next generation; returns `false` if there is no room.
    fn begin_receiving(&mut self, (term, transfer): (u64, u64)) -> Result<bool, Error> {
        self.stop_receiving()?;
        let generation = self.node.store().base().generation + 1;
        if !self.state.begin(generation).map_err(Error::State)? {
            return Ok(false);
        }
        let (wanted, unit, heard_at) = (0, Vec::new(), self.ticks);
        let receiving = Receiving { term, transfer, generation, wanted, unit, heard_at };
        self.incoming.receiving = Some(receiving);
        Ok(true)
    }

    /// Removes what was received of a snapshot.
    pub(super) fn stop_receiving(&mut self) -> Result<(), Error> {
        let complete = self.incoming.complete.take();
        let receiving = self.incoming.receiving.take();
        let generation = receiving.map(|state| state.generation);
        match generation.or(complete.map(|(.., generation)| generation)) {
            Some(generation) => self.state.abandon(generation).map_err(Error::State),
            None => Ok(()),
        }
    }

    /// Replaces the state by the one that was received; returns `false` if the log has no room.
    pub(super) fn install(&mut self, snapshot: &Snapshot) -> Result<bool, Error> {
        let metadata = snapshot.get_metadata();
        let (index, term) = (metadata.index, metadata.term);
        let complete = self.incoming.complete.take();
        let Some((.., generation)) = complete.filter(|it| (it.0, it.1) == (index, term)) else {
            return Err(Error::Broken);
        };
        let base = Base { index, term, generation };
        match self.node.mut_store().begin_at(base, metadata.get_conf_state(), true) {
            Err(error) if error.is_full() => {
                self.incoming.complete = Some((index, term, generation));
                return Ok(false);
            }
            begun => begun?, // P2
        }
        if self.faults.has(Wrong::SwitchedEarly) {
            self.state.finish(index).map_err(Error::State)?;
        }
        self.state.switch(generation).map_err(Error::State)?;
        (self.applied, self.committed, self.durable) = (index, index, index);
        self.restored = true;
        Ok(true)
    }
}
