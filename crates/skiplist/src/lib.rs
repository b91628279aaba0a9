//! P-Skiplist: a persistent skip list of nodes with many records, its towers in DRAM.
//!
//! One of the three structures to which SPTree's paper (section 3) adds buffers, out-of-place updates and
//! caches. The paper says only that it is a skip list in PM; the rest is our design:
//!
//! * **The lowest level is the truth.** It is a list of nodes in PM ([`layout`]); the towers are built from
//!   it when it is opened, and never written to PM ([`towers`], [`recover`]). So a write changes the lowest
//!   level only, and towers cannot be torn.
//! * **A node has many records**, each in one of four lines by a hash of its key, so a lookup mostly reads
//!   one line of a node ([`node`]). Each line has its own commit word: an insert takes one line, and one
//!   fence if the record has no block ([`write`]).
//! * **Nodes are never split in place.** A full node is replaced by two, and two with few records by one, by
//!   the one word that points to them ([`replace`]). So no crash leaves half a change, and nothing needs
//!   repair.
//! * **Readers take no locks and need no epochs.** Version locks in DRAM, by a node's offset, are held until
//!   the last fence of a change, and outlive the node; readers validate.
//!
//! # Lock order
//!
//! The locks of nodes (several: tried, in any order), then those of the towers.
#![forbid(unsafe_code)]

mod access;
mod bulk;
mod check;
mod layout;
mod list;
mod node;
mod range;
mod recover;
mod replace;
mod salvage;
mod towers;
mod write;

pub use layout::Root;
pub use list::SkipList;
pub use range::Range;
