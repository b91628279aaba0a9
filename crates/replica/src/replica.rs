//! A replica: Raft's engine, with its log and its state.
//!
//! ```text
//! a turn
//! step  what                                                         before
//! T1    entries, votes, snapshots: durable                           messages that tell of them; what is
//!                                                                    applied
//! T2    what is agreed on: applied (LIN: agreed on by a majority)    its replies
//! T3    the state: durable, now and then                             the end of the log segments it was in
//! ```
//!
//! So a turn has one fence, for any number of entries, and one more when the state is made durable. The
//! state is recovered from the log. If there is no room to make it durable, the log keeps what it lacks.

mod cut;
mod transfer;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use pmindex_core::{Medium, Pool};
use protobuf::Message as _;
use raft::prelude::{
    ConfChange, ConfChangeType, ConfChangeV2, ConfState, Entry, EntryType, Message, MessageType,
};
use raft::{Config, RawNode, Ready, StateRole};

use crate::incoming::Incoming;
use crate::log::{Base, RaftLog};
use crate::outgoing::Outgoing;
use crate::wrong::{Faults, Wrong};
use crate::{Error, Options, State, StateError};
use transfer::Fetching;

/// The maximum number of entries that the state has applied but not made durable.
const APPLIED_AHEAD: u64 = 1024;
/// The number of ticks after which a replica asks again who leads.
const ASK_AGAIN: u64 = 4;
/// The number of ticks between two attempts to write to a log, or to a state, that has no room.
const TRY_AGAIN: u64 = 10;
/// While a follower gets a snapshot, the log may be longer: this number of times as long, and a quarter of the pool.
const KEPT_TIMES: usize = 16;
/// A number of ticks that is never reached.
const NEVER: usize = usize::MAX / 2;
/// The maximum bytes that wait for a majority.
const MOST_WAITING: u64 = 256 << 20;

/// The members of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The members that vote.
    pub voters: Vec<u64>,
    /// The members that get all entries and do not vote.
    pub learners: Vec<u64>,
}

/// A change of the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The member votes from now on.
    Voter(u64),
    /// The member gets all entries and does not vote.
    Learner(u64),
    /// The member leaves the group.
    Remove(u64),
}

/// A proposed entry. A majority has it when a turn has applied its index, and its replica has led in its
/// term all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Its index in the log.
    pub index: u64,
    /// The term of the leader that proposed it.
    pub term: u64,
}

/// The result of a turn. If the replica does not lead, or leads in another term than before, the outcome of
/// earlier proposals is unknown, and earlier reads are void.
#[derive(Debug, Default)]
pub struct Turn {
    /// Messages to send; any of them may be lost.
    pub messages: Vec<Message>,
    /// The index of the last entry that was applied.
    pub applied: u64,
    /// Reads up to this number may be answered.
    pub read: u64,
    /// The id of the leader, if this replica knows it.
    pub leader: Option<u64>,
    /// `true` if this replica leads.
    pub leads: bool,
    /// `true` if it leads, and has applied every entry of its log, also those that it has proposed itself: its
    /// state is the group's, and nothing is on its way that would change it.
    pub serves: bool,
    /// The term of the leader.
    pub term: u64,
    /// `true` if the state was replaced by that of a snapshot.
    pub restored: bool,
}

/// Reads that wait for the confirmation of the leader.
#[derive(Debug, Default)]
struct Reads {
    /// The number of the last read.
    last: u64,
    /// The last read whose confirmation is pending, and the time of the request.
    asked: (u64, u64),
    /// Confirmed reads: the number, and the index that must be applied.
    known: VecDeque<(u64, u64)>,
    answered: u64,
}

/// What its log has no room for: entries, votes and snapshots, of which none is told before it is durable.
struct Unwritten {
    ready: Ready,
    /// It is in the log, but not durable.
    is_appended: bool,
    /// The tick at which this is tried again.
    at: u64,
}

/// A replica of a state machine.
pub struct Replica<M: Medium, S: State> {
    node: RawNode<RaftLog<M>>,
    state: S,
    applied: u64,
    /// The last committed entry; those after `applied` wait, because the state has no room.
    committed: u64,
    /// The tick at which they are tried again.
    try_at: u64,
    unwritten: Option<Unwritten>,
    durable: u64,
    /// The tick at which the state is made durable again, because there was no room for that.
    durable_at: u64,
    reads: Reads,
    ticks: u64,
    outgoing: Outgoing<S::View>,
    incoming: Incoming,
    /// The term in which it leads, for the snapshots that it sends.
    led: u64,
    random: u64,
    election_ticks: usize,
    /// Ticks without a leader after which this replica stands for election.
    patience: usize,
    log_bytes: usize,
    /// The bytes of the log while a follower gets a snapshot, at most, and the tick at which that is looked at again.
    most_kept: usize,
    kept_at: u64,
    fetching: BTreeMap<u64, Fetching>,
    /// The maximum bytes of a proposed entry.
    entry_bytes: usize,
    restored: bool,
    /// `true` if it is no longer a member: it takes no further part.
    removed: bool,
    broken: bool,
    faults: Faults,
}

impl<M: Medium, S: State> Replica<M, S> {
    /// Starts a replica whose log has this name in the pool, or creates the log. `state` opens the state of
    /// a generation, which is 0 at first.
    ///
    /// A new replica with `founders` founds a group; each founder must get the same list. A new replica
    /// without waits until the leader of a group sends it a snapshot: see [`change`](Self::change). A
    /// replica with an existing log ignores the list.
    ///
    /// # Errors
    /// [`Error::Pool`] if the log is damaged, [`Error::State`], [`Error::Raft`].
    ///
    /// # Cost
    /// Reads the log.
    pub fn start(
        pool: &Arc<Pool<M>>,
        name: &str,
        options: &Options,
        founders: &[u64],
        state: impl FnOnce(u64) -> Result<S, StateError>,
    ) -> Result<Self, Error> {
        let mut log = RaftLog::open(pool, name)?;
        if log.base() == Base::default() && !founders.is_empty() {
            // Not at 0, so that a later member gets a snapshot, and with it the configuration.
            let base = Base { index: 1, term: 1, generation: 0 };
            let members = ConfState { voters: founders.to_vec(), ..ConfState::default() };
            log.begin_at(base, &members, true)?;
        }
        let base = log.base();
        let mut state = state(base.generation).map_err(Error::State)?;
        state.switch(base.generation).map_err(Error::State)?;
        let applied = state.applied().max(u64::from(base.index == 1));
        if applied < base.index {
            let what = "a replica's state, which is older than its log";
            return Err(pmindex_core::PmError::Corrupt { what, offset: 0 }.into());
        }
        log.settle(applied);
        let config = Config {
            id: options.id,
            applied,
            heartbeat_tick: options.heartbeat_ticks,
            election_tick: options.election_ticks,
            // Never: this replica decides when, with random numbers that a simulator can repeat.
            min_election_tick: NEVER,
            max_election_tick: NEVER + 1,
            max_size_per_msg: 1 << 20,
            max_inflight_msgs: 256,
            max_uncommitted_size: MOST_WAITING,
            check_quorum: true,
            pre_vote: true,
            ..Config::default()
        };
        // The pool also has the state.
        let log_bytes = options.log_bytes.min((pool.max_size() / 8) as usize);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, log, &logger)?;
        let mut this = Self {
            node,
            state,
            applied,
            committed: applied,
            try_at: 0,
            unwritten: None,
            durable: applied,
            durable_at: 0,
            reads: Reads::default(),
            ticks: 0,
            outgoing: Outgoing::new(options.piece_bytes),
            incoming: Incoming::default(),
            led: 0,
            random: options.seed ^ options.id.rotate_left(32),
            election_ticks: options.election_ticks,
            patience: 0,
            log_bytes,
            most_kept: (KEPT_TIMES * log_bytes).min((pool.max_size() / 4) as usize),
            kept_at: 0,
            fetching: BTreeMap::new(),
            entry_bytes: options.entry_bytes,
            restored: false,
            removed: false,
            broken: false,
            faults: Faults::of(options.wrong),
        };
        this.draw_patience();
        Ok(this)
    }

    /// Returns the state, with the entries that this replica has applied.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns the state, for changes that are not replicated.
    pub fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }

    /// Returns the id.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.node.raft.id
    }

    /// Returns `true` if this replica leads, as far as it knows.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.node.raft.state == StateRole::Leader && !self.removed && !self.is_log_full()
    }

    /// Returns `true` if its log has no room. Then this replica is silent, like one that has crashed: the others elect
    /// another leader, and nothing that it has not written is acknowledged. It tries again at intervals, and goes on
    /// when there is room.
    #[must_use]
    pub fn is_log_full(&self) -> bool {
        self.unwritten.is_some()
    }

    /// Returns the leader, if this replica knows it.
    #[must_use]
    pub fn leader(&self) -> Option<u64> {
        let knows = !self.removed && !self.is_log_full();
        Some(self.node.raft.leader_id).filter(|&leader| leader != 0 && knows)
    }

    /// Returns the members of the group.
    #[must_use]
    pub fn members(&self) -> Members {
        let state = self.node.raft.prs().conf().to_conf_state();
        let (mut voters, mut learners) = (state.voters, state.learners);
        voters.sort_unstable();
        learners.sort_unstable();
        Members { voters, learners }
    }

    /// Returns `true` if the log has entries, or had some that a state has: the group is not new.
    #[must_use]
    pub fn has_entries(&self) -> bool {
        self.node.raft.raft_log.last_index() > 1 // where a group begins
    }

    /// Returns for each member how many entries it is behind this leader.
    #[must_use]
    pub fn behind(&self) -> Vec<(u64, u64)> {
        let last = self.node.raft.raft_log.last_index();
        let mut all: Vec<_> = self
            .node
            .raft
            .prs()
            .iter()
            .map(|(&id, pr)| (id, last - pr.matched.min(last)))
            .collect();
        all.sort_unstable();
        all
    }

    /// Advances time by a tick.
    pub fn tick(&mut self) {
        self.ticks += 1;
        if self.removed || self.is_log_full() {
            return;
        }
        self.node.tick();
        if self.is_stuck() {
            self.hand_over_stuck();
            return;
        }
        let raft = &mut self.node.raft;
        let stands = raft.state != StateRole::Leader && raft.promotable();
        if stands && raft.election_elapsed >= self.patience {
            raft.election_elapsed = 0;
            // It fails before the replica has applied the configuration; then a later tick tries again.
            let _ = self.node.campaign();
            self.draw_patience();
        }
    }

    /// Processes a message. Ignores invalid messages.
    ///
    /// # Errors
    /// [`Error::Broken`].
    pub fn step(&mut self, message: Message) -> Result<(), Error> {
        if self.broken {
            return Err(Error::Broken);
        }
        let heartbeat = message.get_msg_type() == MessageType::MsgHeartbeat;
        // Its log was lost, or the message was for another replica: Raft's engine would panic.
        let unknown = heartbeat && message.commit > self.node.raft.raft_log.last_index();
        let ours = message.to == self.id() && message.from != self.id();
        let refused = self.is_stuck()
            && match message.get_msg_type() {
                // Nothing can be cut from its log until there is room.
                MessageType::MsgAppend => self.node.store().bytes() > 2 * self.log_bytes,
                MessageType::MsgTimeoutNow => true, // it could lead, but not serve
                _ => false,
            };
        if !ours || unknown || refused || self.removed || self.is_log_full() {
            return Ok(());
        }
        match message.get_msg_type() {
            MessageType::MsgSnapshot => self.incoming.accept(message),
            MessageType::MsgSnapStatus if message.term == self.node.raft.term && self.leads() => {
                self.outgoing.hear(&message, self.ticks);
            }
            // The engine refuses messages that are too late, and those that only a process sends to itself.
            _ => drop(self.node.step(message)),
        }
        Ok(())
    }

    /// Proposes an entry.
    ///
    /// # Errors
    /// [`Error::NotLeader`], [`Error::Busy`], [`Error::EntryTooLong`]; then it is not proposed.
    ///
    /// # Durability
    /// Durable when a turn has applied it: see [`Proposal`].
    pub fn propose(&mut self, data: Vec<u8>) -> Result<Proposal, Error> {
        self.leading()?;
        let (len, max) = (data.len(), self.entry_bytes);
        if len > max {
            return Err(Error::EntryTooLong { len, max });
        }
        self.node.propose(Vec::new(), data).map_err(refused)?;
        Ok(self.proposed())
    }

    /// Proposes a change of the members. Only one at a time: until it is applied, another one is refused.
    ///
    /// # Errors
    /// Those of [`propose`](Self::propose), and [`Error::ChangeInProgress`].
    pub fn change(&mut self, change: Change) -> Result<Proposal, Error> {
        self.leading()?;
        // Raft's engine would accept it, and propose an empty entry instead.
        if self.node.raft.has_pending_conf() {
            return Err(Error::ChangeInProgress);
        }
        let (kind, id) = match change {
            Change::Voter(id) => (ConfChangeType::AddNode, id),
            Change::Learner(id) => (ConfChangeType::AddLearnerNode, id),
            Change::Remove(id) => (ConfChangeType::RemoveNode, id),
        };
        let mut change = ConfChange::default();
        change.set_change_type(kind);
        change.node_id = id;
        self.node.propose_conf_change(Vec::new(), change).map_err(refused)?;
        Ok(self.proposed())
    }

    fn leading(&self) -> Result<(), Error> {
        if self.broken {
            return Err(Error::Broken);
        }
        if self.leads() { Ok(()) } else { Err(Error::NotLeader { leader: self.leader() }) }
    }

    fn proposed(&self) -> Proposal {
        Proposal { index: self.node.raft.raft_log.last_index(), term: self.node.raft.term }
    }

    /// Announces a read of the present state. Answer it when a turn's `read` is at least the returned
    /// number.
    ///
    /// # Errors
    /// [`Error::NotLeader`], [`Error::Broken`].
    ///
    /// # Cost
    /// A round of heartbeats, for all reads of a turn together.
    pub fn read(&mut self) -> Result<u64, Error> {
        self.leading()?;
        self.reads.last += 1;
        Ok(self.reads.last)
    }

    /// Returns `true` if this replica leads, and this member answered lately and has all entries.
    #[must_use]
    pub fn is_current(&self, id: u64) -> bool {
        let raft = &self.node.raft;
        let last = raft.raft_log.last_index();
        let current = |pr: &raft::Progress| pr.recent_active && pr.matched == last;
        self.leads() && raft.prs().get(id).is_some_and(current)
    }

    /// Returns `true` if committed entries wait, because the [state](State::apply) has no room for them. Then
    /// this replica does not stand for election, takes no leadership, and hands it over if it has it. It tries again
    /// with each tick.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.applied < self.committed
    }

    /// Hands leadership over, now and then, because this replica has no room.
    fn hand_over_stuck(&mut self) {
        if !self.leads() || !self.ticks.is_multiple_of(self.election_ticks as u64) {
            return;
        }
        let others = self.members().voters.into_iter().filter(|id| *id != self.id());
        let others: Vec<u64> = others.filter(|id| self.is_current(*id)).collect();
        // Another one each time, since one without room refuses.
        let turn = self.ticks as usize / self.election_ticks;
        if let Some(next) = others.get(turn % others.len().max(1)) {
            self.hand_over(*next);
        }
    }

    /// Returns `true` if this replica leads, and this member answered lately, has a state, and lacks fewer
    /// than this number of entries.
    #[must_use]
    pub fn is_near(&self, id: u64, entries: u64) -> bool {
        let raft = &self.node.raft;
        let last = raft.raft_log.last_index();
        // Before the first snapshot nothing matches, however few entries there are.
        let near = |pr: &raft::Progress| {
            pr.recent_active && pr.matched > 0 && last - pr.matched.min(last) < entries
        };
        self.leads() && raft.prs().get(id).is_some_and(near)
    }

    /// Returns `true` while leadership is being [transferred](Self::hand_over): nothing can be proposed.
    #[must_use]
    pub fn hands_over(&self) -> bool {
        self.leads() && self.node.raft.lead_transferee.is_some()
    }

    /// Transfers leadership to another voter, if that is up to date. Given up after the ticks of an election.
    pub fn hand_over(&mut self, to: u64) {
        self.node.transfer_leader(to);
    }

    /// Does the pending work: makes received entries durable, applies committed ones, and returns the
    /// messages to send.
    ///
    /// # Errors
    /// Those of the pool and of the state; then the replica is [broken](Error::Broken).
    ///
    /// # Cost
    /// One fence if anything was received; one more now and then, when the state is made durable.
    pub fn turn(&mut self) -> Result<Turn, Error> {
        if self.broken {
            return Err(Error::Broken);
        }
        self.broken = true; // unless it comes to its end
        let mut turn = Turn::default();
        // What it sends in the turn in which it is removed tells the others that this was agreed on.
        let takes_part = !self.removed;
        self.write_again(&mut turn)?;
        if !self.is_log_full() {
            self.work(&mut turn)?;
        }
        if !takes_part {
            turn.messages.clear();
        }
        self.broken = false;
        while self.reads.known.front().is_some_and(|&(_, index)| index <= self.applied) {
            self.reads.answered = self.reads.known.pop_front().map_or(0, |(number, _)| number);
        }
        turn.applied = self.applied;
        turn.read = if self.faults.has(Wrong::ReadUnconfirmed) {
            self.reads.last
        } else {
            self.reads.answered
        };
        (turn.leader, turn.leads, turn.term) = (self.leader(), self.leads(), self.node.raft.term);
        let raft = &self.node.raft;
        turn.serves = self.leads()
            && raft.commit_to_current_term()
            && raft.raft_log.last_index() == self.applied;
        turn.restored = std::mem::take(&mut self.restored);
        Ok(turn)
    }

    /// Does the work of a turn, until there is none, or the log has no room.
    fn work(&mut self, turn: &mut Turn) -> Result<(), Error> {
        self.receive_pieces(&mut turn.messages)?;
        self.apply_waiting()?;
        loop {
            // Asks again after an answer, so that reads of this turn need not wait for the next one.
            self.ask();
            if self.removed || !self.node.has_ready() {
                break;
            }
            self.ready(turn)?;
            if self.is_log_full() {
                return Ok(());
            }
        }
        if self.incoming.complete.is_some() {
            self.stop_receiving()?; // the engine did not need it
        }
        if self.applied - self.durable >= APPLIED_AHEAD {
            self.make_durable()?;
        }
        self.cut_if_long()?;
        if !self.leads() || self.led != self.node.raft.term {
            self.led = self.node.raft.term;
            self.end_transfers();
        }
        self.make_snapshots()?;
        self.send_pieces(&mut turn.messages)
    }

    /// Returns the beginning of the log, and the generation of the state.
    #[cfg(test)]
    pub(crate) fn base(&self) -> (u64, u64) {
        let base = self.node.store().base();
        (base.index, base.generation)
    }

    /// Returns the applied index, and the voters of the configuration that is recorded for it.
    #[cfg(test)]
    pub(crate) fn configuration(&self) -> (u64, Vec<u64>) {
        (self.applied, self.node.store().configuration(self.applied).voters)
    }

    /// Refuses this number of commits of the log.
    #[cfg(test)]
    pub(crate) fn refuse_commits(&mut self, count: u64) {
        self.node.mut_store().refuses = count;
    }

    /// Returns the transfer that is being received, and the number of its next piece.
    #[cfg(test)]
    pub(crate) fn received(&self) -> Option<(u64, u64)> {
        self.incoming.receiving.as_ref().map(|state| (state.transfer, state.wanted))
    }

    /// Makes the state durable, and ends the replica.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn close(mut self) -> Result<S, Error> {
        if !self.broken {
            // Without room for that, the next opening has it from the log.
            self.state.commit(self.applied).map_err(Error::State)?;
        }
        Ok(self.state)
    }

    /// Requests confirmation of the leader, for the waiting reads.
    fn ask(&mut self) {
        let (asked, at) = self.reads.asked;
        let known = self.reads.known.back().map_or(self.reads.answered, |&(number, _)| number);
        let again = asked > known && self.ticks >= at + ASK_AGAIN;
        // Only one request at a time; later reads are in the next one.
        if self.leads() && self.reads.last > known && (asked <= known || again) {
            self.reads.asked = (self.reads.last, self.ticks);
            self.node.read_index(self.reads.last.to_le_bytes().to_vec());
        }
    }

    fn ready(&mut self, turn: &mut Turn) -> Result<(), Error> {
        let mut ready = self.node.ready();
        let messages = ready.take_messages();
        self.send(messages, turn);
        for read in ready.take_read_states() {
            if let Ok(number) = read.request_ctx.as_slice().try_into() {
                self.reads.known.push_back((u64::from_le_bytes(number), read.index));
            }
        }
        self.write(Unwritten { ready, is_appended: false, at: 0 }, turn)
    }

    /// Tries again to write what the log had no room for.
    fn write_again(&mut self, turn: &mut Turn) -> Result<(), Error> {
        let ticks = self.ticks;
        match self.unwritten.take_if(|unwritten| ticks >= unwritten.at) {
            Some(unwritten) => self.write(unwritten, turn),
            None => Ok(()),
        }
    }

    /// Makes durable what is ready, and goes on with it; keeps it if there is no room.
    fn write(&mut self, mut unwritten: Unwritten, turn: &mut Turn) -> Result<(), Error> {
        let ready = &unwritten.ready;
        let is_installed = unwritten.is_appended
            || ready.snapshot().is_empty()
            || self.install(ready.snapshot())?; // T1
        if is_installed && !unwritten.is_appended {
            self.node.mut_store().append(ready.entries(), ready.hs())?;
            unwritten.is_appended = true;
        }
        if is_installed && self.log_durable()? {
            return self.written(unwritten.ready, turn); // T1
        }
        unwritten.at = self.ticks + TRY_AGAIN;
        self.unwritten = Some(unwritten);
        Ok(())
    }

    /// Goes on after what is ready was made durable: tells it, and applies what is agreed on.
    fn written(&mut self, mut ready: Ready, turn: &mut Turn) -> Result<(), Error> {
        let messages = ready.take_persisted_messages();
        self.send(messages, turn);
        self.apply(ready.take_committed_entries())?;
        let mut light = self.node.advance_append(ready);
        self.node.advance_apply_to(self.applied);
        let messages = light.take_messages();
        self.send(messages, turn);
        self.apply(light.take_committed_entries())?;
        self.node.advance_apply_to(self.applied);
        Ok(())
    }

    fn send(&mut self, messages: Vec<Message>, turn: &mut Turn) {
        for message in messages {
            if message.get_msg_type() == MessageType::MsgSnapshot {
                self.outgoing.begin(message, self.ticks);
            } else {
                turn.messages.push(message);
            }
        }
    }

    /// Makes the log durable, and makes room in it if necessary; returns `false` if there is none.
    fn log_durable(&mut self) -> Result<bool, Error> {
        if self.faults.has(Wrong::ToldEarly) {
            return Ok(true); // never, except by accident
        }
        if self.node.mut_store().has_committed()? {
            return Ok(true);
        }
        self.cut_if_room(0)?;
        Ok(self.node.mut_store().has_committed()? || self.faults.has(Wrong::ToldUnwritten))
    }

    /// Applies committed entries, as far as the state has room for them. The others are in the log.
    fn apply(&mut self, entries: Vec<Entry>) -> Result<(), Error> {
        for entry in entries {
            self.committed = entry.index;
            if self.applied + 1 == entry.index {
                self.apply_one(&entry)?;
            }
        }
        Ok(())
    }

    /// Applies the committed entries that wait for room, if there is some now.
    fn apply_waiting(&mut self) -> Result<(), Error> {
        if !self.is_stuck() || self.ticks < self.try_at || self.removed {
            return Ok(());
        }
        while self.is_stuck() {
            let Some(entry) = self.node.store().entry(self.applied + 1) else { break };
            if !self.apply_one(&entry)? {
                break;
            }
        }
        self.node.advance_apply_to(self.applied);
        Ok(())
    }

    /// Applies an entry; returns `false` if the state has no room for it.
    fn apply_one(&mut self, entry: &Entry) -> Result<bool, Error> {
        let corrupt = |error| Error::Raft(raft::Error::CodecError(error));
        let members = match entry.get_entry_type() {
            EntryType::EntryNormal if entry.data.is_empty() => None, // of a new leader
            EntryType::EntryNormal => {
                if !self.state.apply(entry.index, &entry.data).map_err(Error::State)? {
                    self.try_at = self.ticks + 1;
                    return Ok(false);
                }
                None // T2
            }
            EntryType::EntryConfChange => {
                let change = ConfChange::parse_from_bytes(&entry.data).map_err(corrupt)?;
                let removes = change.get_change_type() == ConfChangeType::RemoveNode;
                if removes && change.node_id == self.id() {
                    Some(self.leave())
                } else {
                    Some(self.node.apply_conf_change(&change)?)
                }
            }
            EntryType::EntryConfChangeV2 => {
                let change = ConfChangeV2::parse_from_bytes(&entry.data).map_err(corrupt)?;
                Some(self.node.apply_conf_change(&change)?)
            }
        };
        if let Some(members) = members
            && !self.faults.has(Wrong::ConfigurationForgotten)
        {
            self.node.mut_store().configure(entry.index, &members);
            // Before: the state's index.
            if !self.log_durable()? {
                self.try_at = self.ticks + TRY_AGAIN;
                return Ok(false); // the change is made again then, without effect
            }
        }
        self.applied = entry.index;
        Ok(true)
    }

    /// Leaves the group. The Raft engine is not told: it panics in a leader that has removed itself.
    fn leave(&mut self) -> ConfState {
        let id = self.id();
        self.removed = true;
        let mut members = self.node.raft.prs().conf().to_conf_state();
        members.voters.retain(|other| *other != id);
        members.learners.retain(|other| *other != id);
        members
    }

    /// Draws the number of ticks that a follower waits for a leader.
    fn draw_patience(&mut self) {
        // xorshift64*: the state may be any number except 0.
        let mut x = self.random | 1;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random = x;
        let drawn = x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        self.patience = self.election_ticks + drawn as usize % self.election_ticks;
    }
}

fn refused(error: raft::Error) -> Error {
    if error == raft::Error::ProposalDropped { Error::Busy } else { error.into() }
}
