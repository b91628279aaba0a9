//! The group, its network and its clients, driven by random numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pmindex_core::{Pool, PoolOptions, Traced};
use pmindex_testkit::crash::{Rng, create_pool, open_pool};
use pmindex_testkit::history::{Call, Event, History, Outcome};

use super::disk::Disk;
use super::records::{Records, Write};
use crate::wrong::Wrong;
use crate::{Change, Message, Options, Proposal, Replica, Turn};

/// The number of keys of clients: small, so that calls conflict.
const KEYS: usize = 3;
const LOG: &str = "log";
/// A piece of a snapshot is less than a record, so that each one has many.
pub(super) const PIECE: usize = 6;

/// The frequencies of events in a run: each occurs once in this number of steps; 0: never.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) steps: u64,
    pub(super) crash: usize,
    pub(super) partition: usize,
    pub(super) change: usize,
    /// A replica loses its pool.
    pub(super) lose: usize,
    /// The leader hands over.
    pub(super) hand_over: usize,
    /// A replica has no room for a while.
    pub(super) full: usize,
    /// Its log has none.
    pub(super) full_log: usize,
    /// Its state has none to be made durable.
    pub(super) full_state: usize,
    /// One in this number of messages is lost.
    pub(super) drop: usize,
    /// The maximum padding of an entry.
    pub(super) padding: usize,
    /// The bytes of the log that are kept.
    pub(super) log_bytes: usize,
    /// The bytes of a zone of the pool: an entry that is longer has several records in the log.
    pub(super) zone_bytes: u64,
}

/// The events of a run, so that a test can show that it has seen enough.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) answered: u64,
    pub(super) unknown: u64,
    pub(super) crashes: u64,
    pub(super) leaders: u64,
    pub(super) restored: u64,
    pub(super) changes: u64,
    pub(super) lost: u64,
    pub(super) cuts: u64,
    pub(super) handed: u64,
    /// The entries that waited for room, each time that they were tried.
    pub(super) refused: u64,
    /// The attempts to make a state durable for which there was no room.
    pub(super) postponed: u64,
    /// The turns of replicas whose logs had no room, and the times that one went on after them.
    pub(super) silent: u64,
    pub(super) resumed: u64,
    /// The turns in which a replica received a piece of a snapshot, and the crashes then.
    pub(super) pieces: u64,
    pub(super) interrupted: u64,
    /// The processes that were started again.
    pub(super) restarts: u64,
    /// The maximum bytes of snapshots in the memory of a replica.
    pub(super) held: usize,
}

/// A call that has no answer yet.
struct Waiting {
    event: usize,
    what: What,
    term: u64,
}

enum What {
    Write(Proposal),
    Read(u64, u64),
}

type Node = Replica<Traced, Records>;

struct Process {
    disk: Disk,
    replica: Option<Node>,
    /// The calls at this replica.
    waiting: Vec<Waiting>,
    term: u64,
    /// `true` if it is not started again.
    gone: bool,
}

impl Process {
    fn leads(&self) -> bool {
        self.replica.as_ref().is_some_and(Replica::leads)
    }
}

pub(super) struct Group {
    random: Rng,
    plan: Plan,
    wrong: Option<Wrong>,
    processes: BTreeMap<u64, Process>,
    /// The replicas that founded the group.
    founders: Vec<u64>,
    next_id: u64,
    next_tag: u64,
    now: u64,
    network: Vec<(u64, Vec<u8>)>,
    /// The pairs of replicas between which messages are lost.
    cut: BTreeSet<(u64, u64)>,
    events: Vec<Event>,
    terms: BTreeMap<u64, u64>,
    /// The voters at each index that a replica has applied.
    voters: BTreeMap<u64, Vec<u64>>,
    pub(super) seen: Seen,
}

/// The usual bytes of a zone: more than an entry.
pub(super) const ZONE: u64 = 64 << 10;

pub(super) fn pool_options(zone_bytes: u64) -> PoolOptions {
    PoolOptions::new().size(512 << 10).zone_bytes(zone_bytes).slots(2).slot_bytes(512)
}

pub(super) fn bytes(options: &PoolOptions) -> usize {
    options.created_size().map_or(0, |bytes| bytes as usize)
}

impl Group {
    pub(super) fn new(seed: u64, plan: Plan, wrong: Option<Wrong>) -> Self {
        let founders = vec![1, 2, 3];
        let mut group = Self {
            random: Rng::new(seed),
            plan,
            wrong,
            processes: BTreeMap::new(),
            founders: founders.clone(),
            next_id: 4,
            next_tag: 1,
            now: 0,
            network: Vec::new(),
            cut: BTreeSet::new(),
            events: Vec::new(),
            terms: BTreeMap::new(),
            voters: BTreeMap::new(),
            seen: Seen::default(),
        };
        for id in founders {
            group.make(id);
        }
        group
    }

    /// Starts a process with a pool of its own.
    fn make(&mut self, id: u64) {
        let options = pool_options(self.plan.zone_bytes);
        let mut disk = Disk::new(bytes(&options));
        drop(create_pool(&disk.space, &options).expect("room"));
        disk.follow();
        let process = Process { disk, replica: None, waiting: Vec::new(), term: 0, gone: false };
        self.processes.insert(id, process);
        self.start(id);
    }

    fn start(&mut self, id: u64) {
        let founders: &[u64] = if self.founders.contains(&id) { &self.founders } else { &[] };
        let mut options = Options::new(id).seed(self.random.next_u64()).ticks(2, 10);
        options = options.log_bytes(self.plan.log_bytes).piece_bytes(PIECE);
        if let Some(wrong) = self.wrong {
            options = options.go_wrong(wrong);
        }
        let Some(process) = self.processes.get_mut(&id) else { return };
        let pool_options = pool_options(self.plan.zone_bytes);
        let pool: Arc<Pool<Traced>> =
            open_pool(&process.disk.space, &pool_options).expect("sound").expect("a pool");
        let state = |generation| Records::open(&pool, generation);
        let replica = Replica::start(&pool, LOG, &options, founders, state);
        process.replica = Some(replica.unwrap_or_else(|error| panic!("replica {id}: {error}")));
        process.disk.follow();
        self.compare_members(id);
    }

    /// Checks that the configuration of a replica is that of the others when they had applied the same index.
    fn compare_members(&mut self, id: u64) {
        let replica = self.processes.get(&id).and_then(|process| process.replica.as_ref());
        let Some((applied, mut voters)) = replica.map(Replica::configuration) else { return };
        voters.sort_unstable();
        let known = self.voters.entry(applied).or_insert_with(|| voters.clone());
        assert_eq!(*known, voters, "the voters of replica {id} at {applied}");
    }

    /// Kills a process at any store since its last turn.
    fn crash(&mut self, id: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(replica) = process.replica.take() else { return };
        let trace = process.disk.space.take_trace();
        drop(replica);
        process.disk.crash(&trace, &mut self.random);
        for waiting in process.waiting.drain(..) {
            self.seen.unknown += 1;
            self.events[waiting.event].end = u64::MAX;
        }
        self.seen.crashes += 1;
    }

    /// Runs a turn of a replica, and sometimes crashes it meanwhile.
    fn turn(&mut self, id: u64) {
        let mut dies = self.plan.crash > 0 && self.random.one_in(self.plan.crash);
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(replica) = &mut process.replica else { return };
        let (base, received) = (replica.base(), replica.received());
        let was_full = replica.is_log_full();
        let turn = replica.turn().unwrap_or_else(|error| panic!("replica {id}: {error}"));
        self.seen.cuts += u64::from(replica.base() != base);
        self.seen.silent += u64::from(replica.is_log_full());
        self.seen.resumed += u64::from(was_full && !replica.is_log_full());
        // While a snapshot becomes the state, or the log is cut, a crash can interrupt many steps.
        let often = if turn.restored { 2 } else { 8 };
        let steps = turn.restored || replica.base() != base;
        dies |= self.plan.crash > 0 && steps && self.random.one_in(often);
        self.seen.held = self.seen.held.max(replica.transfer_bytes());
        if replica.is_receiving() && replica.received() != received {
            self.seen.pieces += 1;
            dies |= self.plan.crash > 0 && self.random.one_in(20);
            self.seen.interrupted += u64::from(dies);
        }
        if dies {
            self.crash(id);
            return;
        }
        process.disk.follow();
        for message in &turn.messages {
            self.send(message);
        }
        self.answer(id, &turn);
        self.compare_members(id);
    }

    fn send(&mut self, message: &Message) {
        let copies = 1 + usize::from(self.random.one_in(20));
        for _ in 0..copies {
            if self.plan.drop > 0 && self.random.one_in(self.plan.drop) {
                continue;
            }
            let late = if self.random.one_in(20) { 400 } else { 12 };
            let at = self.now + 1 + self.random.below(late) as u64;
            self.network.push((at, crate::encode(message)));
        }
    }

    /// Answers calls whose entries are committed.
    fn answer(&mut self, id: u64, turn: &Turn) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(replica) = &mut process.replica else { return };
        self.seen.restored += u64::from(turn.restored);
        if turn.leads && process.term != turn.term {
            let other = *self.terms.entry(turn.term).or_insert(id);
            assert_eq!(other, id, "two leaders of term {}", turn.term);
            self.seen.leaders += 1;
            process.term = turn.term;
        }
        self.seen.refused += std::mem::take(&mut replica.state_mut().waited);
        self.seen.postponed += std::mem::take(&mut replica.state_mut().postponed);
        let before = std::mem::take(&mut replica.state_mut().last);
        for waiting in std::mem::take(&mut process.waiting) {
            let event = &mut self.events[waiting.event];
            if !turn.leads || turn.term != waiting.term {
                self.seen.unknown += 1;
                continue;
            }
            let outcome = match waiting.what {
                What::Write(proposal) if proposal.index <= turn.applied => {
                    let was = before.iter().find(|(index, _)| *index == proposal.index);
                    was.map(|(_, before)| *before)
                }
                What::Read(number, key) if number <= turn.read => Some(replica.state().get(key)),
                _ => {
                    process.waiting.push(waiting);
                    continue;
                }
            };
            let Some(outcome) = outcome else { panic!("an entry was not applied by its leader") };
            event.outcome = Some(Outcome::Value(outcome));
            event.end = self.now;
            self.seen.answered += 1;
        }
    }

    fn any(&mut self) -> u64 {
        let at = self.random.below(self.processes.len());
        self.processes.keys().copied().nth(at).unwrap_or(1)
    }

    /// Makes a client call a replica that considers itself the leader.
    fn call(&mut self) {
        let leaders: Vec<u64> =
            self.processes.iter().filter(|(_, p)| p.leads()).map(|(&id, _)| id).collect();
        if leaders.is_empty() {
            return;
        }
        let id = leaders[self.random.below(leaders.len())];
        let key = self.random.below(KEYS) as u64;
        let tag = self.next_tag;
        self.next_tag += 1;
        let reads = self.random.one_in(2);
        let call = match self.random.below(8) {
            _ if reads => Call::Get,
            0 => Call::Remove,
            _ => Call::Insert(tag),
        };
        let padding = self.random.below(self.plan.padding + 1) as u64;
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(replica) = &mut process.replica else { return };
        if process.waiting.len() >= 3 {
            return;
        }
        let what = match call {
            Call::Get => replica.read().map(|number| What::Read(number, key)),
            call => {
                let tag = if let Call::Insert(tag) = call { Some(tag) } else { None };
                replica.propose(Write { key, tag, padding }.encode()).map(What::Write)
            }
        };
        let Ok(what) = what else { return };
        let term = match &what {
            What::Write(proposal) => proposal.term,
            What::Read(..) => process.term,
        };
        let (thread, start) = (id as u32, self.now);
        let event = Event { thread, key, call, outcome: None, start, end: u64::MAX };
        process.waiting.push(Waiting { event: self.events.len(), what, term });
        self.events.push(event);
    }

    /// Adds or removes a member.
    fn change(&mut self) {
        let leader = self.processes.iter().find(|(_, process)| process.leads());
        let Some((&leader, process)) = leader else { return };
        let members = process.replica.as_ref().map(Replica::members);
        let members = members.unwrap_or_default();
        let gone: Vec<u64> = members
            .voters
            .iter()
            .chain(&members.learners)
            .copied()
            .filter(|id| self.processes.get(id).is_none_or(|process| process.gone))
            .collect();
        let change = if let Some(&id) = gone.first() {
            Change::Remove(id)
        } else if let Some(&id) = members.learners.first() {
            Change::Voter(id)
        } else if members.voters.len() < 4 {
            let id = self.next_id;
            self.next_id += 1;
            self.make(id);
            Change::Learner(id)
        } else if let Some(&id) = members.voters.iter().find(|&&id| id != leader) {
            Change::Remove(id)
        } else {
            return;
        };
        let replica = self.processes.get_mut(&leader).and_then(|leader| leader.replica.as_mut());
        if replica.is_some_and(|replica| replica.change(change).is_ok()) {
            self.seen.changes += 1;
        }
    }

    /// Makes a replica lose its pool for good, if enough others remain.
    fn lose(&mut self) {
        let running = |process: &&Process| process.replica.is_some() && !process.gone;
        let lost = self.processes.values().any(|process| process.gone);
        if lost || self.processes.values().filter(running).count() < 3 {
            return;
        }
        let id = self.any();
        self.crash(id);
        if let Some(process) = self.processes.get_mut(&id) {
            process.gone = true;
            self.seen.lost += 1;
        }
    }

    /// Makes a leader hand over to any replica, also while calls wait.
    fn hand_over(&mut self) {
        let to = self.any();
        let leader = self.processes.iter_mut().find(|(id, process)| **id != to && process.leads());
        let Some((_, Process { replica: Some(replica), .. })) = leader else { return };
        if replica.is_current(to) {
            replica.hand_over(to);
            self.seen.handed += 1;
        }
    }

    /// Makes a replica have no room, until it has tried some times.
    fn fill(&mut self) {
        let id = self.any();
        let tries = 1 + self.random.below(30) as u64;
        let process = self.processes.get_mut(&id);
        if let Some(replica) = process.and_then(|process| process.replica.as_mut()) {
            replica.state_mut().refuses = tries;
        }
    }

    /// Makes the log of a replica have no room, until it has tried some times.
    fn fill_log(&mut self) {
        let id = self.any();
        let tries = 1 + self.random.below(10) as u64;
        let process = self.processes.get_mut(&id);
        if let Some(replica) = process.and_then(|process| process.replica.as_mut()) {
            replica.refuse_commits(tries);
        }
    }

    /// Makes the state of a replica have no room to be made durable, until it has tried some times.
    fn fill_state(&mut self) {
        let id = self.any();
        let tries = 1 + self.random.below(10) as u64;
        let process = self.processes.get_mut(&id);
        if let Some(replica) = process.and_then(|process| process.replica.as_mut()) {
            replica.state_mut().undurable = tries;
        }
    }

    fn deliver(&mut self) {
        let due: Vec<usize> =
            (0..self.network.len()).filter(|&at| self.network[at].0 <= self.now).collect();
        if due.is_empty() {
            return;
        }
        let (_, bytes) = self.network.swap_remove(due[self.random.below(due.len())]);
        let message = crate::decode(&bytes).expect("a message");
        let id = message.to;
        if self.cut.contains(&(message.from, id)) {
            return;
        }
        if let Some(replica) = self.processes.get_mut(&id).and_then(|p| p.replica.as_mut()) {
            replica.step(message).expect("not broken");
            if !self.random.one_in(4) {
                self.turn(id);
            }
        }
    }

    /// Performs one random event.
    fn step(&mut self) {
        self.now += 1;
        let happens = |one_in: usize, random: &mut Rng| one_in > 0 && random.one_in(one_in);
        if happens(self.plan.partition, &mut self.random) {
            self.cut.clear();
            if self.random.one_in(2) {
                let (mut a, b) = (self.any(), self.any());
                let leader = self.processes.iter().find(|(_, p)| p.leads()).map(|(&id, _)| id);
                if self.random.one_in(2) {
                    a = leader.unwrap_or(a);
                }
                let others: Vec<u64> = self.processes.keys().copied().collect();
                match self.random.below(3) {
                    // One replica is isolated; or one direction, or both directions, between two are cut.
                    0 => self.cut.extend(others.iter().flat_map(|&o| [(a, o), (o, a)])),
                    1 => self.cut.extend([(a, b)]),
                    _ => self.cut.extend([(a, b), (b, a)]),
                }
            }
        }
        if happens(self.plan.change, &mut self.random) {
            self.change();
        }
        if happens(self.plan.lose, &mut self.random) {
            self.lose();
        }
        if happens(self.plan.hand_over, &mut self.random) {
            self.hand_over();
        }
        if happens(self.plan.full, &mut self.random) {
            self.fill();
        }
        if happens(self.plan.full_log, &mut self.random) {
            self.fill_log();
        }
        if happens(self.plan.full_state, &mut self.random) {
            self.fill_state();
        }
        match self.random.below(10) {
            0 | 1 => {
                let id = self.any();
                let process = self.processes.get_mut(&id);
                if let Some(replica) = process.and_then(|process| process.replica.as_mut()) {
                    replica.tick();
                    self.turn(id);
                }
            }
            2 => self.call(),
            3 => {
                let id = self.any();
                let down = |p: &Process| p.replica.is_none() && !p.gone;
                if self.processes.get(&id).is_some_and(down) && self.random.one_in(4) {
                    self.start(id);
                    self.seen.restarts += 1;
                } else {
                    self.turn(id);
                }
            }
            _ => self.deliver(),
        }
    }

    /// Runs the events, repairs everything, and checks that the clients' calls are linearizable.
    pub(super) fn run(mut self) -> Result<Seen, String> {
        for _ in 0..self.plan.steps {
            self.step();
        }
        // From now on nothing fails: the group must find a leader, and agree.
        (self.plan.crash, self.plan.partition, self.plan.drop) = (0, 0, 0);
        (self.plan.change, self.plan.lose, self.plan.hand_over) = (0, 0, 0);
        (self.plan.full, self.plan.full_log, self.plan.full_state) = (0, 0, 0);
        self.cut.clear();
        let answered = self.seen.answered;
        for round in 0.. {
            for _ in 0..2_000 {
                self.step();
            }
            if self.seen.answered > answered + 10 {
                break;
            }
            if round == 20 {
                return Err(format!("no leader answers: {:?}", self.seen));
            }
        }
        let mut history = History::new(BTreeMap::new());
        history.add(self.events.iter().copied());
        history.check().map_err(|violation| violation.to_string())?;
        Ok(self.seen)
    }
}
