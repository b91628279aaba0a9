//! WOART and ART+CoW: adaptive radix trees wholly in PM, which open at once.
//!
//! After Lee, Lim, Song, Nam, Noh: *WORT: Write Optimal Radix Tree for Persistent Memory Storage Systems*
//! (FAST 2017), the rivals in HART's evaluation. Nodes of 4, 16, 48 and 256 children as in ART; in WOART
//! they change in place, by one word that commits ([`node`]), in ART+CoW by a copy and the word above.
//! What differs:
//!
//! * **A node says at which byte its children differ, and not what comes before** ([`layout`]). The paper's
//!   header has the bytes that were skipped, so a node that is put above another one changes two words, and
//!   a crash in between leaves a depth that readers must recognize as wrong. Here every change is one word;
//!   a lookup compares the whole key at the leaf, as it did for prefixes that the header had no room for.
//! * **Recovery, removal, any key.** The published code has none of these. A key may be the beginning of
//!   another; tickets free what a crash cut short; nodes shrink, and go with their last child but one.
//! * **Real ranges**, in both directions ([`range`]), where the papers look up key after key.
//! * **No thread sees a write that a crash could take back.** Version locks in DRAM, by a node's offset, are held
//!   until the last fence; readers take nothing and validate ([`path`]).
//!
//! [`Trie`] is the same tree as a layer over other nodes: it finds the greatest key that is not greater than another.
//!
//! # Lock order
//!
//! The lock of a word, then that of the node that it leads to; both are tried, never waited for.
#![forbid(unsafe_code)]

mod bulk;
mod check;
mod index;
mod layout;
mod node;
mod path;
mod range;
mod recover;
mod tree;
mod trie;
mod write;

pub use index::{ArtCow, Woart};
pub use layout::Root;
pub use range::Range;
pub use trie::Trie;
