//! The inner nodes, in PM: they route a key to its leaf.
//!
//! A node is written once, but for [removals without room](shrink). A change of separators is made in copies, which one
//! store of the child word above them puts in place ([`change`]):
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the copies; the tickets of old and new nodes | P2 |
//! | P2 | the child word above the topmost copy, or the root's (LIN); allocation bits | unlock (DUR) |
//!
//! So after a crash the inner nodes are those before or after the change. Splits and merges of any number of
//! levels are one store, and need no log. A crash can leave a leaf that no inner node has yet: it is reached
//! through the leaf on its left, whose next writer adds it ([`repair`](super::repair)).
//!
//! # Concurrency
//!
//! Inner nodes are changed by one thread at a time, the holder of `writer`; `inner` is held while the
//! store is not durable. Readers read the version of `inner`, descend, read the leaf's version, and validate
//! `inner`: a node that was replaced meanwhile, and whose memory may be reused, costs a retry. A change comes
//! with the split, the merge or the removal of a leaf, so retries are rare.
//!
//! Searches may read a copy of the nodes in DRAM instead ([`cached`]).
//!
//! Lock order: leaf locks, `writer`, `inner`. The holder of `writer` waits for no leaf.

mod cached;
mod change;
mod check;
mod find;
mod node;
mod shrink;
#[cfg(test)]
mod shrink_tests;

pub(crate) use cached::Copies;
pub(crate) use find::{Cursor, Hint};
pub(crate) use node::Separator;
