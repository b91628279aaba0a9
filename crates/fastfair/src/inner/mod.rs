//! The inner nodes, in PM: they route a key to its leaf.
//!
//! A node is written once; a change of separators is a change of copies, which one store of the
//! child word above them puts in place ([`change`]):
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the copies; the tickets of old and new nodes | P2 |
//! | P2 | the child word above the topmost copy, or the root's (LIN); allocation bits | unlock (DUR) |
//!
//! So whatever a crash interrupts, the inner nodes are those before or after. Splits and merges of
//! any number of levels are one store, and need no log. What a crash can leave is a leaf that no
//! inner node knows yet: it is reached through the leaf on its left, and the next writer there makes
//! it known ([`repair`](super::repair)).
//!
//! # Concurrency
//!
//! Inner nodes are changed by one thread at a time, the holder of `writer`; `inner` is held while the
//! store is not durable. Readers take the version of `inner`, go down, take the leaf's version, and
//! validate `inner`: a node that was replaced meanwhile, and may be something else by now, cost them
//! only a retry. A change comes with the split, the merge or the removal of a leaf, so retries are rare.
//!
//! Lock order: leaf locks, `writer`, `inner`. Whoever holds `writer` waits for no leaf.

mod change;
mod check;
mod find;
mod node;
mod shrink;

pub(crate) use find::{Cursor, Hint};
pub(crate) use node::Separator;
