//! wBTree: a B+-tree in PM alone, with unsorted nodes, bitmap commits and an indirection array.
//!
//! After Chen, Jin: *Persistent B+-Trees in Non-Volatile Main Memory* (VLDB 2015), as evaluated by
//! Lersch, Hao, Oukid, Wang, Willhalm: *Evaluating Persistent Memory Range Indexes* (VLDB 2019),
//! section 3.1. Its ideas are here: a record goes to any free slot, and one 8-byte store of the
//! bitmap makes it be there; an *indirection slot array* gives the order, so that scans never sort
//! and searches are binary; nothing is in DRAM, so opening after a crash rebuilds nothing. Splits
//! are micro-logged ([`log`]), in leaves and inner nodes alike ([`split`]). What differs:
//!
//! * **One fence per insert** instead of four flushes with a fence each. Bitmap and order each share a line
//!   with the word that validates them, and the bitmap's line tells exactly whether the record became durable
//!   too ([`leaf`]); so all three lines are flushed under one fence.
//! * **Order and bitmap never get out of step.** The order names the state it was made for; a reader skips
//!   free slots in it, and sorts if it is invalid ([`order`]). The paper's bitmap-only delete and three-flush
//!   update leave an array that names removed records.
//! * **Fingerprints** in the bitmap's line spare a point lookup the binary search: it reads that line and
//!   usually one slot. The search through the order is for ranges, and for separators whose prefixes tie.
//! * **The descent is branch-free**: one pass over the separators counts those less than the key ([`inner`]);
//!   a node's lines are prefetched at once.
//! * **No links between leaves.** A scan continues through the parent, which also names the leaves to
//!   prefetch. A split and a removal each commit with one word of the parent.
//! * **A full leaf moves records to a neighbour that has room** instead of splitting ([`shift`]): leaves are
//!   75 % full under random keys, not 69 %.
//! * **Nodes merge**: leaves with few records, and inner nodes with few children ([`merge`]); the paper frees
//!   only empty nodes.
//! * **A value of several words is replaced in place**, under one fence, through a ring of redo entries
//!   ([`redo`]); the paper rewrites the record, its bitmap and its array.
//! * **8-byte offsets** in place of the 16-byte pointers of the paper's evaluation, which an 8-byte store
//!   cannot swing.
//!
//! A leaf has at most 54 slots rather than 63, an inner node 56: so commit word, fingerprints and
//! order lie on two lines.
//!
//! # One writer
//!
//! As the paper's, this tree has one writer, and the compiler sees to it: what writes takes
//! `&mut self`. [`SharedWbTree`] is for many threads.

mod access;
mod batch;
mod bulk;
mod check;
mod image;
mod inner;
mod layout;
mod leaf;
mod log;
mod merge;
mod order;
mod range;
mod recover;
mod redo;
mod separator;
mod shared;
mod shift;
mod split;
mod tree;
mod unlink;
mod walk;
mod write;

#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod tests;

pub use layout::{Log, Root};
pub use range::Range;
pub use shared::SharedWbTree;
pub use tree::WbTree;
