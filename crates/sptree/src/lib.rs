//! SPTree: a radix tree and key ranges in DRAM, leaves in PM, and a way to them that survives.
//!
//! After Zhao, Zhong, Challa, Jiang: *Developing Index Structures in Persistent Memory Using Spot-on
//! Optimizations with DRAM* (ICPE 2024). Three layers:
//!
//! ```text
//! top      radix tree (crates/art): low key -> Mnode           DRAM
//!          beside it a guide: part of the key range -> Mnode   DRAM, hints
//!          its backup, a FAST&FAIR tree: low key -> Bnode      PM, behind by some splits
//! middle   Mnodes: range [low, high), version lock, tags       DRAM
//! bottom   Bnodes: 64 records, tags, bitmap, low key, next     PM, a list in key order
//! ```
//!
//! What differs from the paper:
//!
//! * **Ranges are half-open, and a high key is not stored in PM.** It is the next Bnode's low key,
//!   by definition, so the two cannot disagree, whatever is interrupted.
//! * **An insert takes one fence**, for a record that lies in one line: a word in the bitmap's line tells
//!   it from what stood in its slot before, so recovery knows an insert that became durable in part.
//! * **Ghosts cannot outlive a crash.** A Bnode that may hold records of its right neighbour says so
//!   with one bit of its `next` word, set by the very store that splits it (or before a merge's
//!   records get in). Recovery clears such records before it does anything else, and there are never
//!   any at run time: the lock is held until they are gone.
//! * **The Mnode's copy of the tags is the filter.** It is exact under churn, where a Bloom filter
//!   only fills up, it needs no rebuilding, and it tells where to look: a lookup that misses reads
//!   no PM, five times in six, and one that hits reads the record's line and no other. An Mnode is
//!   reachable only when its tags are complete.
//! * **A guide before the radix tree.** A search asks a small table of places of the key range first,
//!   and waits for one line where the radix tree has two or three on its way. A table that is wrong, or
//!   knows nothing, costs a step; see [`guide`].
//! * **A scan sorts its private copy**, by SIMD rank: of the keys, or of the bytes that tell
//!   byte strings apart (see [`order`]). An order kept in the Bnode would have to be written by readers.
//! * **Memory of Bnodes is reused at once.** The backup forgets a Bnode durably before it leaves the
//!   list, so what the backup names after a crash is a Bnode of the list.
//!
//! # Reading and writing concurrently
//!
//! A reader takes from the guide or the radix tree an Mnode at or near its key, goes along the Mnodes'
//! list until the range fits, takes the version, reads, validates. Both are hints: an Mnode's range and
//! version decide, and Mnodes are type-stable, their versions never go back. A reader executes no
//! fence and no locked instruction, and writes nothing but the guide, where that has led it astray. A
//! writer turns the version it has validated
//! into the lock, changes Bnode and tags, and unlocks after the last fence: nobody sees what is not
//! durable.
//!
//! A writer that ends in the middle (a panic, a medium that fails) leaves nothing behind for the next
//! opening: before its locks are released, the layers in DRAM follow the Bnodes. Whether a split or a
//! merge has happened, the word says by which recovery would decide, too.
//!
//! # After a crash
//!
//! DRAM is rebuilt from the list of Bnodes by step functions. Until that is done, point reads are
//! served by the backup: its greatest entry that is not after the key leads into the list, and the
//! list says the rest. Everything else waits.
//!
//! # Background work
//!
//! Entries of the backup, and of the write buffers' log what keeps it short, are step functions
//! ([`SpTree::step`]), which operations call. A [`Worker`] calls them from a thread of its own; then
//! operations leave it all that can wait, full buffers and the splits after them included.
//!
//! # Lock order
//!
//! Mnodes from left to right, then the backup, or what waits for a worker.
#![forbid(unsafe_code)]

mod access;
mod background;
mod backup;
mod batch;
mod buffer;
mod bulk;
mod check;
mod copy;
mod ghosts;
mod guide;
mod image;
mod layout;
mod leaf;
mod leaves;
mod lock;
pub mod log;
mod low;
mod merge;
mod middle;
mod order;
mod range;
mod recover;
mod salvage;
mod serve;
mod split;
mod tag_guard;
mod top;
mod tree;
mod unfinished;
mod worker;
mod write;

#[cfg(test)]
mod tests;

pub use layout::Root;
pub use range::Range;
pub use tree::{BufferedSpTree, SpTree};
pub use worker::Worker;
