//! FAST&FAIR: a B+-tree wholly in PM, with sorted leaves and nothing to rebuild.
//!
//! After Hwang, Kim, Won, Nam: *Endurable Transient Inconsistency in Byte-Addressable Persistent
//! B+-Tree* (FAST 2018). Its ideas are here: **FAST**, the failure-atomic shift, keeps leaves sorted
//! with 8-byte stores, and readers tolerate every prefix of them ([`shift`]); **FAIR**, in-place
//! rebalancing without logs, links a new leaf to its left neighbour first and adds it to the inner nodes
//! later ([`split`], [`merge`], [`unlink`]). Opening after a crash reads two lines ([`recover`]): readers
//! tolerate an interrupted change, and the next writer of its leaf finishes it ([`repair`]). What
//! differs:
//!
//! * **An entry's id decides, not its pointer.** Values may be zero, or equal to their neighbours':
//!   of equal ids the first one counts, and an id of 0 is a gap ([`layout`]).
//! * **Leaves have gaps.** A removal is one store; an insert shifts only to the nearest gap.
//! * **Inner nodes are replaced, not shifted**: copies and one store ([`inner`]), so a split that
//!   goes up several levels, or a new root, is atomic.
//! * **No thread acts on what a crash could take back.** Version locks in DRAM, by the leaf's offset, are
//!   held until the last fence; readers take no lock, and validate. A crash voids the locks, and a removed
//!   leaf needs no epoch.
//!
//! # Lock order
//!
//! Leaf locks (several: tried, in any order), the writer lock of the inner nodes, their version lock.
#![forbid(unsafe_code)]

mod access;
mod batch;
mod bulk;
mod check;
mod entry;
mod inner;
mod interrupt;
mod layout;
mod leaf;
mod merge;
mod owed;
mod range;
mod recover;
mod repair;
mod rewrite;
mod shift;
mod split;
mod tree;
mod unlink;
mod write;

#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod rewrite_tests;
#[cfg(test)]
mod tests;

pub use layout::Root;
pub use range::Range;
pub use tree::FastFair;
