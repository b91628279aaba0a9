//! A replicated state machine: Raft, with a log in a pool of each replica. The crate consists of step
//! functions; it starts no thread and does no I/O.
//!
//! The Raft engine is the crate `raft`. Unlike `openraft`, the other widely used one, which is driven by an
//! asynchronous runtime, it is a state machine itself: ticks and messages go in, messages and entries come
//! out, and it never waits. So a simulator can run a group of replicas on one thread, lose and reorder
//! messages, cut the network, crash a replica between any two stores to its pool, and repeat a failure from
//! a seed.
//!
//! ```text
//! propose --> Raft --> log of each replica      durable: one fence a turn
//!                 \--> a majority has it        agreed on
//!                       \--> state              applied, and durable now and then: the log recovers it
//! ```
//!
//! **Promise.** If a turn has applied an entry, and its replica has led in the entry's term all the time,
//! the entry is durable in the pools of a majority, and stays. A read that a turn has released sees every
//! entry that was acknowledged before the read was announced (read index: a round of heartbeats; no clock
//! is trusted).
//!
//! **What must be durable before what**; nothing else must be:
//!
//! | first | then | otherwise |
//! | --- | --- | --- |
//! | entries, terms and votes | messages that announce them | an entry is lost that a majority had; a replica votes twice in one term |
//! | a configuration | the state's index at or after it | the replica counts votes of former members |
//! | the state | a base of the log that covers it | entries are lost |
//! | the state of a snapshot | the base of the log that refers to it | there is no state |
//!
//! **A snapshot** travels in pieces of bounded size, which the follower confirms one by one; both sides go on
//! meanwhile, and the memory of each is bounded by the pieces and the longest record. The leader reads the pieces from a view of
//! its state. The follower builds a second state beside the old one; the log's base, one record, decides
//! which of them is valid. A lost piece is sent again; after a crash the transfer begins again. The leader
//! keeps the entries after the snapshot meanwhile, as far as there is room for them.
//!
//! **A replica that has lost its pool** must not come back under its id, because it could vote twice.
//! Remove it, and add it again with a new id.
#![forbid(unsafe_code)]

mod error;
mod incoming;
mod layout;
mod log;
mod options;
mod outgoing;
mod piece;
mod replica;
#[cfg(test)]
mod sim;
mod state;
mod wrong;

pub use error::{Error, StateError};
pub use options::Options;
pub use raft::prelude::Message;
pub use replica::{Change, Members, Proposal, Replica, Turn};
pub use state::{Part, State};

/// Encodes a message.
#[must_use]
pub fn encode(message: &Message) -> Vec<u8> {
    use protobuf::Message as _;
    message.write_to_bytes().unwrap_or_default()
}

/// Decodes a message; returns `None` for invalid bytes.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Message> {
    use protobuf::Message as _;
    Message::parse_from_bytes(bytes).ok()
}
