//! A replica: Raft's engine over the log, and the state behind it.
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
//! So a turn has one fence, whatever the number of entries, and one more when the state is made durable:
//! the log is what the state is recovered from.

use std::collections::VecDeque;
use std::sync::Arc;

use pmindex_core::{Medium, Pool};
use protobuf::Message as _;
use raft::prelude::{
    ConfChange, ConfChangeType, ConfChangeV2, ConfState, Entry, EntryType, Message, MessageType,
    Snapshot,
};
use raft::{Config, RawNode, SnapshotStatus, StateRole};

use crate::log::{Base, RaftLog};
use crate::wrong::{Faults, Wrong};
use crate::{Error, Options, State, StateError};

/// Entries that the state has applied and not made durable, at most.
const APPLIED_AHEAD: u64 = 1024;
/// Ticks after which a question who leads is asked again.
const ASK_AGAIN: u64 = 4;
/// Ticks: more than there will be.
const NEVER: usize = usize::MAX / 2;
/// Ticks for which a snapshot is kept.
const SNAPSHOT_TICKS: u64 = 200;
/// Bytes that wait to be agreed on, at most.
const MOST_WAITING: u64 = 256 << 20;

/// Who is in the group, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Who votes.
    pub voters: Vec<u64>,
    /// Who gets everything and does not vote.
    pub learners: Vec<u64>,
}

/// A change of the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It votes from now on.
    Voter(u64),
    /// It gets everything and does not vote.
    Learner(u64),
    /// It is no member any more.
    Remove(u64),
}

/// An entry that was proposed: it is agreed on when a turn has applied its index, and its replica has led in
/// its term all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Where it is in the log.
    pub index: u64,
    /// The term of the leader that proposed it.
    pub term: u64,
}

/// What a turn did. If it does not lead, or leads in another term than before, the outcome of earlier
/// proposals is not known, and earlier reads are void.
#[derive(Debug, Default)]
pub struct Turn {
    /// To be sent; any of them may be lost.
    pub messages: Vec<Message>,
    /// The index of the last entry that was applied.
    pub applied: u64,
    /// Reads up to this number see what they must.
    pub read: u64,
    /// Which replica leads, if this one knows.
    pub leader: Option<u64>,
    /// It is this one.
    pub leads: bool,
    /// It leads, and has applied all that was agreed on before: its state is the group's.
    pub serves: bool,
    /// Of the leader.
    pub term: u64,
    /// The state is another one: that of a snapshot.
    pub restored: bool,
}

/// Reads that wait to know who leads.
#[derive(Debug, Default)]
struct Reads {
    /// The number of the last one.
    last: u64,
    /// The last one that was asked for, and when.
    asked: (u64, u64),
    /// Asked and answered: the number, and the index that must be applied.
    known: VecDeque<(u64, u64)>,
    answered: u64,
}

/// A replica of a state machine.
pub struct Replica<M: Medium, S> {
    node: RawNode<RaftLog<M>>,
    state: S,
    applied: u64,
    durable: u64,
    reads: Reads,
    ticks: u64,
    /// When the snapshot was made that is kept.
    snapshot_at: Option<u64>,
    random: u64,
    election_ticks: usize,
    /// Ticks without a leader after which this replica stands for election.
    patience: usize,
    log_bytes: usize,
    restored: bool,
    /// It is no member any more: it takes no more part.
    removed: bool,
    broken: bool,
    faults: Faults,
}

impl<M: Medium, S: State> Replica<M, S> {
    /// Starts a replica whose log has this name in the pool; it is made if there is none. `state` opens the
    /// state of a generation, 0 at first.
    ///
    /// A new replica with `founders` founds a group of them, which each of them must be told alike. One
    /// without waits until the leader of a group sends it a snapshot: see [`change`](Self::change). A log
    /// that is there already knows.
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
            // Not at 0, so that who comes later gets a snapshot and with it the configuration.
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
            // Never: this replica says when, with random numbers that a simulator can repeat.
            min_election_tick: NEVER,
            max_election_tick: NEVER + 1,
            max_size_per_msg: 1 << 20,
            max_inflight_msgs: 256,
            max_uncommitted_size: MOST_WAITING,
            check_quorum: true,
            pre_vote: true,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, log, &logger)?;
        let mut this = Self {
            node,
            state,
            applied,
            durable: applied,
            reads: Reads::default(),
            ticks: 0,
            snapshot_at: None,
            random: options.seed ^ options.id.rotate_left(32),
            election_ticks: options.election_ticks,
            patience: 0,
            // The pool is for the state, too.
            log_bytes: options.log_bytes.min((pool.max_size() / 8) as usize),
            restored: false,
            removed: false,
            broken: false,
            faults: Faults::of(options.wrong),
        };
        this.draw_patience();
        Ok(this)
    }

    /// The state: what is agreed on, as far as this replica knows.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The state, for what changes nothing that is replicated.
    pub fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.node.raft.id
    }

    /// Returns `true` if this replica leads, as far as it knows.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.node.raft.state == StateRole::Leader && !self.removed
    }

    /// Who leads, as far as this replica knows.
    #[must_use]
    pub fn leader(&self) -> Option<u64> {
        Some(self.node.raft.leader_id).filter(|&leader| leader != 0 && !self.removed)
    }

    /// Who is in the group.
    #[must_use]
    pub fn members(&self) -> Members {
        let state = self.node.raft.prs().conf().to_conf_state();
        let (mut voters, mut learners) = (state.voters, state.learners);
        voters.sort_unstable();
        learners.sort_unstable();
        Members { voters, learners }
    }

    /// How far each member is behind this leader, in entries.
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

    /// Lets time pass: a tick.
    pub fn tick(&mut self) {
        self.ticks += 1;
        if self.removed {
            return;
        }
        self.node.tick();
        let raft = &mut self.node.raft;
        let stands = raft.state != StateRole::Leader && raft.promotable();
        if stands && raft.election_elapsed >= self.patience {
            raft.election_elapsed = 0;
            // It has not applied who is a member: then later.
            let _ = self.node.campaign();
            self.draw_patience();
        }
        if self.snapshot_at.is_some_and(|at| at + SNAPSHOT_TICKS < self.ticks) {
            self.node.store().snapshot.replace(None);
            self.snapshot_at = None;
        }
    }

    /// Takes a message. What makes no sense is ignored.
    ///
    /// # Errors
    /// [`Error::Broken`].
    pub fn step(&mut self, message: Message) -> Result<(), Error> {
        if self.broken {
            return Err(Error::Broken);
        }
        let heartbeat = message.get_msg_type() == MessageType::MsgHeartbeat;
        // Its log was lost, or another one's message came here: Raft's engine would panic.
        let unknown = heartbeat && message.commit > self.node.raft.raft_log.last_index();
        let ours = message.to == self.id() && message.from != self.id();
        if ours && !unknown && !self.removed {
            // What it refuses came too late.
            let _ = self.node.step(message);
        }
        Ok(())
    }

    /// Proposes an entry.
    ///
    /// # Errors
    /// [`Error::NotLeader`], [`Error::Busy`]; it is not proposed then.
    ///
    /// # Durability
    /// When a turn has applied it: see [`Proposal`].
    pub fn propose(&mut self, data: Vec<u8>) -> Result<Proposal, Error> {
        self.leading()?;
        self.node.propose(Vec::new(), data).map_err(refused)?;
        Ok(self.proposed())
    }

    /// Proposes a change of the members. One at a time: until it is applied another one has no effect.
    ///
    /// # Errors
    /// Those of [`propose`](Self::propose).
    pub fn change(&mut self, change: Change) -> Result<Proposal, Error> {
        self.leading()?;
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

    /// Announces a read of the state as it is now. It may be answered when a turn's `read` is this number
    /// or a greater one.
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

    /// Hands leadership over to another voter, if it is up to date.
    pub fn hand_over(&mut self, to: u64) {
        self.node.transfer_leader(to);
    }

    /// Does what is to be done: makes durable what came, applies what is agreed on, and says what to send.
    ///
    /// # Errors
    /// Of the pool and of the state; the replica is [broken](Error::Broken) then.
    ///
    /// # Cost
    /// One fence if anything came; one more now and then, when the state is made durable.
    pub fn turn(&mut self) -> Result<Turn, Error> {
        if self.broken {
            return Err(Error::Broken);
        }
        self.broken = true; // unless it comes to its end
        let mut turn = Turn::default();
        loop {
            // Again after an answer: reads of this turn must not wait for the next one.
            self.ask();
            if self.removed || !self.node.has_ready() {
                break;
            }
            self.ready(&mut turn)?;
        }
        if self.removed {
            turn.messages.clear();
        }
        if self.applied - self.durable >= APPLIED_AHEAD {
            self.make_durable()?;
        }
        if self.node.store().is_over(self.log_bytes) {
            self.cut(self.node.store().bytes().min(self.log_bytes) / 2)?;
        }
        if self.node.store().wants_snapshot.take() {
            self.make_snapshot()?;
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
            && raft.raft_log.committed == self.applied;
        turn.restored = std::mem::take(&mut self.restored);
        Ok(turn)
    }

    /// Where the log begins, and the generation of the state.
    #[cfg(test)]
    pub(crate) fn base(&self) -> (u64, u64) {
        let base = self.node.store().base();
        (base.index, base.generation)
    }

    /// Makes the state durable as it is, and ends.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn close(mut self) -> Result<S, Error> {
        if !self.broken {
            self.state.commit(self.applied).map_err(Error::State)?;
        }
        Ok(self.state)
    }

    /// Asks who leads, for the reads that wait.
    fn ask(&mut self) {
        let (asked, at) = self.reads.asked;
        let known = self.reads.known.back().map_or(self.reads.answered, |&(number, _)| number);
        let again = asked > known && self.ticks >= at + ASK_AGAIN;
        // One question at a time; what comes meanwhile is in the next one.
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
        if !ready.snapshot().is_empty() {
            self.install(ready.snapshot())?; // T1
        }
        let hard = ready.hs().cloned();
        self.node.mut_store().append(ready.entries(), hard.as_ref())?;
        self.log_durable()?; // T1
        let messages = ready.take_persisted_messages();
        self.send(messages, turn);
        self.apply(ready.take_committed_entries())?;
        let mut light = self.node.advance(ready);
        let messages = light.take_messages();
        self.send(messages, turn);
        self.apply(light.take_committed_entries())?;
        self.node.advance_apply();
        Ok(())
    }

    fn send(&mut self, messages: Vec<Message>, turn: &mut Turn) {
        for message in &messages {
            if message.get_msg_type() == MessageType::MsgSnapshot {
                // If it is lost, Raft finds that out by the next entries, which are refused.
                self.node.report_snapshot(message.to, SnapshotStatus::Finish);
            }
        }
        turn.messages.extend(messages);
    }

    /// Makes the log durable, and makes room in it if need be.
    fn log_durable(&mut self) -> Result<(), Error> {
        if self.faults.has(Wrong::ToldEarly) {
            return Ok(()); // with the next base, if ever
        }
        match self.node.mut_store().commit() {
            Err(error) if error.is_full() => {
                self.cut(0)?;
                self.node.mut_store().commit()?;
            }
            other => drop(other?),
        }
        Ok(())
    }

    /// Applies what is agreed on.
    fn apply(&mut self, entries: Vec<Entry>) -> Result<(), Error> {
        for entry in entries {
            let corrupt = |error| Error::Raft(raft::Error::CodecError(error));
            let members = match entry.get_entry_type() {
                EntryType::EntryNormal if entry.data.is_empty() => None, // of a new leader
                EntryType::EntryNormal => {
                    self.state.apply(entry.index, &entry.data).map_err(Error::State)?; // T2
                    None
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
                self.log_durable()?; // before: the state's index
            }
            self.applied = entry.index;
        }
        Ok(())
    }

    /// Is no member any more. Raft's engine is not told: a leader that has removed itself panics in it.
    fn leave(&mut self) -> ConfState {
        let id = self.id();
        self.removed = true;
        let mut members = self.node.raft.prs().conf().to_conf_state();
        members.voters.retain(|other| *other != id);
        members.learners.retain(|other| *other != id);
        members
    }

    /// Makes the state durable.
    fn make_durable(&mut self) -> Result<(), Error> {
        if !self.faults.has(Wrong::CutEarly) {
            self.state.commit(self.applied).map_err(Error::State)?; // T3
        }
        self.durable = self.applied;
        Ok(())
    }

    /// Makes the state durable, and cuts the log: entries of so many bytes stay.
    fn cut(&mut self, keep: usize) -> Result<(), Error> {
        self.make_durable()?;
        let log = self.node.mut_store();
        let index = log.tail_of(keep).min(self.durable);
        let before = log.base();
        if index <= before.index {
            return Ok(());
        }
        let term = raft::Storage::term(log, index)?;
        let configuration = log.configuration(index);
        let outdated = |found: &Snapshot| found.get_metadata().index < index;
        if log.snapshot.borrow().as_ref().is_some_and(outdated) {
            log.snapshot.replace(None);
        }
        log.begin_at(Base { index, term, ..before }, &configuration, false)?;
        Ok(())
    }

    /// Makes a snapshot for a follower that lacks what is cut off.
    fn make_snapshot(&mut self) -> Result<(), Error> {
        self.make_durable()?;
        let data = self.state.snapshot().map_err(Error::State)?;
        let index = self.applied;
        let log = self.node.mut_store();
        let mut snapshot = Snapshot { data: data.into(), ..Snapshot::default() };
        let term = raft::Storage::term(log, index)?;
        let configuration = log.configuration(index);
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (index, term);
        metadata.set_conf_state(configuration);
        log.snapshot.replace(Some(snapshot));
        self.snapshot_at = Some(self.ticks);
        Ok(())
    }

    /// Becomes what a snapshot says.
    fn install(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let metadata = snapshot.get_metadata();
        let generation = self.node.store().base().generation + 1;
        let base = Base { index: metadata.index, term: metadata.term, generation };
        let early = self.faults.has(Wrong::SwitchedEarly);
        if early {
            self.node.mut_store().begin_at(base, metadata.get_conf_state(), true)?;
        }
        // Beside the state that is there: a crash leaves that.
        self.state.restore(generation, base.index, &snapshot.data).map_err(Error::State)?;
        if !early {
            self.node.mut_store().begin_at(base, metadata.get_conf_state(), true)?;
        }
        self.state.switch(generation).map_err(Error::State)?;
        (self.applied, self.durable) = (base.index, base.index);
        self.restored = true;
        Ok(())
    }

    /// Draws for how many ticks a follower waits for a leader.
    fn draw_patience(&mut self) {
        // xorshift64*: any number but 0 will do.
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
