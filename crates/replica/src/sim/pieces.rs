//! Pieces of snapshots that come twice, too late, or from another transfer.

use std::sync::Arc;

use pmindex_core::{Pool, Traced};
use pmindex_testkit::crash::{create_pool, open_pool};
use raft::prelude::{Message, MessageType};

use super::disk::Disk;
use super::group::{ZONE, bytes, pool_options};
use super::records::{Records, Write};
use crate::piece::{self, Answer, DONE, Place};
use crate::{Error, Options, Replica};

/// A new replica, with id 2, that gets a snapshot of replica 1.
struct Follower(Replica<Traced, Records>);

impl Follower {
    fn new() -> Self {
        let options = pool_options(ZONE);
        let disk = Disk::new(bytes(&options));
        drop(create_pool(&disk.space, &options).expect("room"));
        let pool: Arc<Pool<Traced>> =
            open_pool(&disk.space, &options).expect("sound").expect("a pool");
        let state = |generation| Records::open(&pool, generation);
        let replica = Replica::start(&pool, "log", &Options::new(2), &[], state);
        Self(replica.expect("it starts"))
    }

    /// Receives a piece; returns its answer.
    fn receive(&mut self, term: u64, place: Place, data: &[u8]) -> Answer {
        let mut head = Message::default();
        head.set_msg_type(MessageType::MsgSnapshot);
        (head.from, head.to, head.term) = (1, 2, term);
        let metadata = head.mut_snapshot().mut_metadata();
        (metadata.index, metadata.term) = (9, 3);
        metadata.mut_conf_state().voters = vec![1, 2];
        self.0.step(piece::message(&head, place, data.to_vec())).expect("not broken");
        let turn = self.0.turn().expect("not broken");
        let is_reply = |message: &&Message| message.get_msg_type() == MessageType::MsgSnapStatus;
        let Some(reply) = turn.messages.iter().find(is_reply) else { return Answer::Silence };
        assert_eq!((reply.to, reply.index), (1, place.transfer));
        if reply.reject { Answer::Refused } else { Answer::Wanted(reply.commit) }
    }
}

fn at(transfer: u64, number: u64, last: bool) -> Place {
    Place { transfer, number, ends_unit: last, last }
}

#[test]
fn only_the_next_piece_of_the_same_transfer_counts() {
    let (first, second) = (record(1, 11), record(2, 22));
    let mut follower = Follower::new();
    assert_eq!(
        follower.receive(3, at(5, 1, false), &first[..10]),
        Answer::Refused,
        "nothing before it"
    );
    assert_eq!(follower.receive(3, at(5, 0, false), &first[..10]), Answer::Wanted(1));
    assert_eq!(follower.receive(3, at(5, 0, false), &first[..10]), Answer::Wanted(1), "twice");
    assert_eq!(
        follower.receive(3, at(6, 1, true), &second[10..]),
        Answer::Refused,
        "another transfer"
    );
    assert_eq!(
        follower.receive(3, at(4, 0, false), &second),
        Answer::Silence,
        "an earlier transfer"
    );
    assert_eq!(follower.receive(2, at(9, 0, false), &second), Answer::Silence, "an earlier leader");
    assert!(follower.0.is_receiving() && follower.0.transfer_bytes() >= 10);
    assert_eq!(follower.0.state().get(1), None, "nothing is visible yet");
    assert_eq!(follower.receive(3, at(5, 1, true), &first[10..]), Answer::Wanted(2));
    assert!(!follower.0.is_receiving() && follower.0.transfer_bytes() == 0);
    assert_eq!((follower.0.state().get(1), follower.0.state().get(2)), (Some(11), None));
    assert_eq!(
        follower.receive(3, at(5, 0, false), &first[..10]),
        Answer::Wanted(DONE),
        "too late"
    );
    assert_eq!(follower.0.state().get(1), Some(11));
}

#[test]
fn a_later_transfer_takes_the_place_of_one_that_is_not_complete() {
    let (first, second) = (record(1, 11), record(2, 22));
    let mut follower = Follower::new();
    let whole = Place { ends_unit: true, ..at(5, 0, false) };
    assert_eq!(follower.receive(3, whole, &first), Answer::Wanted(1));
    assert_eq!(follower.receive(4, at(1, 0, true), &second), Answer::Wanted(1), "a new leader");
    assert_eq!((follower.0.state().get(1), follower.0.state().get(2)), (None, Some(22)));
}

#[test]
fn an_entry_that_is_too_long_is_refused_and_the_next_one_is_not() {
    let options = pool_options(ZONE);
    let disk = Disk::new(bytes(&options));
    drop(create_pool(&disk.space, &options).expect("room"));
    let pool: Arc<Pool<Traced>> = open_pool(&disk.space, &options).expect("sound").expect("a pool");
    let state = |generation| Records::open(&pool, generation);
    let options = Options::new(1).entry_bytes(100);
    let mut replica = Replica::start(&pool, "log", &options, &[1], state).expect("it starts");
    while !replica.leads() {
        replica.tick();
        replica.turn().expect("not broken");
    }
    let write = |bytes: u64| Write { key: 1, tag: Some(bytes), padding: bytes - 24 }.encode();
    let refused = replica.propose(write(101));
    assert!(matches!(refused, Err(Error::EntryTooLong { len: 101, max: 100 })), "{refused:?}");
    let proposal = replica.propose(write(100)).expect("not too long");
    while replica.turn().expect("not broken").applied < proposal.index {}
    assert_eq!(replica.state().get(1), Some(100));
}

fn record(key: u64, tag: u64) -> Vec<u8> {
    [key.to_le_bytes(), tag.to_le_bytes()].concat()
}
