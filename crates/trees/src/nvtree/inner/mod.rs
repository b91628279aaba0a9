//! The inner nodes, in DRAM: they route a key to its leaf.
//!
//! # Shape
//!
//! Two parts. *Parent-to-leaf nodes* ([`parent`]) name the leaves; they change, each under a lock of
//! its own. Above them the *top* ([`top`]): the greatest keys of the parents in one array, and over
//! it arrays of every 32nd key, so that a child's place is computed, not pointed to. The top never
//! changes; it is rebuilt ([`rebuild`]).
//!
//! A parent that is full splits in two, and only a link from the left half leads to the right one
//! until a rebuilt top names both. So a full parent stops no thread, and the top is a hint: it
//! never leads too far right, and a search that it leads too far left goes on along the links.
//!
//! # Rebuilding
//!
//! In steps, each a bounded piece of work that a writer does when it changes the structure anyway:
//! the parents are visited in order, small neighbours are merged, and each one's greatest key is
//! appended to the spare one of two buffers; at the end the buffers change roles. No thread waits for
//! a whole rebuild, neither readers nor writers, and there is no thread for it.
//!
//! # Concurrency
//!
//! Parents are changed by one thread at a time, the holder of `writer`. Readers take nothing: they
//! read the top at a version, take the parent's version, and validate the top's; along links they
//! take the next version before they validate the one they come from. What is taken out (merged
//! parents, separators that the top may still name) is reused only after the top that names it has
//! been replaced.
//!
//! Lock order: leaf locks, then `writer`, then locks of parents and of the top. The holder of `writer` waits
//! for no lock.

mod build;
mod change;
mod check;
mod find;
mod find_many;
mod parent;
mod rebuild;
mod top;

pub(super) use build::{Built, LeafRef};
pub(super) use find::{Neighbours, Siblings};
pub(super) use find_many::{BATCH, Cursor};
pub(super) use parent::{Entry, InnerTree};
pub(super) use pmindex_record::{OwnedRoute, Route};
