//! FPTree: inner nodes in DRAM, leaves with fingerprints in PM.
//!
//! After Oukid, Lasperas, Nica, Willhalm, Lehner: *FPTree: A Hybrid SCM-DRAM Persistent and
//! Concurrent B-Tree for Storage Class Memory* (SIGMOD 2016). Its ideas are here: what can be
//! rebuilt is not made durable (inner nodes live in DRAM, [`inner`]), one-byte fingerprints spare
//! most key comparisons, a bitmap word commits ([`leaf`]), and concurrency is *selective*: leaves
//! are locked, inner nodes are read optimistically. What differs:
//!
//! * **One line commits, and one fence is enough.** Bitmap and fingerprints share a line, which
//!   also notes how the new key differs from what stood in its slot; so the two lines of an insert may
//!   become durable in any order, under one fence (the paper: three flushes, each with its fence), and
//!   recovery tells a record that was lost ([`leaf`]).
//! * **Optimistic version locks** replace hardware transactions and locks in leaves. They live in
//!   DRAM, hashed by the leaf's offset: a crash voids them, and a freed leaf needs no epoch.
//! * **The split's micro-log is one bit** of the leaf's commit word ([`split`]), the removal's is
//!   the allocator's ticket ([`unlink`]). A leaf says itself that it needs repair.
//! * **A fence key** in each leaf lets recovery read two lines per leaf ([`recover`]).
//! * **Byte-string keys leave their first 8 bytes in the leaf**, beside the pointer to the record's
//!   block: scans, splits and recovery order records by them, and look at the blocks of ties alone. A
//!   scan then fetches all the blocks it takes from a leaf at once, and those of the next leaf behind
//!   them ([`copy`]).
//! * **A byte-string value is replaced in place** by one of the same length, under one fence, through a ring of
//!   redo entries ([`RedoLog`](pmindex_record::RedoLog)); other values take a new block and two fences.
//! * **Leaves merge** ([`unlink`]): the paper gives back a leaf only when it is empty, so that records
//!   removed at random leave up to one leaf for each record that stays. A merge is a split run
//!   backwards: the same bit of the commit word, and the same repair.
//!
//! # Reading and writing concurrently
//!
//! A reader descends through node versions, takes the leaf's version, validates the last node,
//! reads, and validates the leaf. It executes no fence and no locked instruction and writes
//! nothing, so successive reads overlap in the out-of-order window. A writer turns the version it
//! has validated into the lock, changes the leaf, and unlocks after the last fence: a reader cannot
//! see what is not durable.
//!
//! # Lock order
//!
//! Leaf locks (several: by index in the table, ascending, each once), then the writer lock of the
//! inner nodes, then locks of inner nodes.

mod access;
mod batch;
mod bulk;
mod check;
mod copy;
mod dirty;
mod image;
mod inner;
mod layout;
mod leaf;
mod range;
mod recover;
mod salvage;
mod segments;
mod shutdown;
mod split;
mod tree;
mod unlink;
mod write;

#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod recover_tests;
#[cfg(test)]
mod redo_tests;
#[cfg(test)]
mod tests;

pub use layout::{ImagePiece, Root};
pub use range::Range;
pub use tree::FpTree;
