//! P-Skiplist: a persistent skip list of nodes with many records, its towers in DRAM.
//!
//! One of the three structures that SPTree's paper puts buffers, out-of-place updates and caches in front
//! of (section 3). It says of it only that it is a skip list in PM; the rest is ours:
//!
//! * **The lowest level is the truth.** It is a list of nodes in PM ([`layout`]); the towers are made from
//!   it when it is opened, and are never written to PM ([`towers`], [`recover`]). So a write is one of the
//!   lowest level, and nothing about towers can be torn.
//! * **A node has many records**, each in one of four lines by a hash of its key, so a lookup reads of a
//!   node one line mostly ([`node`]). A line has its own word of commit: an insert is one line, and one
//!   fence where the record has no block of its own ([`write`]).
//! * **Nodes are never divided in place.** A full node is replaced by two, two with few records by one, by
//!   the one word that leads to them ([`replace`]). So no crash leaves half a change, and there is nothing
//!   to repair.
//! * **Readers take nothing and need no epoch.** Version locks in DRAM, by a node's offset, are held until
//!   the last fence of a change, and outlive the node; readers validate.
//!
//! # Lock order
//!
//! Nodes' locks (several: tried, in any order), then those of the towers.
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
