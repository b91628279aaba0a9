//! An adaptive radix tree in DRAM: the upper layer of HART and of SPTree.
//!
//! After Leis, Kemper, Neumann: *The Adaptive Radix Tree: `ARTful` Indexing for Main-Memory Databases*
//! (ICDE 2013), with the optimistic lock coupling of Leis, Scheibner, Kemper, Neumann: *The ART of
//! Practical Synchronization* (`DaMoN` 2016).
//!
//! It maps byte strings to numbers that stand for leaves. The leaves are kept elsewhere, and so are the bytes
//! of their keys that the tree does not need ([`Leaves`]).
//!
//! ```
//! use pmindex_art::{KeyBuf, Nodes, Root, Tree};
//! use pmindex_core::{Arena, Medium, PmError, Pool};
//!
//! # fn main() -> Result<(), PmError> {
//! let words = ["art", "arterial", "artefact", "bart"];
//! let keys = |leaf: u64, key: &mut KeyBuf| -> Result<(), PmError> {
//!     key.push(words[leaf as usize].as_bytes());
//!     Ok(())
//! };
//! let roots: Arena<Root> = Arena::new(1)?;
//! let nodes = Nodes::new(1000)?;
//! let pool = Pool::volatile(1 << 16)?; // its medium is what the tree waits through
//! let tree = Tree::new(&nodes, roots.get(roots.alloc()?), &keys);
//! for (leaf, word) in (0..).zip(words) {
//!     assert_eq!(tree.insert(pool.pm(), word.as_bytes(), leaf)?, None);
//! }
//! assert_eq!(tree.get(pool.pm(), b"artefact")?, Some(2));
//! assert_eq!(tree.floor(pool.pm(), b"artist")?.map(|place| place.leaf), Some(1));
//! assert_eq!(tree.remove(pool.pm(), b"art")?, Some(0));
//! assert_eq!(tree.ceiling(pool.pm(), b"")?.map(|place| place.leaf), Some(2));
//! # Ok(())
//! # }
//! ```
//!
//! # Nodes
//!
//! Nodes have room for 4, 16, 48 or 256 children, and are replaced by the next size as they fill and empty. A
//! node's **prefix** (path compression) is the common part of all keys below it, up to 8 bytes; a longer
//! common part takes several nodes, so every node can be compared with a key without reading a leaf. A key
//! that is a prefix of others ends at a node, in a place of its own beside the children. A key has nodes only
//! up to the byte that distinguishes it from all others (lazy expansion).
//!
//! # Reading and writing concurrently
//!
//! Each node has a version lock. A reader takes a node's version, reads, takes the child's version, and
//! validates the node: so the child was linked there when its version was taken. It executes no fence and no
//! locked instruction and writes nothing. A writer upgrades versions that it has read to locks: of the node
//! that changes and, if the node itself is replaced, of its parent; it never waits for one, but begins again.
//!
//! A node's memory always holds a node of the same size, and its version never goes back, even across reuse.
//! So a node can be reused without waiting for readers: a reader in a node that was replaced fails its
//! validation. Node references are indices; nothing here is durable.
//!
//! # Lock order
//!
//! From the root down.
#![forbid(unsafe_code)]

mod build;
mod change;
mod check;
mod child;
mod children;
mod find_many;
mod image;
mod insert;
mod leaves;
mod near;
mod node;
mod remove;
mod scratch;
mod tree;
mod walk;

pub use build::{Builder, Built, Sorted};
pub use child::LEAF_LIMIT;
pub use find_many::Search;
pub use image::{Named, Part, Restore, Saved, Share};
pub use leaves::{KeyBuf, Leaves};
pub use node::Nodes;
pub use remove::LeafPath;
pub use scratch::Scratch;
pub use tree::{Place, Root, Spot, Tree};
pub use walk::Direction;
