//! A state machine that several processes replicate: Raft, whose log is in a pool of each of them. Step
//! functions, without threads and without I/O of their own.
//!
//! The engine of Raft is the crate `raft`. Of the two that are widely used it is the one that is a state
//! machine itself: ticks and messages go in, messages and entries come out, and nothing waits. So a
//! simulator can run a group of replicas on one thread, lose and reorder messages, cut the network, crash a
//! replica between any two stores to its pool, and repeat what went wrong from a seed. The other one,
//! `openraft`, is driven by an asynchronous runtime.
//!
//! ```text
//! propose --> Raft --> log of each replica      durable: one fence a turn
//!                 \--> a majority has it        agreed on
//!                       \--> state              applied, and durable now and then: the log recovers it
//! ```
//!
//! **What is promised.** An entry that a turn has applied while its replica led in the entry's term is durable
//! in the pools of a majority, and stays. A read that a turn has released sees every entry that was
//! acknowledged before the read was announced (read index: a round of heartbeats, no clock is trusted).
//!
//! **What must be durable before what**, and nothing else:
//!
//! | first | then | or else |
//! | --- | --- | --- |
//! | entries, terms and votes | messages that tell of them | a majority that has an entry has it no more; two votes in one term |
//! | a configuration | the state's index at or behind it | the replica counts with members that are none |
//! | the state | the base of the log behind what it was in | entries are nowhere |
//! | the state of a snapshot | the base of the log that names it | there is no state |
//!
//! **A snapshot** is one message with the whole state, so both sides hold it in memory once. It becomes a state
//! beside the old one; the log's base, one record, decides which one counts.
//!
//! **A replica that has lost its pool** does not come back under its id: it could vote twice. It is removed,
//! and added with another one.
#![forbid(unsafe_code)]

mod error;
mod layout;
mod log;
mod options;
mod replica;
#[cfg(test)]
mod sim;
mod state;
mod wrong;

pub use error::{Error, StateError};
pub use options::Options;
pub use raft::prelude::Message;
pub use replica::{Change, Members, Proposal, Replica, Turn};
pub use state::State;

/// A message as bytes.
#[must_use]
pub fn encode(message: &Message) -> Vec<u8> {
    use protobuf::Message as _;
    message.write_to_bytes().unwrap_or_default()
}

/// A message from bytes; `None` if they are none.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Message> {
    use protobuf::Message as _;
    Message::parse_from_bytes(bytes).ok()
}
