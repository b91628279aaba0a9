//! A partition that several processes replicate with Raft: [`pmindex_replica`].
//!
//! The leader runs commands on the agreed records with the proposed changes over them. The writes of one turn
//! become one entry. The replies of a turn wait at a [`Gate`]: until the entry is applied, or, if the turn
//! only read, until a majority has confirmed that this replica still leads. If it no longer leads, waiting
//! connections are closed, since the outcome of their requests is unknown here.
//!
//! Each partition, a range of slots, has a group of its own, with a log in the pool of the partition. Their
//! leaders are spread over the nodes: see [`Group::balance`].
//!
//! A replica recovers its engine from the log of the group; the engine is made
//! durable from time to time, and its own log is written too.

mod entry;
mod machine;
mod members;
mod parcel;
mod peers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU64;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex_core::{Mapped, Pool};
use pmindex_replica::{Error, Proposal, Replica, State as _};
use pmindex_rstore::{Options, Partition};

use crate::keyspace::{Change, Failure, NEVER, Records, Stored, Visit, changes_over};
use crate::shard::{Bounds, MOST_WRITTEN, admit};

pub(crate) use machine::Member;
pub(crate) use members::random;
pub(crate) use parcel::Parcel;
pub(crate) use peers::{MOST_ENTRY, Peers, Waiting};

use machine::Machine;
use members::number_of;

/// The name of the group's log in its pool.
const LOG: &str = "group";
/// The duration of a tick in milliseconds.
pub(crate) const TICK: u64 = 100;
/// The number of ticks of a leader after which it considers another node for the next time.
const BALANCE_TICKS: u64 = 50;
/// The same after attempts that failed, each of which doubles it.
const MOST_PATIENCE: u64 = 100 * BALANCE_TICKS;
/// The number of ticks in which a leader that wants to hand over gets replies for what is under way.
const DRAIN_TICKS: u64 = 10;
/// Requests are refused while more bytes of entries than this wait for a majority.
const MOST_WAITING: usize = 64 << 20;
/// Or more than this share of the pool, because the logs of the members must have room for them.
const WAITING_SHARE: u64 = 16;
/// The share of the pool that the changes of one command or transaction may have.
const CHANGE_SHARE: u64 = 8;
/// The share of its capacity, in percent, up to which a leader fills its engine. Those of the others refuse writes
/// from 95 on: so it does not matter that each collects by itself, and its blocks have other unused ends. Above it, a
/// command may take what it frees: that changes no engine's share.
const FILL: u64 = 90;
/// The same for records of the group: a full group must be able to replace a node.
const FILL_OWN: u64 = 92;
/// The bytes that may be proposed at once, if anything is: Raft's engine refuses more than 256 MiB.
const MOST_PROPOSED: usize = 192 << 20;
/// The number of other groups whose messages are reported, each once.
const MOST_REFUSED: usize = 64;
/// A learner becomes a voter when it is at most this number of entries behind.
const NEAR: u64 = 64;

/// The condition of a reply: an entry that is applied, and a read that is confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gate {
    index: u64,
    read: u64,
}

impl Gate {
    fn is_open(self, now: Self) -> bool {
        self.index <= now.index && self.read <= now.read
    }

    /// Returns the gate that is open when both are.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { index: self.index.max(other.index), read: self.read.max(other.read) }
    }
}

/// The result of a round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// The gate of this turn's replies; `None`: they need not wait.
    pub(crate) gate: Option<Gate>,
    /// The present position.
    now: Gate,
    /// This replica led and no longer does: waiting replies, and those of this turn, are void.
    pub(crate) lost: bool,
    /// This replica leads from now on: what memory holds of the records must be read again.
    pub(crate) began: bool,
    /// What is known of the group, now and then.
    pub(crate) view: Option<View>,
}

/// What a node knows of the group of a partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// The members, with `true` for those that vote.
    pub(crate) members: Vec<(u64, Member, bool)>,
    pub(crate) leader: Option<u64>,
    /// The number of entries by which each member is behind; only the leader knows it.
    pub(crate) behind: Vec<(u64, u64)>,
}

impl View {
    /// Returns the leader's addresses.
    pub(crate) fn leading(&self) -> Option<&Member> {
        let leads = |(id, ..): &&(u64, Member, bool)| Some(*id) == self.leader;
        self.members.iter().find(leads).map(|(_, place, _)| place)
    }
}

impl Round {
    /// Returns `true` if replies that wait at a gate may be sent.
    pub(crate) fn opens(&self, gate: Gate) -> bool {
        gate.is_open(self.now)
    }
}

/// An entry that is proposed and not yet applied.
#[derive(Debug)]
struct Batch {
    number: u64,
    proposal: Proposal,
    keys: Vec<Vec<u8>>,
    bytes: usize,
    /// The bytes that it adds to an engine at most.
    grows: u64,
}

/// The changes that are proposed, or will be with this turn, over the agreed records.
#[derive(Debug, Default)]
struct Pending {
    changes: BTreeMap<Vec<u8>, Change>,
    /// The last batch that changed each key.
    last: BTreeMap<Vec<u8>, u64>,
    /// The batch of a clearing: the records of the engine are hidden from clients.
    cleared: Option<u64>,
    batches: VecDeque<Batch>,
    bytes: usize,
    /// The batch of this turn.
    number: u64,
    entry: Vec<u8>,
    keys: Vec<Vec<u8>>,
    /// The bytes that this turn's entry, and all of them, add to an engine at most.
    grows: u64,
    ahead: u64,
    /// The number of records that these changes add to the agreed ones.
    added: i64,
}

/// What changes add that are admitted.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    /// The bytes that they add to an engine at most.
    grows: u64,
    /// The number of records.
    added: i64,
}

/// A replica of a partition.
pub(crate) struct Group {
    replica: Replica<Mapped, Machine>,
    pending: Pending,
    /// The term in which this replica leads and has applied all earlier entries.
    serves: Option<u64>,
    /// The reads of this turn must be confirmed.
    asks: bool,
    peers: Peers,
    /// Where each member is: what was said last, by a record, by the node itself, or at the start.
    members: BTreeMap<u64, Member>,
    /// Where it is by the records.
    written: BTreeMap<u64, Member>,
    founders: Vec<(u64, Member)>,
    /// The number of the group: agreed on, or given, or of the founders, or heard.
    number: Option<NonZeroU64>,
    /// The numbers of other groups whose messages were refused.
    refused: BTreeSet<NonZeroU64>,
    /// By a clock that never jumps.
    next_tick: Instant,
    ticks: u64,
    /// The number of the partition, and of all.
    partition: (usize, usize),
    /// The node to which leadership goes, and since which tick: new requests are refused.
    handing: Option<(u64, u64)>,
    /// The tick at which another node was considered last, and the ticks until the next time.
    balanced: u64,
    patience: u64,
    /// The last read of this leadership.
    last_read: u64,
    /// The bytes of an entry at most.
    entry_bytes: usize,
    /// The log had no room in the last turn.
    log_full: bool,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("id", &self.replica.id()).finish_non_exhaustive()
    }
}

/// The identity of a node, and the founders of its groups.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) id: u64,
    pub(crate) me: Member,
    /// Empty: the replica joins a group.
    pub(crate) founders: Vec<(u64, Member)>,
    /// The number of the group, if it was given.
    pub(crate) group: Option<NonZeroU64>,
    /// The bytes of an entry at most, [`MOST_ENTRY`] except in tests.
    pub(crate) entry_bytes: usize,
}

impl Group {
    /// Returns the number of the group, if it is known.
    pub(crate) fn number(&self) -> Option<NonZeroU64> {
        self.number
    }

    pub(crate) fn open(
        pool: &Arc<Pool>,
        name: &str,
        options: &Options,
        partition: (usize, usize),
        identity: &Identity,
    ) -> Result<Self, Error> {
        let seed = std::collections::hash_map::RandomState::new();
        let seed = std::hash::BuildHasher::hash_one(&seed, identity.id);
        let peers = Peers::new(identity.id, &identity.me, partition.0, partition.1);
        let founders: Vec<u64> = identity.founders.iter().map(|(id, _)| *id).collect();
        let replica_options =
            pmindex_replica::Options::new(identity.id).seed(seed).entry_bytes(identity.entry_bytes);
        let state = |generation| Machine::open(pool, name, options, generation);
        let replica = Replica::start(pool, LOG, &replica_options, &founders, state)?;
        let mut group = Self {
            replica,
            pending: Pending::default(),
            serves: None,
            asks: false,
            peers,
            members: BTreeMap::new(),
            written: BTreeMap::new(),
            founders: identity.founders.clone(),
            number: None,
            refused: BTreeSet::new(),
            next_tick: Instant::now(),
            ticks: 0,
            partition,
            handing: None,
            balanced: 0,
            patience: BALANCE_TICKS,
            last_read: 0,
            entry_bytes: identity.entry_bytes,
            log_full: false,
        };
        // A group of before there were numbers has entries. Its next leader gives it one.
        let is_old = group.replica.has_entries() || group.replica.state().applied() > 0;
        let is_new = !is_old && !founders.is_empty();
        group.number = identity.group.or_else(|| is_new.then(|| number_of(&identity.founders)));
        group.read_members();
        // They were given now: if all nodes have moved, none would find another one by the records.
        group.members.extend(identity.founders.iter().cloned());
        Ok(group)
    }

    /// Returns the members whose addresses are written down.
    #[cfg(test)]
    pub(crate) fn stored_members(&self) -> Vec<(u64, Member)> {
        self.replica.state().members().expect("sound")
    }

    /// Fetches the records of keys into the caches.
    pub(crate) fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        self.engine().prefetch(keys);
    }

    fn engine(&self) -> &Partition {
        &self.replica.state().engine
    }

    pub(crate) fn stats(&self) -> pmindex_rstore::Stats {
        self.engine().stats()
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        self.engine().pool()
    }

    /// Returns `Ok` if this replica leads; else the leader, for the client.
    pub(crate) fn leads(&self) -> Result<(), Option<&Member>> {
        if self.serves.is_some() {
            return Ok(());
        }
        let leader = self.replica.leader().filter(|&leader| leader != self.replica.id());
        Err(leader.and_then(|leader| self.members.get(&leader)))
    }

    /// Returns `true` if too many entries wait, for a majority or for room, or another node is about to lead.
    pub(crate) fn is_busy(&self) -> bool {
        let most = MOST_WAITING.min((self.pool().max_size() / WAITING_SHARE) as usize);
        self.pending.bytes + self.pending.entry.len() > most
            || self.replica.is_stuck()
            || self.handing.is_some()
            || self.replica.hands_over()
    }

    /// Notes that a command of this turn runs here, so its reply must wait.
    pub(crate) fn note_command(&mut self) {
        self.asks = true;
    }

    /// Returns what is known of the group.
    pub(crate) fn view(&self) -> View {
        let members = self.replica.members();
        let voters = members.voters.iter().map(|id| (*id, true));
        let all = voters.chain(members.learners.iter().map(|id| (*id, false)));
        let place = |id: u64| {
            let known = self.members.get(&id).cloned();
            known.unwrap_or_else(|| Member { peers: "?:0".into(), clients: "?:0".into() })
        };
        let members = all.map(|(id, votes)| (id, place(id), votes)).collect();
        View { members, leader: self.replica.leader(), behind: self.replica.behind() }
    }

    pub(crate) fn id(&self) -> u64 {
        self.replica.id()
    }

    /// Takes a message of another replica, whose addresses are `place`, unless it is of another group: that has nodes
    /// with the same ids, and a message of it would count like one of a member. A replica that knows no number takes
    /// the first one that it hears.
    pub(crate) fn step(
        &mut self,
        from: u64,
        place: Member,
        group: Option<NonZeroU64>,
        bytes: &[u8],
    ) {
        let is_other = |number: &NonZeroU64| self.number.is_some_and(|ours| ours != *number);
        if let Some(number) = group.filter(is_other) {
            if self.refused.len() < MOST_REFUSED && self.refused.insert(number) {
                tracing::error!(
                    partition = self.partition.0,
                    node = from,
                    peers = place.peers,
                    theirs = number,
                    ours = self.number,
                    "a node of another group sends messages to this one: they are refused; does it have an old \
                     address of a node, or --founders or --group that differ?"
                );
            }
            return;
        }
        self.number = self.number.or(group);
        let place = Some(place).filter(|place| !place.is_anywhere());
        self.members.extend(place.map(|place| (from, place)));
        let Some(message) = pmindex_replica::decode(bytes) else { return };
        // It fails if the replica is broken, which was said when it broke.
        let _ = self.replica.step(message);
    }

    /// Sends a message of a channel to the other members; a member that is not reached misses it.
    pub(crate) fn publish(&mut self, channel: &[u8], message: &[u8]) {
        let parcel = Parcel::Channel { channel: channel.to_vec(), message: message.to_vec() };
        let members = self.replica.members();
        for id in members.voters.iter().chain(&members.learners) {
            if let Some(member) = self.members.get(id).filter(|_| *id != self.replica.id()) {
                self.peers.send(*id, member, &parcel);
            }
        }
    }

    /// Adds changes to this turn's entry, all of them or, if they are not admitted, none.
    pub(crate) fn stage(&mut self, changes: &BTreeMap<Vec<u8>, Change>) -> Result<(), Failure> {
        let admitted = self.admit(changes, FILL)?;
        self.push(changes, admitted);
        Ok(())
    }

    /// Refuses changes that an engine might not take, or that cannot be proposed now.
    fn admit(
        &self,
        changes: &BTreeMap<Vec<u8>, Change>,
        percent: u64,
    ) -> Result<Admitted, Failure> {
        let written = MOST_WRITTEN.min((self.pool().max_size() / CHANGE_SHARE) as usize);
        let bounds = Bounds { percent, ahead: self.pending.ahead, written };
        let grows = admit(self.engine(), changes.iter(), bounds, |key| self.bytes_of(key))?;
        self.check_length(changes.iter().map(|(key, change)| entry::length(key, change)).sum())?;
        let mut added = 0;
        for (key, change) in changes.iter().filter(|(key, _)| !machine::is_groups(key)) {
            let was = Records::expiry(self, key, 0)?.is_some();
            added += i64::from(change.is_some()) - i64::from(was);
        }
        Ok(Admitted { grows, added })
    }

    /// Refuses changes of this number of bytes if the turn's entry would be too long with them, or too much would be
    /// proposed: after a proposal that is refused, nothing is known of the requests in it.
    fn check_length(&self, len: usize) -> Result<(), Failure> {
        let (entry, waiting) = (self.pending.entry.len(), self.pending.bytes);
        if len > self.entry_bytes {
            let most = self.entry_bytes;
            let what = format!("a change of {len} bytes is too large; the limit is {most}");
            return Err(Failure::TooLong(what));
        }
        let too_much = entry + waiting > 0 && entry + waiting + len > MOST_PROPOSED;
        if entry + len > self.entry_bytes || too_much {
            return Err(Failure::Busy);
        }
        Ok(())
    }

    /// Returns the bytes that the record of a key takes, with the pending changes.
    fn bytes_of(&self, key: &[u8]) -> Result<u64, pmindex_rstore::Error> {
        match self.pending.changes.get(key) {
            Some(Some(Stored { value, expires })) => {
                Ok(self.engine().bytes_for(key.len(), value.len(), *expires != NEVER))
            }
            Some(None) => Ok(0),
            None if self.pending.cleared.is_some() => Ok(0),
            None => self.engine().bytes_of(key),
        }
    }

    /// Adds changes that are admitted to this turn's entry.
    fn push(&mut self, changes: &BTreeMap<Vec<u8>, Change>, Admitted { grows, added }: Admitted) {
        let pending = &mut self.pending;
        pending.added += added;
        pending.grows += grows;
        pending.ahead += grows;
        for (key, change) in changes {
            entry::push(&mut pending.entry, key, change);
            pending.keys.push(key.clone());
            pending.last.insert(key.clone(), pending.number);
            pending.changes.insert(key.clone(), change.clone());
        }
    }

    /// Removes every record of clients, in this turn's entry.
    pub(crate) fn clear(&mut self) {
        let pending = &mut self.pending;
        entry::push_clear(&mut pending.entry);
        pending.changes.clear();
        pending.last.clear();
        pending.cleared = Some(pending.number);
        self.set_len(0);
    }

    /// Returns the number of agreed records of clients.
    fn agreed(&self) -> u64 {
        let state = self.replica.state();
        state.engine.len().saturating_sub(state.kept())
    }

    fn set_len(&mut self, len: u64) {
        self.pending.added = len.cast_signed() - self.agreed().cast_signed();
    }

    /// Ends a turn after a failure of the replica: it takes no further part, and knows no leader.
    pub(crate) fn ended(&mut self) -> Round {
        (self.serves, self.asks, self.handing) = (None, false, None);
        self.pending = Pending::default();
        let view = View { leader: None, ..self.view() };
        Round { view: Some(view), ..Round::default() }
    }

    /// Ends a turn: proposes its writes, sends messages and applies agreed entries.
    ///
    /// # Errors
    /// The replica is broken and stops.
    pub(crate) fn round(&mut self) -> Result<Round, Error> {
        let mut round = Round::default();
        let now = Instant::now();
        let ticks = now >= self.next_tick;
        if ticks {
            self.next_tick = now + Duration::from_millis(TICK);
            self.ticks += 1;
            self.replica.tick();
        }
        let asks = std::mem::take(&mut self.asks);
        if self.serves.is_some() {
            round.gate = self.propose(asks);
        }
        let len = Records::len(&*self);
        let turn = self.replica.turn()?;
        self.say_if_full();
        round.now = Gate { index: turn.applied, read: turn.read };
        for message in &turn.messages {
            let to = message.to;
            if let Some(member) = self.members.get(&to) {
                let (group, message) = (self.number, pmindex_replica::encode(message));
                let parcel = Parcel::Raft { group, message };
                self.peers.send(to, member, &parcel);
            }
        }
        if ticks {
            self.replica.state_mut().remove_remains(now).map_err(Error::State)?;
        }
        if ticks || turn.restored {
            self.read_members(); // few records
        }
        match self.serves {
            Some(term) if turn.leads && turn.term == term => {
                self.forget_applied(turn.applied);
                self.set_len(len);
                if ticks {
                    self.promote();
                }
                self.balance(round.now, ticks);
            }
            Some(_) => {
                tracing::warn!(
                    node = self.replica.id(),
                    leader = turn.leader,
                    "does not lead any more"
                );
                (self.serves, round.lost) = (None, true);
                self.handing = None;
                self.pending = Pending::default();
            }
            None if turn.serves => {
                tracing::info!(node = self.replica.id(), term = turn.term, "leads");
                (self.serves, round.began) = (Some(turn.term), true);
                (self.balanced, self.last_read) = (self.ticks, 0);
                self.patience = BALANCE_TICKS;
                self.pending = Pending::default();
                self.introduce_number();
                self.introduce_founders();
            }
            None => {}
        }
        if ticks || round.lost || round.began {
            round.view = Some(self.view());
        }
        Ok(round)
    }

    /// Says it when the log has no room, and when it has some again.
    fn say_if_full(&mut self) {
        let (partition, is_full) = (self.partition.0, self.replica.is_log_full());
        if is_full && !self.log_full {
            tracing::error!(
                partition,
                "there is no room for the group's log: this replica takes no part until there is; make room on its \
                 disk"
            );
        } else if !is_full && self.log_full {
            tracing::info!(
                partition,
                "there is room for the group's log again: this replica goes on"
            );
        }
        self.log_full = is_full;
    }

    /// Returns `true` if this replica waits for room: for its log, or for an entry that is agreed on.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.replica.is_log_full() || self.replica.is_stuck()
    }

    /// Hands leadership over, now and then, so that the leaders of the partitions are spread over the nodes:
    /// each partition has a voter that should lead. That voter must answer and have all entries. New requests
    /// are refused from the decision on, and leadership goes when no reply waits any more.
    fn balance(&mut self, now: Gate, ticks: bool) {
        let (partition, partitions) = self.partition;
        if let Some((to, since)) = self.handing {
            let is_idle = self.pending.batches.is_empty()
                && self.pending.entry.is_empty()
                && now.read >= self.last_read;
            if is_idle && self.replica.is_current(to) {
                tracing::info!(partition, to, "hands leadership over");
                self.replica.hand_over(to);
                self.handing = None;
            } else if self.ticks > since + DRAIN_TICKS {
                self.handing = None;
            }
            return;
        }
        if partitions == 1 || !ticks || self.ticks < self.balanced + self.patience {
            return;
        }
        let voters = self.replica.members().voters;
        let Some(&to) = voters.get(partition % voters.len().max(1)) else { return };
        // Every second Raft's engine forgets who has answered; then a later tick finds it.
        if to != self.replica.id() && self.replica.is_current(to) {
            (self.handing, self.balanced) = (Some((to, self.ticks)), self.ticks);
            // A node without room for the records does not take leadership.
            self.patience = (2 * self.patience).min(MOST_PATIENCE);
        }
    }

    /// Proposes the turn's entry; returns the gate of its replies.
    fn propose(&mut self, asks: bool) -> Option<Gate> {
        let pending = &mut self.pending;
        if pending.entry.is_empty() {
            // The reads of the turn may have seen entries that are proposed and not yet agreed on.
            let index = pending.batches.back().map_or(0, |batch| batch.proposal.index);
            let read = if asks { self.replica.read() } else { Ok(0) };
            self.last_read = read.as_ref().map_or(self.last_read, |read| self.last_read.max(*read));
            let read = read.unwrap_or(u64::MAX);
            return asks.then_some(Gate { index, read });
        }
        let entry = std::mem::take(&mut pending.entry);
        let (keys, bytes) = (std::mem::take(&mut pending.keys), entry.len());
        let (number, grows) = (pending.number, std::mem::take(&mut pending.grows));
        pending.number += 1;
        match self.replica.propose(entry) {
            Ok(proposal) => {
                pending.bytes += bytes;
                pending.batches.push_back(Batch { number, proposal, keys, bytes, grows });
                Some(Gate { index: proposal.index, read: 0 })
            }
            Err(error) => {
                // It no longer leads, which the turn will report, or too many entries wait. The replies must
                // not show these writes.
                tracing::warn!(%error, "an entry was not proposed");
                self.serves = Some(u64::MAX);
                None
            }
        }
    }

    /// Drops applied entries from the pending ones.
    fn forget_applied(&mut self, applied: u64) {
        let pending = &mut self.pending;
        while pending.batches.front().is_some_and(|batch| batch.proposal.index <= applied)
            && let Some(batch) = pending.batches.pop_front()
        {
            pending.bytes -= batch.bytes;
            pending.ahead -= batch.grows;
            for key in &batch.keys {
                if pending.last.get(key) == Some(&batch.number) {
                    pending.last.remove(key);
                    pending.changes.remove(key);
                }
            }
            if pending.cleared == Some(batch.number) {
                pending.cleared = None;
            }
        }
    }

    /// Collects space, as each replica does by itself. The leader proposes the removal of expired records, except
    /// those with pending changes: so a replica whose clock is ahead removes nothing.
    pub(crate) fn upkeep(&mut self, now: u64) -> Result<bool, Failure> {
        let idle = self.pending.batches.is_empty() && self.pending.entry.is_empty();
        let removes = self.pending.cleared.is_none() && self.serves.is_some() && !self.is_busy();
        let engine = &mut self.replica.state_mut().engine;
        let failed = |error: pmindex_rstore::Error| Failure::Broken(error.to_string());
        let expired = if removes { engine.expired(now).map_err(failed)? } else { Vec::new() };
        let collected = engine.collect(pmindex_rstore::Budget::default()).map_err(failed)?;
        if collected.copied > 0 {
            match engine.commit() {
                // What is staged waits for the next commit.
                Err(error) if error.is_full() => return Ok(false),
                other => other.map_err(failed)?,
            }
        }
        if idle {
            self.pending.added = 0;
        }
        let is_left = |key: &Vec<u8>| !self.pending.changes.contains_key(key);
        let expired: Vec<_> = expired.into_iter().filter(is_left).collect();
        let more = !expired.is_empty() || !collected.done;
        self.stage(&expired.into_iter().map(|key| (key, None)).collect())?;
        Ok(more)
    }

    /// Hands leadership over before this replica ends, if it leads; returns `true` if it tries.
    pub(crate) fn hand_over(&mut self) -> bool {
        let next = self.next_leader();
        if let Some(next) = next {
            self.replica.hand_over(next);
        }
        next.is_some()
    }

    /// Hands leadership over when no reply waits any more, if this replica leads; returns `true` if it tries. New
    /// requests are refused until then.
    pub(crate) fn give_away(&mut self) -> bool {
        let next = self.next_leader();
        if let Some(next) = next {
            self.handing.get_or_insert((next, self.ticks));
        }
        next.is_some()
    }

    /// Returns the voter that can lead best in place of this leader.
    fn next_leader(&self) -> Option<u64> {
        let others = self.replica.behind();
        let voters = self.replica.members().voters;
        let id = self.replica.id();
        let next = others.iter().filter(|(other, _)| *other != id && voters.contains(other));
        // A voter that does not answer cannot take over, even if it has all entries.
        let worst = |(other, behind): &&(u64, u64)| (!self.replica.is_current(*other), *behind);
        next.min_by_key(worst).map(|(next, _)| *next).filter(|_| self.replica.leads())
    }

    /// Ends cleanly.
    pub(crate) fn close(self) -> Result<Partition, Error> {
        Ok(self.replica.close()?.engine)
    }
}

/// The agreed records with the pending changes over them.
impl Records for Group {
    fn get_into(&self, key: &[u8], now: u64, out: &mut Vec<u8>) -> Result<bool, Failure> {
        match self.pending.changes.get(key) {
            Some(change) => {
                let found = change.as_ref().filter(|stored| stored.alive(now));
                if let Some(stored) = found {
                    out.extend_from_slice(&stored.value);
                }
                Ok(found.is_some())
            }
            None if self.pending.cleared.is_some() => Ok(false),
            None => Records::get_into(self.engine(), key, now, out),
        }
    }

    fn expiry(&self, key: &[u8], now: u64) -> Result<Option<u64>, Failure> {
        match self.pending.changes.get(key) {
            Some(change) => {
                let found = change.as_ref().filter(|stored| stored.alive(now));
                Ok(found.map(|stored| stored.expires))
            }
            None if self.pending.cleared.is_some() => Ok(None),
            None => Records::expiry(self.engine(), key, now),
        }
    }

    fn scan(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        now: u64,
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        let nothing = self.pending.cleared.is_some();
        let base: Option<&dyn Records> = if nothing { None } else { Some(self.engine()) };
        changes_over(base, &self.pending.changes, range, now, reverse, visit)
    }

    fn len(&self) -> u64 {
        self.agreed().saturating_add_signed(self.pending.added)
    }
}
