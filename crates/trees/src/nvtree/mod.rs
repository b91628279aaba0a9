//! NV-Tree: append-only leaves in PM, inner nodes in DRAM that are rebuilt.
//!
//! After Yang, Wei, Chen, Wang, Yong, He: *NV-Tree: Reducing Consistency Cost for NVM-based Single
//! Level Systems* (FAST 2015), as described by Lersch, Hao, Oukid, Wang, Willhalm: *Evaluating
//! Persistent Memory Range Indexes* (PVLDB 13(4), 2019), section 3.2. Its ideas are here: *selective
//! consistency* (leaves are consistent on the medium, inner nodes are not even there), leaves to which
//! positive and negative records are appended and of which a counter commits the append
//! ([`leaf`]), the newest record of a key being the one that counts, and parent-to-leaf nodes below
//! contiguous arrays that are rebuilt ([`inner`]). What differs:
//!
//! * **One flush, one fence.** Each line of a leaf has its own counter, so that a record and the
//!   counter that commits it share the line ([`layout`]). The paper flushes both.
//! * **Consistency is more selective.** A leaf's header sums up which of its records are live, and their
//!   fingerprints, so that readers need not scan the leaf backwards. The header is never flushed: recovery
//!   finds out where it is behind ([`recover`]).
//! * **A split needs no log**: one link replaces the old leaf by the new ones ([`split`]), and the
//!   allocator's tickets name that link. So does a merge ([`merge`]) of leaves with few records, which the
//!   paper does not merge.
//! * **Rebuilding stops no thread** ([`inner`]): it proceeds in steps, and a parent-to-leaf node that fills
//!   up meanwhile splits behind a link.
//! * **Locks are versions in DRAM.** The paper's prototype locks in PM, even to read. Here a crash
//!   voids them, and reads write nothing.
//!
//! # Reading and writing concurrently
//!
//! A reader descends, takes the leaf's version, validates the parent-to-leaf node, reads, and
//! validates the leaf. It executes no fence and no locked instruction, so successive reads overlap in
//! the out-of-order window. A writer turns the version it has validated into the lock, changes the
//! leaf, and unlocks after the last fence: a reader cannot see what is not durable.
//!
//! # Lock order
//!
//! The lock of the root's link, then leaf locks (several: by index in the table, ascending, each
//! once), then those of the inner nodes.

mod access;
mod batch;
mod bulk;
mod check;
mod copy;
mod image;
mod inner;
mod layout;
mod leaf;
mod merge;
mod range;
mod recover;
mod salvage;
mod shutdown;
mod split;
mod tree;
mod unlink;
mod waypoints;
mod write;

#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod tests;

pub use layout::{ImagePiece, Root};
pub use range::Range;
pub use tree::NvTree;
