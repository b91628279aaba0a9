//! Write buffers in DRAM over an index in PM, written in place or out of place, and searches in DRAM: the three
//! techniques of SPTree's study, as one wrapper.
//!
//! After Zhao, Zhong, Challa, Jiang: *Developing Index Structures in Persistent Memory Using Spot-on
//! Optimizations with DRAM* (ICPE 2024), section 3. Keys and values have 8 bytes, as they have there.
//!
//! [`Buffered`] admits a write to a buffer of 16 records or more. Each buffer has a range of keys (of hashes, for an
//! index by hash) in which there are about as many records as in a component of the index: a segment, a leaf,
//! a node. A full buffer goes to the index in one batch, whose records lie near each other. In place, each record is
//! stored where a single insert would store it, and the batch shares fences. Out of place (`ANEW`), the component is
//! written anew with the old and the new records, and replaces the old one ([`SpotOn`]). The paper's three
//! indexes make a matrix with these, and with the two answers to what a crash leaves of a buffer:
//!
//! | index | with a log | without: **lost on crash** |
//! |-------|------------|----------------------------|
//! | CCEH | `Buffered<ByHash<Cceh<u64, u64, M>, ANEW>, M, true, 1024>` | `..., false, 1024>` |
//! | FAST&FAIR | `Buffered<ByKey<FastFair<u64, u64, M>, ANEW>, M, true>` | `..., false>` |
//! | skip list | `Buffered<ByKey<SkipList<u64, u64, M>>, M, true>` | `..., false>` |
//!
//! Without a log a write that returned is lost in a crash, unless its buffer was written to the index. Such
//! an index is for the study, not for use: [`LOST_ON_CRASH`](Buffered::LOST_ON_CRASH) marks it, and a test
//! expects that the crash explorer finds the loss.
//!
//! What differs from the paper:
//!
//! * **A buffer belongs to a range, not to a node.** So it needs nothing of the index, and stays right
//!   when nodes split or merge; a range is halved when it has more records than a component, and found by a radix
//!   tree.
//! * **A write says what was there**, so it reads the index; the paper's does not.
//! * **A range reads the index** after the buffers that it passes were written to it.
//! * **A batch is the work of the write that fills a buffer**, which holds the buffer's lock; the paper's is in the
//!   background, and reads go on meanwhile.
//! * **A component that is too full is written anew as two**; the paper does not say.
//! * **FAST&FAIR's two words**, of the parent and of the left sibling, cannot change at once. The paper stores both, and
//!   a crash between leaves one that leads to a freed leaf; ours is recoverable after each store.
//!
//! **Caching**, the paper's third technique, is `CACHED`: all that a search reads above the components is in DRAM. For
//! FAST&FAIR, `ByKey<FastFair<u64, u64, M>, ANEW, true>`, that is a copy of its inner nodes
//! ([`FastFair::cached`](pmindex_fastfair::FastFair::cached)), which opening makes. CCEH's directory and the skip list's
//! towers are in DRAM in any case, so `CACHED` changes nothing there: their plain indexes are what the paper calls "C". A
//! copy is no record's only place, so caching loses nothing in a crash.
#![forbid(unsafe_code)]

mod base;
mod buffer;
mod changes;
mod index;
mod journal;
mod layout;
mod range;

#[cfg(test)]
mod names_tests;
#[cfg(test)]
mod tests;

pub use base::{Base, ByHash, ByKey, SpotOn};
pub use index::Buffered;
pub use layout::Root;
