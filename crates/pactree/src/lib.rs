//! PACTree: nodes of records in a list, under a trie that follows the list by a log; all of it in PM.
//!
//! After Kim, Krishnan, Fu, Kashyap, Min: *PACTree: A High Performance Persistent Range Index Using PAC
//! Guidelines* (SOSP 2021), the rival in SPTree's evaluation. Its ideas are here: an unsorted node of 64
//! records with fingerprints and one bitmap that commits ([`node`]), nodes in a doubly linked list
//! ([`layout`]), a persistent trie that leads to them and is changed later than they are, by a log of changes
//! of the structure ([`follow`]), and lookups that walk where the trie is behind ([`access`]). What differs:
//!
//! * **The log cannot run over.** The published code has 1000 entries for each core and uses them again
//!   unchecked. Here a writer that finds the log full lets the trie follow first.
//! * **`prev` is durable** before the trie may forget a node: a merge after a crash leads nowhere else.
//! * **Locks are in DRAM**, by a node's offset; the published nodes have them in PM, with a generation.
//! * **The order of a node's records is made when a scan reads it**, in registers, and kept nowhere.
//!   A scan that must read a node again has given out nothing of it, so it gives nothing twice.
//! * **Nodes merge**, and the trie's nodes with them. The published code gives back empty nodes alone.
//! * **Any key, any value.** Byte strings of any length; values of any size.
//! * **No thread of its own.** Writers let the trie follow, or a worker, if the caller has one.
//!
//! The trie is [`Trie`](pmindex_woart::Trie), WOART as a layer; in the paper it is PDL-ART.
//!
//! # Opening
//!
//! Reads the log behind its anchor: a change that may have been in progress is decided, then the trie follows.
//! No node is read besides.
//!
//! # Lock order
//!
//! A node's lock; another node's, which is tried; the log's lane; then those of the trie, which are tried.
#![forbid(unsafe_code)]

mod access;
mod bulk;
mod check;
mod follow;
mod layout;
mod merge;
mod node;
mod owed;
mod range;
mod recover;
mod salvage;
mod split;
mod tree;
mod write;

#[cfg(test)]
mod tests;

pub use layout::Root;
pub use range::Range;
pub use tree::PacTree;
