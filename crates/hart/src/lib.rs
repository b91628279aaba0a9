//! HART: hash-assisted adaptive radix trees in DRAM, leaves in PM.
//!
//! After Pan, Xie, Song: *HART: A Concurrent Hash-Assisted Radix Tree for DRAM-PM Hybrid Memory
//! Systems* (IPDPS 2019). Its ideas are here: the first bytes of a key choose one of many radix trees
//! through a hash directory, trees and directory live in DRAM and are rebuilt from the leaves, a leaf
//! holds the complete key, and leaves and values come from chunks with bitmap headers (`EPallocator`).
//! The differences:
//!
//! * **One durable bit per record decides** ([`epalloc`]). Value objects have no bits of their own:
//!   they are live if a live record leads to them. The paper's algorithms 1 to 3 and 6 keep value
//!   bits, an update log and a recycle log, which can disagree with the leaves: they clear live values
//!   and free twice. Here there is nothing to disagree with, and no log.
//! * **One line and one fence** for every insert, update and removal of a record without objects: a
//!   record's bit is on its own line. The paper's bitmap per chunk takes six persists and more.
//! * **Version locks by key**, not one lock per tree: writers to one tree wait for each other only if
//!   they write the same key (or its neighbour in a table of locks).
//! * **The directory keeps the order of keys** ([`directory`]), so a scan walks from tree to tree.
//! * Keys of any length up to the contract's limit, integers through an order-preserving encoding,
//!   values of any size.
//!
//! ```
//! use std::sync::Arc;
//! use pmindex_core::Pool;
//! use pmindex_hart::Hart;
//!
//! # fn main() -> Result<(), pmindex_index::IndexError> {
//! let pool = Arc::new(Pool::emulated(1 << 20)?);
//! let words = Hart::<String, u64>::create(&pool, "words")?;
//! words.insert("persistent", &1)?;
//! words.insert("memory", &2)?;
//! assert_eq!(words.get("memory")?, Some(2));
//! drop(words); // as if the process had died
//! let words = Hart::<String, u64>::open(&pool, "words")?;
//! assert_eq!(words.first_key_value()?, Some(("memory".to_owned(), 2)));
//! # Ok(())
//! # }
//! ```
//!
//! # Persistence
//!
//! | operation | step | store | durable before |
//! |-----------|------|-------|----------------|
//! | insert    | P1 | the objects, if it has any | P2 |
//! |           | P2 | the record, behind it on the same line its bit (LIN: its place in the tree, after the fence) | return (DUR) |
//! | update    | P1 | the object, if the value does not fit the record | P2 |
//! |           | P2 | the value word (LIN) | return (DUR), reuse of the old object |
//! | remove    | P2 | its bit is cleared (LIN: its place in the tree, after it) | return (DUR), reuse of the slots |
//!
//! A removal that leaves a chunk sparse may move records and objects to others; see [`sparse`].
//! An image of the trees is saved by [`Hart::close`], so that the next opening builds none.
//! Chunks come and go by tickets of the pool's allocator; see [`epalloc`].
//!
//! # Reading and writing concurrently
//!
//! A writer holds its key's version lock until the last fence. It links a record after its bit is
//! durable and unlinks it after the clearing is (over the fence between them it holds the locks of the
//! nodes that change, if it gets them at once), so what a tree leads to is durable but for a value
//! under update: a reader that finds a record takes the key's version before the value and validates
//! it after; then it validates the tree's node, so the record was this key's and not memory in reuse.
//! Readers that find nothing touch no lock. No reader executes a fence or a locked instruction.
//!
//! # Keys that begin each other
//!
//! A key that is the beginning of others ends at a node. So in a chain (`a`, `aa`, `aaa` and so on) a
//! search for the longest key passes a node of 64 bytes of DRAM for each of its bytes: about 40
//! instructions each, and it reads no record but the last one. A `get` of 1,000 bytes behind 999 keys
//! that it begins with takes some 43,000 instructions; behind keys that part from it early, 1,600.
//!
//! # Lock order
//!
//! Key locks (several: a batch only tries), the lock of loads, a hand of the allocator, its shelves and table,
//! locks of the trees' nodes.
#![forbid(unsafe_code)]

mod access;
mod batch;
mod bulk;
mod check;
mod directory;
mod epalloc;
mod layout;
mod range;
mod rebuild;
mod record;
mod recover;
mod salvage;
mod shutdown;
mod sorted;
mod sparse;
#[cfg(test)]
mod tests;
mod tree;
#[cfg(test)]
mod twin_tests;
mod write;

pub use range::Range;
pub use tree::Hart;
