//! The inner nodes, in DRAM: they route a key to its leaf.
//!
//! # Shape
//!
//! A node has up to `INNER` separators and one child more. Child `i` holds the keys that are
//! greater than separator `i - 1` and not greater than separator `i`, so the child of a key is the
//! number of separators less than it: one branch-free count over the whole node, unused separators
//! being `u64::MAX`. A separator is one word; where keys are longer than a word, it is the key's
//! first word and a [`Tail`](pmindex_record::Tail) breaks ties. A child word says itself whether it is a
//! node or a leaf, so that a racing reader cannot take one for the other. The root never moves.
//!
//! # Concurrency
//!
//! *Selective*: leaves are written by many threads at once, inner nodes by one at a time, the
//! holder of `writer`. That is no bottleneck, for only a split or the removal of a leaf comes here,
//! with its persistent part already done; a change takes about as long as a cache miss. Readers
//! take nothing: each node has a version lock, held while the node changes, and a reader takes the
//! child's version before it validates the node it came from.
//!
//! Lock order: leaf locks, then `writer`, then node locks. The holder of `writer` waits for nothing.

mod build;
mod check;
mod find;
mod find_many;
mod insert;
mod node;
mod remove;

pub(super) use build::{Built, LeafRef};
pub(super) use find::Siblings;
pub(super) use find_many::{BATCH, Cursor};
pub(super) use node::InnerTree;
pub(super) use pmindex_record::{OwnedRoute, Route};
