//! SPTree: a radix tree and key ranges in DRAM over leaves in PM, and a backup of the radix tree in PM.
//!
//! After Zhao, Zhong, Challa, Jiang: *Developing Index Structures in Persistent Memory Using Spot-on
//! Optimizations with DRAM* (ICPE 2024). Three layers:
//!
//! ```text
//! top      radix tree (crates/art): low key -> Mnode           DRAM
//!          beside it a guide: part of the key range -> Mnode   DRAM, hints
//!          its backup, a FAST&FAIR tree: low key -> Bnode      PM, some splits behind
//! middle   Mnodes: range [low, high), version lock, tags       DRAM
//!          write buffers, if wanted, with a log                DRAM; log in PM
//! bottom   Bnodes: 64 records, tags, bitmap, low key, next     PM, a list in key order
//! ```
//!
//! # Where to read
//!
//! The files that an insert passes, in order. A file calls those below it, never one above:
//!
//! | | file | what happens |
//! |-|------|--------------|
//! | 1 | `write.rs` | key and value are encoded |
//! | 2 | `lock.rs` | the leaf is found and locked, its lines are fetched |
//! | 3 | `access.rs` | the search: guide, radix tree, list of Mnodes |
//! | 4 | `guide.rs` | a hint of the Mnode |
//! | 5 | `middle.rs` | the Mnode's range, version and tags |
//! | 6 | `leaf.rs` | the Bnode is searched where a tag matches; in place: record, tag and bit, one fence |
//! | 7 | `buffer/mod.rs`, `buffer/write.rs` | buffered, in place of the end of 6: stage, fence, publish |
//! | 8 | `buffer/table.rs` | the buffer's words in DRAM |
//! | 9 | `log/lane.rs` | the entry, in a lane of `pmindex-log` |
//!
//! A full Bnode goes to `split.rs`, a full buffer to `buffer/absorb.rs`. The state that these share is
//! `leaves.rs`; the write buffers are a component over it that knows nothing of the tree above.
//!
//! # What differs from the paper
//!
//! * **Ranges are half-open, and a high key is not stored in PM.** It is the next Bnode's low key,
//!   by definition, so the two cannot disagree, even after a crash.
//! * **An insert takes one fence**, for a record that lies in one line: a word in the bitmap's line tells
//!   it from the slot's old words, so recovery knows an insert that became durable in part.
//! * **Ghosts cannot outlive a crash.** A Bnode that may hold records of its right neighbour (ghosts) says
//!   so with one bit of its `next` word, which the store that splits it sets (a merge sets it before it
//!   moves records). Recovery clears ghosts first, and operations never see any: the lock is held until they
//!   are gone.
//! * **The Mnode's copy of the tags is the filter.** It stays exact under inserts and removals, where a Bloom
//!   filter fills up; it needs no rebuilding, and it tells the slot: five of six lookups of missing keys read
//!   no PM, and a lookup of a present key reads the record's line alone. An Mnode is reachable only when its
//!   tags are complete.
//! * **A guide before the radix tree.** A search asks a small table by parts of the key range first, and
//!   waits for one line instead of two or three nodes of the radix tree. A table that is wrong, or empty,
//!   costs a step; see [`guide`].
//! * **A scan sorts its private copy**, by SIMD rank of the keys, or of the bytes in which byte strings
//!   differ (see [`order`]). An order kept in the Bnode would have to be written by readers.
//! * **Memory of Bnodes is reused at once.** The backup's entry of a Bnode is removed durably before the Bnode
//!   leaves the list, so after a crash the backup names Bnodes of the list only.
//!
//! # Reading and writing concurrently
//!
//! A reader takes an Mnode at or near its key from the guide or the radix tree, goes along the list of
//! Mnodes until the range fits, reads the version, reads the leaf, validates. Guide and radix tree are hints:
//! an Mnode's range and version decide, and Mnodes are type-stable, their versions never go back. A reader
//! executes no fence and no locked instruction, and writes nothing but the guide, where that was wrong. A
//! writer turns the version that it has validated into the lock, changes Bnode and tags, and unlocks after
//! the last fence: no thread sees what is not durable.
//!
//! If an error or a panic ends a write, the layers in DRAM are brought into line with the Bnodes before its
//! locks are released. Whether a split or a merge has happened is decided by the same word as in recovery.
//!
//! # After a crash
//!
//! DRAM is rebuilt from the list of Bnodes in steps. Until that is done, point reads are served by the
//! backup: its greatest entry whose low key is at most the key leads into the list. Other operations finish
//! the rebuilding first.
//!
//! # Background work
//!
//! Inserting the backup's entries, and keeping the write buffers' log short, are done in steps
//! ([`SpTree::step`]), which operations call. A [`Worker`] does them on a thread of its own; operations then
//! leave it all that can wait, full buffers and the splits after them included.
//!
//! # Lock order
//!
//! Mnodes from left to right, then the queue of the backup, or that of the workers.
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
