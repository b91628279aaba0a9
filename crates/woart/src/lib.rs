//! WOART and ART+CoW: adaptive radix trees entirely in PM, which open in constant time.
//!
//! After Lee, Lim, Song, Nam, Noh: *WORT: Write Optimal Radix Tree for Persistent Memory Storage Systems*
//! (FAST 2017), the rivals in HART's evaluation. Nodes of 4, 16, 48 and 256 children as in ART; in WOART
//! they change in place, by one word that commits ([`node`]), in ART+CoW by a copy and the word above.
//! What differs:
//!
//! * **A node stores the position of the byte at which its children differ, and not the bytes before it**
//!   ([`layout`]). The paper's header has the skipped bytes, so inserting a node above another one changes two
//!   words, and a crash in between leaves a depth that readers must recognize as wrong. Here every change is
//!   one word; a lookup compares the whole key at the leaf, as the paper's does for prefixes longer than the
//!   header.
//! * **Recovery, removal, any key.** The published code has none of these. A key may be a prefix of another;
//!   tickets free the blocks of interrupted operations; nodes shrink, and are removed when they have one child
//!   left.
//! * **Real ranges**, in both directions ([`range`]), where the papers look up key after key.
//! * **No thread sees a write that a crash could take back.** Version locks in DRAM, one for each node by its
//!   offset, are held until the last fence; readers take no lock and validate ([`path`]).
//!
//! [`Trie`] is the same tree as a layer over other nodes, with a search for the greatest key that is not
//! greater than a given one.
//!
//! # Lock order
//!
//! The lock of the node with a word, then that of the node that the word points to; both are tried, never
//! waited for.
#![forbid(unsafe_code)]

mod bulk;
mod check;
mod index;
mod layout;
mod node;
mod path;
mod range;
mod recover;
#[cfg(test)]
mod tests;
mod tree;
mod trie;
mod write;

pub use index::{ArtCow, Woart};
pub use layout::Root;
pub use range::Range;
pub use trie::Trie;
