//! Snapshots of a partition's records between replicas, on one thread: with data much larger than a piece,
//! while the leader goes on, and with a kill on either side.

use std::collections::{BTreeMap, VecDeque};
use std::net::TcpListener;
use std::num::NonZeroU64;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use pmindex_core::{Mapped, Medium, Pool};
use pmindex_replica::{Change, Message, Replica, State as _};
use pmindex_rstore::{Options, Partition};

use super::entry::{push, push_clear, push_put};
use super::machine::{Machine, is_full, is_groups, member_key};
use super::peers::AROUND;
use super::{Identity, Member, NEVER, Parcel, Peers, Stored, TICK};

const PIECE: usize = 16 << 10;
/// The longest value; it does not fit into a piece.
const LONG: usize = 200 << 10;
/// The number of keys, each with a value of about 1 KiB.
const KEYS: usize = 3000;
/// The bytes of a message in addition to those of its piece.
const OVERHEAD: usize = 256;

type Node = Replica<Mapped, Machine>;

/// A group without a network: messages arrive at once.
struct Group {
    pools: BTreeMap<u64, Arc<Pool>>,
    nodes: BTreeMap<u64, Node>,
    capacity: BTreeMap<u64, u64>,
    written: u64,
    /// The pieces that were sent, the longest message with one, and the most bytes in memory.
    pieces: usize,
    longest: usize,
    held: usize,
    /// The writes that were applied by the leader while a snapshot was on its way.
    meanwhile: u64,
}

impl Group {
    fn new() -> Self {
        let (pools, nodes, capacity) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (pieces, longest, held, meanwhile) = (0, 0, 0, 0);
        let mut group =
            Self { pools, nodes, capacity, written: 0, pieces, longest, held, meanwhile };
        (1..=3).for_each(|id| group.start(id));
        group.until(|group| group.leader().is_some());
        let long = vec![b'l'; LONG];
        group.put(b"long", &long);
        for key in 0..KEYS {
            group.write(key);
            if key % 50 == 0 {
                group.round();
            }
        }
        group.until(Self::is_even);
        group
    }

    /// Starts a node, on its pool if it has one.
    fn start(&mut self, id: u64) {
        let made = || Arc::new(Pool::volatile(64 << 20).expect("memory"));
        let pool = self.pools.entry(id).or_insert_with(made);
        let founders: &[u64] = if id <= 3 { &[1, 2, 3] } else { &[] };
        let options = pmindex_replica::Options::new(id).seed(id).log_bytes(128 << 10);
        let capacity = self.capacity.get(&id).copied().unwrap_or(24 << 20);
        let engine = Options::new().capacity(capacity).raise_capacity(capacity);
        let state = |generation| Machine::open(pool, "records", &engine, generation);
        let node = Replica::start(pool, "log", &options.piece_bytes(PIECE), founders, state);
        self.nodes.insert(id, node.expect("it starts"));
    }

    /// Ends a node as a kill does: nothing is closed.
    fn kill(&mut self, id: u64) {
        drop(self.nodes.remove(&id));
    }

    fn leader(&self) -> Option<u64> {
        self.nodes.iter().find(|(_, node)| node.leads()).map(|(id, _)| *id)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        let mut entry = Vec::new();
        push_put(&mut entry, key, value, None);
        if let Some(leader) = self.leader().and_then(|id| self.nodes.get_mut(&id)) {
            drop(leader.propose(entry));
        }
    }

    fn write(&mut self, key: usize) {
        self.written += 1;
        let value = format!("{key}:{}:{}", self.written, "v".repeat(1000));
        self.put(format!("key {key:06}").as_bytes(), value.as_bytes());
    }

    fn is_receiving(&self) -> bool {
        self.nodes.values().any(Replica::is_receiving)
    }

    /// Ticks, and delivers messages until there are none, or `many` were delivered.
    fn steps(&mut self, many: usize) {
        self.nodes.values_mut().for_each(Replica::tick);
        let mut network: VecDeque<Message> = VecDeque::new();
        let ids: Vec<u64> = self.nodes.keys().copied().collect();
        for id in ids {
            self.turn(id, &mut network);
        }
        for _ in 0..many {
            let Some(message) = network.pop_front() else { return };
            let to = message.to;
            if let Some(node) = self.nodes.get_mut(&to) {
                node.step(message).expect("not broken");
                self.turn(to, &mut network);
            }
        }
    }

    fn round(&mut self) {
        self.steps(200);
    }

    fn turn(&mut self, id: u64, network: &mut VecDeque<Message>) {
        let is_receiving = self.is_receiving();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        self.held = self.held.max(node.transfer_bytes());
        let before = node.state().engine.lsn();
        let turn = node.turn().unwrap_or_else(|error| panic!("node {id}: {error}"));
        self.held = self.held.max(node.transfer_bytes());
        if is_receiving && node.leads() {
            self.meanwhile += node.state().engine.lsn() - before;
        }
        for message in &turn.messages {
            if let [entry] = message.get_entries() {
                let message = pmindex_replica::encode(message);
                let parcel = Parcel::Raft { group: None, message }.encode();
                assert!(parcel.len() <= entry.data.len() + AROUND as usize, "{}", parcel.len());
            }
            let is_piece = !message.get_snapshot().data.is_empty();
            self.pieces += usize::from(is_piece);
            if is_piece {
                self.longest = self.longest.max(pmindex_replica::encode(message).len());
            }
        }
        network.extend(turn.messages);
    }

    /// Runs rounds, in which the leader writes, until this is so.
    #[track_caller]
    fn until(&mut self, is_so: impl Fn(&Self) -> bool) {
        for round in 0..5000 {
            if is_so(self) {
                return;
            }
            if self.is_receiving() {
                self.write(round * 7 % KEYS);
            }
            self.round();
        }
        panic!("it is not so after 5000 rounds: {} pieces", self.pieces);
    }

    /// Returns `true` if all nodes have all entries of the leader, and none gets a snapshot.
    fn is_even(&self) -> bool {
        let Some(leader) = self.leader().and_then(|id| self.nodes.get(&id)) else { return false };
        let members = leader.members();
        let all = members.voters.iter().chain(&members.learners);
        let even = leader.behind().iter().all(|(_, behind)| *behind == 0);
        let present = all.into_iter().all(|id| self.nodes.contains_key(id));
        even && present && !self.is_receiving()
    }

    fn records(&self, id: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut all = BTreeMap::new();
        let visit = &mut |key: &[u8], value: &[u8]| {
            if !is_groups(key) {
                all.insert(key.to_vec(), value.to_vec());
            }
            ControlFlow::Continue(())
        };
        let engine = &self.nodes[&id].state().engine;
        engine.scan(Bound::Unbounded, Bound::Unbounded, 0, false, visit).expect("sound");
        all
    }

    /// Replaces node 3 by node 4, which begins to get a snapshot.
    fn lose_a_disk(&mut self) {
        if self.leader() == Some(3) {
            self.nodes.get_mut(&3).expect("it runs").hand_over(1);
            self.until(|group| group.leader().is_some_and(|leader| leader != 3));
        }
        self.kill(3);
        self.change(Change::Remove(3));
        self.until(|group| group.nodes[&group.leader().expect("one")].members().voters.len() == 2);
        (self.pieces, self.longest, self.held) = (0, 0, 0);
        self.start(4);
        self.change(Change::Learner(4));
    }

    fn change(&mut self, change: Change) {
        let leader = self.leader().expect("a leader");
        self.nodes.get_mut(&leader).expect("it runs").change(change).expect("proposed");
    }

    /// Runs until a number of pieces were sent.
    fn pieces(&mut self, count: usize) {
        for _ in 0..5000 {
            if self.pieces >= count && self.is_receiving() {
                return;
            }
            self.steps(8);
        }
        panic!("only {} pieces", self.pieces);
    }

    #[track_caller]
    fn check(&mut self) {
        self.until(Self::is_even);
        let leader = self.leader().expect("a leader");
        let records = self.records(leader);
        assert!(records.len() > KEYS, "{}", records.len());
        assert!(self.records(4) == records, "node 4 has other records than its leader");
        // Whatever the data's size: a few pieces, and a buffer that has grown to the longest record.
        assert!(self.longest <= PIECE + OVERHEAD, "{}", self.longest);
        assert!(self.held <= 3 * PIECE + 2 * LONG, "{}", self.held);
        assert!(self.held >= LONG / 2, "{}", self.held);
    }
}

#[test]
fn a_node_without_its_disk_gets_all_records_in_pieces_while_the_leader_writes() {
    let mut group = Group::new();
    group.lose_a_disk();
    group.check();
    assert!(group.pieces > KEYS * 1000 / PIECE, "{}", group.pieces);
    assert!(group.meanwhile > 10, "{}", group.meanwhile);
}

/// More is written meanwhile than the log keeps otherwise.
#[test]
fn a_node_catches_up_while_much_is_written_and_gets_one_snapshot_for_it() {
    let mut group = Group::new();
    group.lose_a_disk();
    let (mut written, mut number) = (0, 0);
    for step in 0.. {
        // Four KiB for each piece, and for each step if that is more.
        let due = 4 * group.pieces.max(step);
        while written < due {
            group.write(number % KEYS);
            (written, number) = (written + 1, number + 7);
        }
        group.steps(40);
        let leader = group.leader().and_then(|id| group.nodes.get(&id));
        if leader.is_some_and(|leader| leader.is_near(4, 64)) {
            break;
        }
        assert!(step < 5000 && group.pieces < 3 * KEYS * 1000 / PIECE, "{} pieces", group.pieces);
    }
    assert!(written > 600, "{written}");
    let pieces = group.pieces;
    group.check();
    assert_eq!(group.pieces, pieces);
}

#[test]
fn a_kill_of_the_receiver_leaves_nothing_of_half_a_snapshot() {
    let mut group = Group::new();
    group.lose_a_disk();
    let mut pieces = 0;
    for more in [1, 40, 100] {
        pieces += more;
        group.pieces(pieces);
        pieces = group.pieces;
        group.kill(4);
        group.start(4);
        assert!(group.records(4).is_empty());
        assert!(!group.nodes[&4].is_receiving());
    }
    group.check();
}

#[test]
fn a_kill_of_the_sender_begins_the_snapshot_again() {
    let mut group = Group::new();
    group.lose_a_disk();
    group.pieces(60);
    let leader = group.leader().expect("a leader");
    group.kill(leader);
    assert!(group.records(4).is_empty());
    group.start(leader);
    group.until(|group| group.leader().is_some());
    group.check();
}

#[test]
fn a_receiver_without_room_is_not_broken_and_the_others_go_on() {
    let mut group = Group::new();
    group.capacity.insert(4, 2 << 20);
    group.lose_a_disk();
    for round in 0..300 {
        group.write(round);
        group.round();
    }
    assert!(group.pieces > 2 * 50, "it is tried again: {}", group.pieces);
    assert!(group.records(4).is_empty());
    // The next attempt has room.
    group.kill(4);
    group.capacity.remove(&4);
    group.start(4);
    group.check();
}

#[test]
fn a_clearing_removes_keys_of_any_length_also_from_a_full_partition() {
    for (capacity, len) in [(24 << 20, 8), (24 << 20, 5000), (24 << 20, 16_000), (4 << 20, 16_000)]
    {
        let pool = Arc::new(Pool::volatile(64 << 20).expect("memory"));
        let options = Options::new().capacity(capacity);
        let mut machine = Machine::open(&pool, "records", &options, 0).expect("new");
        let put = |machine: &mut Machine, key: &[u8]| {
            let mut entry = Vec::new();
            push_put(&mut entry, key, b"", None);
            machine.apply(1, &entry)
        };
        put(&mut machine, &member_key(1)).expect("room");
        for number in 0..5000 {
            let key = format!("{number:05}{}", "k".repeat(len));
            if let Err(error) = put(&mut machine, key.as_bytes()) {
                assert!(is_full(&error), "{error}");
                break;
            }
            if number % 100 == 0 {
                machine.commit(1).expect("durable");
            }
        }
        assert!(machine.engine.len() > 200);
        let mut entry = Vec::new();
        push_clear(&mut entry);
        machine.apply(2, &entry).expect("a clearing always succeeds");
        machine.commit(2).expect("durable");
        assert_eq!(machine.engine.len(), machine.kept(), "keys of {len} bytes");
        assert_eq!(machine.kept(), 2, "the index and the member");
    }
}

/// Another replica's engine may be fuller than that of the leader who has admitted an entry.
#[test]
fn a_full_replica_takes_what_frees_as_much_as_it_takes_in_any_order() {
    let pool = Arc::new(Pool::volatile(64 << 20).expect("memory"));
    let options = Options::new().capacity(8 << 20);
    let mut machine = Machine::open(&pool, "records", &options, 0).expect("new");
    let (mut index, value, mut count) = (0, [7; 500], 0);
    let name = |number: usize| format!("m{number:05}").into_bytes();
    while machine.engine.put(&name(count), &value, None).is_ok() {
        count += 1;
        machine.engine.commit().expect("durable");
    }
    let mut apply = |machine: &mut Machine, changes: &[(&[u8], Option<&[u8]>)]| {
        let mut entry = Vec::new();
        for (key, value) in changes {
            let stored = value.map(|value| Stored { value: value.to_vec(), expires: NEVER });
            push(&mut entry, key, &stored);
        }
        index += 1;
        let is_done = machine.apply(index, &entry).expect("not broken");
        machine.commit(index).expect("durable");
        is_done
    };
    for number in 0..count {
        let (before, after) = (name(number), name(number + 50_000));
        // What is put comes before what is removed, or the other way round, and what grows before what shrinks.
        let first: &[(&[u8], Option<&[u8]>)] = &[(&after, Some(&value)), (&before, None)];
        assert!(apply(&mut machine, first), "{number} of {count}");
        let again = [(&before[..], Some(&value[..100])), (&after, Some(&value[..368]))];
        assert!(apply(&mut machine, &again), "{number} of {count}");
        let more = [(&before[..], Some(&value[..368])), (&after, Some(&value[..100]))];
        assert!(apply(&mut machine, &more), "{number} of {count}");
        let last = [(&after[..], Some(&value[..])), (&after, None), (&before, Some(&value))];
        assert!(apply(&mut machine, &last), "{number} of {count}");
    }
    assert_eq!(machine.engine.len(), count as u64 + 1);
    // Of what takes more, it waits for room.
    let long = [8; 2000];
    for number in 0.. {
        assert!(number < 100);
        if !apply(&mut machine, &[(&name(number + 90_000), Some(&long))]) {
            break;
        }
    }
    assert!(!apply(&mut machine, &[(&name(0), None), (b"a", Some(&long)), (b"z", Some(&long))]));
}

#[test]
fn a_replica_with_remains_of_a_snapshot_opens_without_room_and_removes_them_later() {
    // So many blocks that their list needs one.
    let options = Options::new().capacity(16 << 20).block_bytes(4 << 10);
    let entry = |key: &[u8]| {
        let mut entry = Vec::new();
        push_put(&mut entry, key, b"v", None);
        entry
    };
    let part = |number: u32| {
        let (mut part, long) = (Vec::new(), [7; 1000]);
        for key in 0..200 {
            push_put(&mut part, format!("{number} {key}").as_bytes(), &long, None);
        }
        part
    };
    let mut waited = 0;
    // The blocks for which there is room.
    for left in 0..20 {
        let pool = Arc::new(Pool::volatile(64 << 20).expect("memory"));
        let mut machine = Machine::open(&pool, "records", &options, 0).expect("new");
        let applied = machine.apply(1, &entry(b"here")).expect("room");
        assert!(applied && machine.commit(1).expect("room"));
        assert!(machine.begin(1).expect("room"));
        assert!((0..20).all(|number| machine.restore(&part(number)).expect("room")));
        drop(machine);
        pool.fail_allocation_after(Some(left));
        let mut machine = Machine::open(&pool, "records", &options, 0).expect("it opens");
        machine.switch(0).expect("it has its state");
        let mut value = Vec::new();
        assert!(machine.engine.get_into(b"here", 0, &mut value).expect("sound") && value == b"v");
        machine.remove_remains(Instant::now() + Duration::from_secs(100)).expect("it waits");
        pool.fail_allocation_after(None);
        waited += usize::from(machine.has_remains());
        machine.remove_remains(Instant::now() + Duration::from_secs(200)).expect("room");
        assert!(!machine.has_remains());
        assert!(!Partition::destroy(&pool, "records.1").expect("room"), "the remains");
    }
    assert!(waited > 0);
}

/// So a replica with a damaged record can be healed by a snapshot.
#[test]
fn a_damaged_state_that_a_snapshot_replaces_is_no_reason_to_stop() {
    let options = Options::new().capacity(16 << 20);
    // One record, and nearly all.
    for hurts in [b"DAMAGED!", b"ELSEWISE"] {
        let pool = Arc::new(Pool::volatile(64 << 20).expect("memory"));
        let mut machine = Machine::open(&pool, "records", &options, 0).expect("new");
        for number in 0..2000 {
            let mut entry = Vec::new();
            let value = if number == 1000 { b"DAMAGED!" } else { b"ELSEWISE" };
            push_put(&mut entry, format!("{number:06}").as_bytes(), value, None);
            assert!(machine.apply(1 + number, &entry).expect("room"));
        }
        assert!(machine.commit(2000).expect("room"));
        let wanted = u64::from_le_bytes(*hurts);
        for page in (1..).map_while(|page| pool.words(page * 4096, 512).ok()) {
            for word in page.iter().filter(|word| pool.pm().load(*word) == wanted) {
                pool.pm().store(word, wanted + 1);
            }
        }
        assert!(machine.begin(1).expect("room") && machine.finish(3000).expect("room"));
        machine.switch(1).expect("the new state is whole");
        assert_eq!(machine.applied(), 3000);
        drop(machine);
        let mut machine = Machine::open(&pool, "records", &options, 1).expect("it opens");
        machine.switch(1).expect("the new state is whole");
        assert_eq!(machine.applied(), 3000);
    }
}

/// Its nodes have the same ids, and its messages would count.
#[test]
fn a_node_of_another_group_is_refused() {
    let place = |port: u32| Member::parse(&format!("a:{port}/b:{port}")).expect("addresses");
    let options = Options::new().capacity(4 << 20);
    let pools = [1, 2].map(|_| Arc::new(Pool::volatile(16 << 20).expect("memory")));
    let open = |pool: &Arc<Pool>, founders: &[(u64, Member)], number| {
        let (founders, group) = (founders.to_vec(), NonZeroU64::new(number));
        let identity = Identity { id: 1, me: place(1), founders, group, entry_bytes: 1 << 20 };
        super::Group::open(pool, "records", &options, (0, 1), &identity).expect("it opens")
    };
    // A heartbeat of node 2 in this term: the replica follows it, and answers to where it is.
    let hear = |group: &mut super::Group, number, term: u8| {
        let (heartbeat, at) = ([8, 8, 16, 1, 24, 2, 32, term], place(u32::from(term)));
        group.step(2, at.clone(), NonZeroU64::new(number), &heartbeat);
        let knows = group.members.get(&2) == Some(&at);
        assert!(!knows || group.replica.leader() == Some(2));
        knows
    };
    let both = [(1, place(1)), (2, place(2))];
    // New, with a number of its own or one of its founders; and one that joins, and takes what it hears first.
    for (founders, given) in [(&both[..], 7), (&both[..], 0), (&[][..], 7), (&[][..], 0)] {
        let pool = Arc::new(Pool::volatile(16 << 20).expect("memory"));
        let mut group = open(&pool, founders, given);
        let ours = group.number().map_or(5, NonZeroU64::get);
        assert!(given == 0 || ours == given);
        assert_eq!(group.number().is_some(), given != 0 || !founders.is_empty());
        assert!(hear(&mut group, ours, 10), "a member");
        assert!(!hear(&mut group, ours + 1, 20), "of another group");
        assert!(!hear(&mut group, ours ^ 1 << 63, 21), "of another group");
        assert!(hear(&mut group, ours, 30), "a member");
    }
    // It is agreed on, and found again: also the one that a group gets which had none.
    let [pool, old] = &pools;
    let alone = [(1, place(1))];
    let agreed = |group: &mut super::Group| loop {
        group.round().expect("not broken");
        if let Some(number) = group.replica.state().group().expect("readable") {
            return number;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut group = open(pool, &alone, 9);
    let number = agreed(&mut group);
    assert_eq!(number.get(), 9);
    drop(group.close().expect("closed"));
    for (founders, given) in [(&alone[..], 0), (&[][..], 0), (&alone[..], 8)] {
        let mut group = open(pool, founders, given);
        assert_eq!(group.number(), Some(number));
        assert!(!hear(&mut group, 8, 100), "of another group");
        drop(group.close().expect("closed"));
    }
    let mut group = open(old, &alone, 0);
    assert!(group.replica.state_mut().commit(1).expect("room"));
    drop(group);
    let mut group = open(old, &alone, 0);
    assert_eq!(group.number(), None, "as if it was of before there were numbers");
    let number = agreed(&mut group);
    drop(group.close().expect("closed"));
    assert_eq!(open(old, &alone, 0).number(), Some(number));
}

#[test]
fn the_last_that_was_said_of_an_address_counts_and_founders_count_more_than_records() {
    let pool = Arc::new(Pool::volatile(16 << 20).expect("memory"));
    let place = |port: u32| Member::parse(&format!("a:{port}/b:{port}")).expect("addresses");
    let options = Options::new().capacity(4 << 20);
    let open = |founders: &[(u64, Member)]| {
        let (founders, me) = (founders.to_vec(), place(1));
        let identity = Identity { id: 1, me, founders, group: None, entry_bytes: 1 << 20 };
        super::Group::open(&pool, "records", &options, (0, 1), &identity).expect("it opens")
    };
    let wait = |group: &mut super::Group| {
        let until = Instant::now() + Duration::from_millis(4 * TICK);
        while Instant::now() < until || group.leads().is_err() {
            group.round().expect("not broken");
            std::thread::sleep(Duration::from_millis(5));
        }
        group.members.get(&2).cloned()
    };
    // Nothing that counts: of an earlier term.
    let hear = |group: &mut super::Group, at: Member| {
        let number = group.number();
        group.step(2, at, number, &[8, 8, 16, 1, 24, 2, 32, 1]);
    };
    let mut group = open(&[(1, place(1))]);
    wait(&mut group);
    group.join(2, &place(2)).expect("accepted");
    assert_eq!(wait(&mut group), Some(place(2)));
    hear(&mut group, place(22));
    assert_eq!(group.members.get(&2), Some(&place(22)), "it has moved");
    assert_eq!(wait(&mut group), Some(place(22)), "the record is older");
    for all in ["0.0.0.0:3/a:3", "[::]:3/a:3"] {
        hear(&mut group, Member::parse(all).expect("addresses"));
        assert_eq!(wait(&mut group), Some(place(22)), "{all} is no way to a node");
    }
    group.join(2, &place(33)).expect("corrected");
    assert_eq!(wait(&mut group), Some(place(33)));
    drop(group.close().expect("closed"));
    let mut group = open(&[]);
    assert_eq!(wait(&mut group), Some(place(33)));
    drop(group.close().expect("closed"));
    // All nodes have moved: without this no node would find another one.
    let mut group = open(&[(1, place(1)), (2, place(44))]);
    assert_eq!(wait(&mut group), Some(place(44)));
    hear(&mut group, place(55));
    assert_eq!(wait(&mut group), Some(place(55)));
}

/// What waits for a majority when the leader is removed is answered, and what was staged in the same turn.
#[test]
fn a_leader_that_is_to_be_removed_answers_first() {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let at = |listener: &TcpListener| listener.local_addr().expect("bound");
    let places: Vec<(u64, Member)> = (1..)
        .zip(&listeners)
        .map(|(id, listener)| {
            (id, Member { peers: at(listener).to_string(), clients: "a:1".into() })
        })
        .collect();
    let mut nodes = Vec::new();
    for ((id, me), listener) in places.iter().zip(listeners) {
        let (sender, mail) = std::sync::mpsc::sync_channel(1000);
        let inbox = move |_, from, place, parcel| sender.send((from, place, parcel)).is_ok();
        Peers::listen(listener, 1, Arc::new(inbox)).expect("it listens");
        let (founders, me) = (places.clone(), me.clone());
        let identity = Identity { id: *id, me, founders, group: None, entry_bytes: 1 << 20 };
        let pool = Arc::new(Pool::volatile(16 << 20).expect("memory"));
        let options = Options::new().capacity(4 << 20);
        let group = super::Group::open(&pool, "records", &options, (0, 1), &identity);
        nodes.push((group.expect("new"), mail));
    }
    let turn = |nodes: &mut Vec<(super::Group, _)>| -> Vec<super::Round> {
        std::thread::sleep(Duration::from_millis(1));
        let turn = |(group, mail): &mut (super::Group, Receiver<(u64, Member, Parcel)>)| {
            for (from, place, parcel) in mail.try_iter() {
                let Parcel::Raft { group: number, message } = parcel else { continue };
                group.step(from, place, number, &message);
            }
            group.round().expect("not broken")
        };
        nodes.iter_mut().map(turn).collect()
    };
    let leads = |nodes: &[(super::Group, _)]| nodes.iter().position(|it| it.0.leads().is_ok());
    let leader = loop {
        turn(&mut nodes);
        if let Some(leader) = leads(&nodes) {
            break leader;
        }
    };
    let write = |group: &mut super::Group, key: &[u8]| {
        let stored = Stored { value: b"v".to_vec(), expires: NEVER };
        group.stage(&BTreeMap::from([(key.to_vec(), Some(stored))])).expect("admitted");
    };
    // All others have answered.
    for _ in 0..50 {
        turn(&mut nodes);
    }
    write(&mut nodes[leader].0, b"before");
    let before = turn(&mut nodes)[leader].gate.expect("it waits");
    write(&mut nodes[leader].0, b"with it");
    assert!(nodes[leader].0.give_away());
    assert!(nodes[leader].0.is_busy(), "no more requests");
    let round = turn(&mut nodes).swap_remove(leader);
    let (gate, mut opens) = (round.gate.expect("it is proposed").and(before), false);
    let started = Instant::now();
    while leads(&nodes).is_none_or(|now| now == leader) {
        let round = turn(&mut nodes).swap_remove(leader);
        opens |= round.opens(gate);
        assert!(opens || !round.lost, "connections with replies that wait would be closed");
        assert!(started.elapsed() < Duration::from_secs(30), "it does not go");
    }
    assert!(opens);
}

#[test]
fn an_address_is_written_down_only_after_raft_has_accepted_the_change() {
    let pool = Arc::new(Pool::volatile(16 << 20).expect("memory"));
    let place = |port: u32| Member::parse(&format!("a:{port}/b:{port}")).expect("addresses");
    let founders = vec![(1, place(1))];
    let identity = Identity { id: 1, me: place(1), founders, group: None, entry_bytes: 1 << 20 };
    let options = Options::new().capacity(4 << 20);
    let mut group = super::Group::open(&pool, "records", &options, (0, 1), &identity).expect("new");
    let knows = |group: &super::Group, id| {
        let members = group.replica.state().members().expect("readable");
        members.into_iter().any(|(other, _)| other == id)
    };
    while group.leads().is_err() || !knows(&group, 1) {
        group.round().expect("not broken");
        std::thread::sleep(Duration::from_millis(5));
    }
    group.join(2, &place(2)).expect("accepted");
    let refused = group.join(3, &place(3)).expect_err("one change at a time").0;
    assert!(refused.starts_with("TRYAGAIN "), "{refused}");
    let refused = group.leave(1).expect_err("it is the only voter").0;
    assert!(refused.starts_with("ERR "), "{refused}");
    let refused = group.leave(2).expect_err("it is not a member yet").0;
    assert!(refused.ends_with("is no member"), "{refused}");
    while !knows(&group, 2) {
        group.round().expect("not broken");
    }
    // It does not run, so it has no data and cannot vote, however few entries there are.
    let later = Instant::now() + Duration::from_millis(5 * TICK);
    while Instant::now() < later {
        group.round().expect("not broken");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(group.replica.members().learners, [2]);
    assert!(!knows(&group, 3) && !group.members.contains_key(&3));
    // Addresses of a member can be corrected, and go when it leaves.
    group.join(2, &place(22)).expect("a member");
    group.leave(2).expect("accepted");
    while knows(&group, 2) {
        group.round().expect("not broken");
    }
    assert!(group.replica.members().learners.is_empty() && knows(&group, 1));
}

#[test]
fn a_leader_whose_entries_are_on_their_way_does_not_begin_to_serve() {
    let mut group = Group::new();
    let leader = group.leader().expect("a leader");
    let serves = |group: &mut Group| {
        let turn = group.nodes.get_mut(&leader).expect("it runs").turn().expect("not broken");
        assert!(turn.leads);
        turn.serves
    };
    assert!(serves(&mut group));
    // If the next entry is refused, its leader must not go on with a state without this one.
    group.put(b"counter", b"1");
    assert!(!serves(&mut group));
    group.until(Group::is_even);
    assert!(serves(&mut group));
}

#[test]
fn an_entry_that_is_too_long_for_every_engine_is_skipped_by_every_replica() {
    let mut group = Group::new();
    let long = vec![b'k'; 17 << 10];
    let mut entry = Vec::new();
    push_put(&mut entry, b"with it", b"1", None);
    push_put(&mut entry, &long, b"1", None);
    let leader = group.leader().expect("a leader");
    group.nodes.get_mut(&leader).expect("it runs").propose(entry).expect("proposed");
    group.put(b"after", b"1");
    group.until(Group::is_even);
    for id in 1..=3 {
        // Also when it is replayed.
        group.kill(id);
        group.start(id);
        let has = |group: &Group| group.records(id).contains_key(&b"after"[..]);
        group.until(|group| group.leader().is_some() && has(group));
        assert!(!group.records(id).contains_key(&b"with it"[..]));
        let other = 1 + id % 3;
        assert!(group.records(id) == group.records(other));
    }
}

#[test]
fn a_replica_whose_engine_is_full_waits_for_room_and_the_others_go_on() {
    let mut group = Group::new();
    group.capacity.insert(4, 5 << 20);
    group.lose_a_disk();
    group.until(Group::is_even);
    group.change(Change::Voter(4));
    let mut stuck = 0;
    for round in 0..4000 {
        group.write(KEYS + round);
        group.round();
        stuck += usize::from(group.nodes[&4].is_stuck());
        let leads = group.leader() == Some(4);
        assert!(!leads || !group.nodes[&4].is_stuck() || round < 3000, "it cannot serve");
    }
    assert!(stuck > 500, "{stuck}");
    let leader = group.leader().expect("a leader");
    assert!(leader != 4 && group.records(leader).len() > KEYS + 3900);
    assert!(group.records(4).len() < KEYS + 3000);
    // With a greater capacity it goes on where it stopped.
    group.kill(4);
    group.capacity.insert(4, 24 << 20);
    group.start(4);
    group.until(Group::is_even);
    assert!(group.records(4) == group.records(leader));
}

#[test]
fn a_replica_whose_pool_is_full_catches_up_when_there_is_room() {
    let mut group = Group::new();
    let leader = group.leader().expect("a leader");
    let id = 1 + leader % 3;
    let pool = Arc::clone(&group.pools[&id]);
    let options = Options::new().capacity(64 << 20);
    let mut other = Partition::create(&pool, "other", &options).expect("room");
    for length in [1 << 20, 100_000, 5_000, 2_100] {
        let value = vec![7; length];
        while other.put_unweighed(&other.len().to_be_bytes(), &value, None).is_ok() {}
    }
    let mut waited = 0;
    for round in 0..2000 {
        group.write(round % KEYS);
        group.round();
        let node = &group.nodes[&id];
        waited += usize::from(node.is_log_full() || node.is_stuck());
    }
    assert!(waited > 100, "{waited}");
    // Without a restart: what it could not make durable is in its memory and in its log.
    drop(other);
    assert!(Partition::destroy(&pool, "other").expect("sound"));
    // Matched entries are applied a heartbeat later.
    let caught_up = |group: &Group| {
        let leader = group.leader().filter(|_| group.is_even());
        leader.is_some_and(|leader| group.records(id) == group.records(leader))
    };
    group.until(caught_up);
    group.kill(id);
    group.start(id);
    group.until(caught_up);
}
